/* The learning rate of every step.
 *
 * With s = 0, 1, ... the step about to be taken, w warm-up steps, n steps in all:
 *   s < w:        peak * (s + 1) / w
 *   w <= s < n:   t = (s - w) / (n - w), and
 *       constant  peak
 *       linear    peak + (min - peak) * t
 *       cosine    min + (peak - min) * (1 + cos(pi t)) / 2   (Loshchilov & Hutter 2017, SGDR, eq.
 * 5) s >= n:       as at t = 1: min (constant: peak)
 */
#ifndef RUNTIME_METRICS_LR_SCHEDULE_H
#define RUNTIME_METRICS_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum LrDecay { LR_CONSTANT, LR_LINEAR, LR_COSINE } LrDecay;

typedef struct LrSchedule {
    LrDecay decay;
    double peak, min;
    int64_t n_warmup_steps, n_steps;
} LrSchedule;

/* "constant", "linear" or "cosine"; false for any other name. */
bool lr_decay_parse(const char *name, LrDecay *out_decay);
const char *lr_decay_name(LrDecay decay);

/* The learning rate of step s >= 0, by the formula above. */
double lr_schedule_at(const LrSchedule *schedule, int64_t step);

#endif
