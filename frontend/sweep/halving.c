#include "frontend/sweep/halving.h"

#include <math.h>

int halving_rungs(int n_runs, int factor) {
    int n = 0;
    for (; n_runs >= factor; n_runs /= factor) n++;
    return n;
}

int64_t halving_step(int64_t n_steps, int factor, int n_rungs, int rung, int64_t eval_every) {
    int64_t step = n_steps;
    for (int r = rung; r < n_rungs; r++) step = (step + factor - 1) / factor;
    if (eval_every > 0) step = (step + eval_every - 1) / eval_every * eval_every;
    return step < n_steps ? step : n_steps;
}

void halving_choose(const double *losses, int n, int factor, bool *kept) {
    int n_finite = 0;
    for (int i = 0; i < n; i++) {
        kept[i] = false;
        n_finite += isfinite(losses[i]) != 0;
    }
    int n_left = n_finite / factor > 0 ? n_finite / factor : n_finite > 0;
    for (; n_left > 0; n_left--) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (kept[i] || !isfinite(losses[i])) continue;
            if (best < 0 || losses[i] < losses[best]) best = i;
        }
        kept[best] = true;
    }
}
