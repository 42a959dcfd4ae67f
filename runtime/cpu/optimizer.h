/* Parameter updates in one pass over memory.
 *
 * All arrays are f32 [n], and an optimizer's states and the gradient g f32 or bf16, as the config's
 * state_dtype and gradient_dtype say; states of AdamW, SGD and Lion may be dyn8 (ir/moments.h).
 * Steps are made of the new states before they are rounded (LAMB's, which reads them again,
 * after). First moments are rounded to nearest; second ones, which a beta2 close to 1 changes by
 * less than bf16's last bit, as optimizer_threshold has it, so that they follow on average. `clip`
 * multiplies the gradient (the factor of gradient clipping, and of averaging). When *clip is
 * infinite or NaN, as after an overflow, nothing changes: parameters and state keep their values.
 * clip NULL means 1. lr and step are read when run, so a prepared call can be replayed. `copy`,
 * unless NULL, receives the new parameters rounded to the config's copy_dtype, f16 or bf16 (as
 * ir/masters.h has it). Where copy is p itself, but for LAMB's, p is in halves.
 */
#ifndef RUNTIME_CPU_OPTIMIZER_H
#define RUNTIME_CPU_OPTIMIZER_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

/* Dynamic loss scaling (Micikevicius et al. 2018): after `interval` steps in a row with a finite
 * *factor of gradients *scale doubles, to `most` at most; after one without it is halved, to 1 at
 * least. interval 0: it stays. *updates counts steps with a finite one. +inf is a step that was
 * left out for its norm (skip_spike), which says nothing about the scale: all stays. */
void optimizer_loss_scale(int64_t interval, float most, const float *factor, float *scale,
                          float *finite_steps, float *updates);

/* Of the averages that follow a run's weights (Polyak & Juditsky 1992), one minus what they keep at
 * update t = *step >= 1. Averages begin with the weights behind the first update, and follow
 * closely at first, so that the weights of the beginning are forgotten: decay_t = min(decay, (1 +
 * n) / (10 + n)), n = t - 2, of TensorFlow's ExponentialMovingAverage with num_updates; 0 at t = 1.
 */
float optimizer_ema_take(double decay, float step);

/* average += take (p - average) with that, of f32 [n]. */
void optimizer_ema(double decay, int64_t n, const float *step, const float *clip, const float *p,
                   float *average);

/* A number from 0 to 65535 that is drawn for a step. Of an f32's 32 bits bf16 keeps the upper 16;
 * where the lower 16 and this number make 65536 or more it is rounded up, else down: on average as
 * it should be. All elements have the same, whatever the layout. */
uint32_t optimizer_threshold(float step);

typedef struct AdamwConfig {
    double beta1, beta2, eps, weight_decay; /* f64: 1 - beta is taken before rounding */
    double lr_scale;                        /* of *lr, here and below */
    DType copy_dtype, state_dtype, gradient_dtype;
} AdamwConfig;

/* AdamW (Loshchilov & Hutter 2019), PyTorch's form; t = *step >= 1:
 *     p -= lr weight_decay p;   m += (1 - beta1) (g - m);   v = beta2 v + (1 - beta2) g^2
 *     p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) */
void optimizer_adamw(const AdamwConfig *config, int64_t n, const float *lr, const float *step,
                     const float *clip, const void *g, void *p, void *m, void *v, uint16_t *copy);

typedef struct SgdConfig {
    double momentum, weight_decay, lr_scale;
    bool nesterov;
    DType copy_dtype, state_dtype, gradient_dtype;
} SgdConfig;

/* SGD, PyTorch's convention (dampening 0; weight decay is added to the gradient):
 *     g += weight_decay p;   buf = momentum buf + g;   p -= lr (nesterov ? g + momentum buf : buf)
 * buf starts as zeros; with momentum 0 it is not touched and may be NULL. */
void optimizer_sgd(const SgdConfig *config, int64_t n, const float *lr, const float *clip,
                   const void *g, void *p, void *buf, uint16_t *copy);

typedef struct LionConfig {
    double beta1, beta2, weight_decay, lr_scale;
    DType copy_dtype, state_dtype, gradient_dtype;
} LionConfig;

/* Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2):
 *     p -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay p);   m = beta2 m + (1 - beta2) g
 * sign(0) = 0. */
void optimizer_lion(const LionConfig *config, int64_t n, const float *lr, const float *clip,
                    const void *g, void *p, void *m, uint16_t *copy);

typedef struct LambConfig {
    double beta1, beta2, eps, weight_decay, lr_scale;
    double trust_max; /* 0: none */
    DType copy_dtype, state_dtype, gradient_dtype;
} LambConfig;

/* LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2), in two parts, as the norms are of all
 * shards of a parameter:
 *     m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
 *     r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p
 *     *p_squared, *r_squared: sums of squares of what is here
 * and with those of all shards
 *     p -= lr trust r,   trust = min(|p| / |r|, trust_max), 1 where either norm is 0
 * r is computed twice rather than kept. Where nothing is to change the sums are 0. */
void optimizer_lamb_moments(const LambConfig *config, int64_t n, const float *step,
                            const float *clip, const void *g, const float *p, void *m, void *v,
                            float *p_squared, float *r_squared);
void optimizer_lamb(const LambConfig *config, int64_t n, const float *lr, const float *step,
                    const float *clip, const float *p_squared, const float *r_squared,
                    const void *m, const void *v, float *p, uint16_t *copy);

/* m = momentum m + g;   direction = g + momentum m   (Nesterov's form, of Jordan et al. 2024)
 * Where nothing is to change, m stays and the direction is 0. */
void optimizer_muon_momentum(double momentum, DType state_dtype, DType gradient_dtype, int64_t n,
                             const float *clip, const void *g, void *m, float *direction);

typedef struct MuonConfig {
    double scale, weight_decay, lr_scale;
    DType direction_dtype, copy_dtype;
} MuonConfig;

/* p -= lr (scale direction + weight_decay p); the direction is f32, bf16 or f16 [n]. *clip only
 * says whether anything changes. */
void optimizer_muon(const MuonConfig *config, int64_t n, const float *lr, const float *clip,
                    const void *direction, void *p, uint16_t *copy);

/* p[i] *= factors[i / inner % count], of n elements, and its copy, if it has one, anew. Where
 * p is its copy it is in halves. *clip only says whether anything changes. */
void optimizer_rescale(int64_t n, int64_t inner, int64_t count, const float *clip,
                       const float *factors, void *p, uint16_t *copy, DType copy_dtype);

/* p += step sign(mean of the tally - tally), sign(0) = 0   (Wang et al. 2024, arXiv 2408.15664,
 * algorithm 1: biases of experts, who were chosen so often). The mean is exact where the tally is
 * whole numbers. *clip only says whether anything changes. */
void optimizer_balance(double step, int64_t n, const float *clip, const float *tally, float *p);

#endif
