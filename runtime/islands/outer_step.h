/* The outer step of DiLoCo (Douillard et al. 2023, algorithm 1; Charles et al. 2025): what islands
 * do with their weights when they meet.
 *
 *     delta = w - mean_i w_i                   the outer gradient; w: the weights of the last
 * meeting v'    = momentum v + delta w'    = w - lr (delta + momentum v')     Nesterov's momentum,
 * as torch.optim.SGD has it
 *
 * computed as mean + (1 - lr) delta - lr momentum v', so that lr 1 without momentum is the mean to
 * the bit. In f64 from weights and momentum in f32, each rounded once; means are of the islands in
 * their order, so that any number of threads gives the same bits.
 */
#ifndef RUNTIME_ISLANDS_OUTER_STEP_H
#define RUNTIME_ISLANDS_OUTER_STEP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct OuterRule {
    double lr, momentum;
} OuterRule;

/* What an island has brought: n weights in f32, or in bf16 how far they are from w. */
typedef struct OuterOffer {
    const float *weights;   /* NULL: */
    const uint16_t *deltas; /* bf16 */
} OuterOffer;

/* weights[n]: w -> w'. momentum[n]: v -> v'. out_moved, unless NULL: w' - w in bf16, and weights
 * become what outer_move makes of w and it: so all islands come to the same bits. Returns the norm
 * of delta. */
double outer_step(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t n,
                  float *weights, float *momentum, uint16_t *out_moved);

/* bf16 of weights - base, to nearest even. */
void outer_deltas(const float *weights, const float *base, int64_t n, uint16_t *out);
/* weights += moved, in f32. */
void outer_move(float *weights, const uint16_t *moved, int64_t n);

#endif
