/* The learning rate of every step.
 *
 * With s = 0, 1, ... the step about to be taken, w warm-up steps, n steps in all, d of decay:
 *   s < w:          peak * (s + 1) / w
 *   w <= s < n:     t = (s - w) / (n - w), and
 *       constant    peak
 *       linear      peak + (min - peak) * t
 *       cosine      min + (peak - min) * (1 + cos(pi t)) / 2   (Loshchilov & Hutter 2017, SGDR,
 *                   equation 5)
 *       inverse-sqrt  peak * sqrt(w / (s + 1)), w at least 1   (Vaswani et al. 2017, section 5.3)
 *       wsd, wsd-linear  peak                         (warm-up, stable, decay: arXiv 2404.06395)
 *   but in the last d steps of wsd and inverse-sqrt, with r the rate where they begin and t from 0
 *   on over them: min + (r - min) * (1 - sqrt(t)) (arXiv 2405.18392), and wsd-linear
 *   r + (min - r) * t. They never begin within the warm-up.
 *   s >= n:         as at t = 1: min (constant, and inverse-sqrt without decay: as they go on)
 * Before the decay nothing depends on n: a run that is resumed there can have another end.
 */
#ifndef RUNTIME_METRICS_LR_SCHEDULE_H
#define RUNTIME_METRICS_LR_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum LrDecay {
    LR_CONSTANT,
    LR_LINEAR,
    LR_COSINE,
    LR_INVERSE_SQRT,
    LR_WSD,
    LR_WSD_LINEAR
} LrDecay;

#define LR_DECAY_NAMES "cosine, linear, constant, inverse-sqrt, wsd, wsd-linear"

typedef struct LrSchedule {
    LrDecay decay;
    double peak, min;
    int64_t n_warmup_steps, n_steps;
    int64_t n_decay_steps; /* of wsd and inverse-sqrt; others decay all along */
} LrSchedule;

/* One of LR_DECAY_NAMES; false for any other name. */
bool lr_decay_parse(const char *name, LrDecay *out_decay);
const char *lr_decay_name(LrDecay decay);
/* Has it steps of decay that can be chosen? */
bool lr_decay_has_end(LrDecay decay);

/* The learning rate of step s >= 0, by the formula above. */
double lr_schedule_at(const LrSchedule *schedule, int64_t step);

/* "wsd: 0.002 after 40 steps, from step 320 down to 0.0002" */
void lr_schedule_describe(const LrSchedule *schedule, char *text, size_t size);

#endif
