#include "frontend/commands/sweep_loss.h"

#include <math.h>

SweepLoss sweep_loss_of(const RunCurve *curve, int64_t step) {
    const Series *series = curve->series;
    SweepLoss loss = {.counts = true, .val = NAN, .end = NAN};
    int n = curve->n_steps;
    while (n > 0 && series[S_STEP].values[n - 1] > (double)step) n--;
    if (n == 0) return loss;
    const int first = n - (n + 9) / 10;
    loss.end = 0;
    for (int i = first; i < n; i++) loss.end += series[S_LOSS].values[i] / (n - first);
    int last = n;
    while (last > 0 && isnan(series[S_VAL_LOSS].values[last - 1])) last--;
    if (last > 0) loss.val = series[S_VAL_LOSS].values[last - 1];
    return loss;
}

bool sweep_losses(const SweepLoss *of, int n, double *out) {
    int n_counting = 0, n_validated = 0;
    for (int i = 0; i < n; i++) {
        n_counting += of[i].counts;
        n_validated += of[i].counts && isfinite(of[i].val);
    }
    const bool validated = n_counting > 0 && n_validated == n_counting;
    for (int i = 0; i < n; i++) {
        out[i] = !of[i].counts ? (double)NAN : validated ? of[i].val : of[i].end;
    }
    return validated;
}
