#include "runtime/metrics/lr_schedule.h"

#include <math.h>
#include <string.h>

static const char *const decay_names[] = {"constant", "linear", "cosine"};

enum { N_DECAYS = sizeof decay_names / sizeof decay_names[0] };

bool lr_decay_parse(const char *name, LrDecay *out_decay) {
    for (int i = 0; i < N_DECAYS; i++) {
        if (strcmp(name, decay_names[i]) != 0) continue;
        *out_decay = (LrDecay)i;
        return true;
    }
    return false;
}

const char *lr_decay_name(LrDecay decay) {
    return decay_names[decay];
}

double lr_schedule_at(const LrSchedule *schedule, int64_t step) {
    int64_t n_warmup = schedule->n_warmup_steps, n = schedule->n_steps;
    if (step < n_warmup) return schedule->peak * (double)(step + 1) / (double)n_warmup;
    double t = step < n ? (double)(step - n_warmup) / (double)(n - n_warmup) : 1;
    double range = schedule->peak - schedule->min;
    switch (schedule->decay) {
    case LR_CONSTANT: return schedule->peak;
    case LR_LINEAR: return schedule->peak - range * t;
    case LR_COSINE: return schedule->min + range * 0.5 * (1 + cos(M_PI * t));
    }
    return schedule->peak;
}
