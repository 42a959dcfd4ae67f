#include "runtime/metrics/lr_schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const decay_names[] = {"constant",     "linear", "cosine",
                                          "inverse-sqrt", "wsd",    "wsd-linear"};

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

bool lr_decay_has_end(LrDecay decay) {
    return decay == LR_WSD || decay == LR_WSD_LINEAR || decay == LR_INVERSE_SQRT;
}

/* The step in which the decay at the end begins; n_steps: there is none. */
static int64_t end_begins(const LrSchedule *schedule) {
    int64_t n = schedule->n_steps, at = n - schedule->n_decay_steps;
    if (!lr_decay_has_end(schedule->decay) || schedule->n_decay_steps <= 0) return n;
    return at < schedule->n_warmup_steps ? schedule->n_warmup_steps : at;
}

/* After the warm-up and before the decay at the end; never below what that ends at. */
static double stable_rate(const LrSchedule *schedule, int64_t step) {
    double warmup = schedule->n_warmup_steps > 0 ? (double)schedule->n_warmup_steps : 1;
    if (schedule->decay != LR_INVERSE_SQRT) return schedule->peak;
    double rate = schedule->peak * sqrt(warmup / (double)(step + 1));
    return fmin(schedule->peak, fmax(rate, schedule->min));
}

double lr_schedule_at(const LrSchedule *schedule, int64_t step) {
    int64_t n_warmup = schedule->n_warmup_steps, n = schedule->n_steps, end = end_begins(schedule);
    if (step < n_warmup) return schedule->peak * (double)(step + 1) / (double)n_warmup;
    double min = schedule->min, range = schedule->peak - min;
    if (lr_decay_has_end(schedule->decay) && step >= end && schedule->n_decay_steps > 0) {
        double t = step < n ? (double)(step - end) / (double)(n - end) : 1;
        range = stable_rate(schedule, end) - min;
        return min + range * (1 - (schedule->decay == LR_WSD_LINEAR ? t : sqrt(t)));
    }
    double t = step < n ? (double)(step - n_warmup) / (double)(n - n_warmup) : 1;
    switch (schedule->decay) {
    case LR_LINEAR: return schedule->peak - range * t;
    case LR_COSINE: return min + range * 0.5 * (1 + cos(M_PI * t));
    default: return stable_rate(schedule, step);
    }
}

void lr_schedule_describe(const LrSchedule *schedule, char *text, size_t size) {
    char warmup[64] = "", end[96] = "";
    int64_t begins = end_begins(schedule);
    if (schedule->n_warmup_steps >= schedule->n_steps && schedule->n_steps > 0) {
        snprintf(text, size,
                 "%s: goes up in all %" PRId64 " steps, to %g of %g: warm-up is %" PRId64,
                 lr_decay_name(schedule->decay), schedule->n_steps,
                 lr_schedule_at(schedule, schedule->n_steps - 1), schedule->peak,
                 schedule->n_warmup_steps);
        return;
    }
    if (schedule->n_warmup_steps > 0) {
        snprintf(warmup, sizeof(warmup), " after %" PRId64 " step%s", schedule->n_warmup_steps,
                 schedule->n_warmup_steps == 1 ? "" : "s");
    }
    if (schedule->decay == LR_LINEAR || schedule->decay == LR_COSINE) {
        snprintf(end, sizeof(end), ", down to %g", schedule->min);
    } else if (begins < schedule->n_steps) {
        snprintf(end, sizeof(end), ", from step %" PRId64 " down to %g", begins + 1, schedule->min);
    }
    snprintf(text, size, "%s: %g%s%s", lr_decay_name(schedule->decay), schedule->peak, warmup, end);
}
