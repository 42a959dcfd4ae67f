/* The outer step of DiLoCo (Douillard et al. 2023, algorithm 1; Charles et al. 2025): what islands
 * do with their weights when they meet.
 *
 *     delta = w - mean_i w_i                  the outer gradient; w: of the last meeting
 *     v'    = momentum v + delta
 *     w'    = w - lr (delta + momentum v')    Nesterov's momentum, as torch.optim.SGD has it
 *
 * computed as mean + (1 - lr) delta - lr momentum v', so that lr 1 without momentum is the mean to
 * the bit. In f64 from weights and momentum in f32, each rounded once; means are of the islands in
 * their order, so that any number of threads gives the same bits.
 */
#ifndef RUNTIME_ISLANDS_OUTER_STEP_H
#define RUNTIME_ISLANDS_OUTER_STEP_H

#include "ir/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct OuterRule {
    double lr, momentum;
} OuterRule;

/* What an island has brought: n weights, or how far they are from w in the dtype of distances. */
typedef struct OuterOffer {
    const float *weights; /* NULL: */
    const void *deltas;
} OuterOffer;

/* Of n weights: w and v, which become w' and v'. */
typedef struct OuterState {
    float *weights, *momentum;
    /* f32: weights travel. bf16, nf4 (ir/blocks.h): distances, as offers have them, and w' - w goes
     * to `moved` in that dtype; w' is what outer_move makes of w and it, so that all islands come
     * to the same bits. */
    DType dtype;
    void *moved;
    /* [n], or NULL: how far w' is from what it should be, which the next step makes up for (error
     * feedback: Seide et al. 2014, Karimireddy et al. 2019): of 4 bits, which are that far off. */
    float *residual;
} OuterState;

/* Returns the norm of delta. */
double outer_step(const OuterRule *rule, const OuterOffer *offers, int n_offers, int64_t n,
                  const OuterState *state);

/* Whether all n numbers of an offer are finite: of one that are not no mean would be. */
bool outer_offer_is_finite(DType dtype, const OuterOffer *offer, int64_t n);

/* Of n weights or distances on their way. */
size_t outer_bytes(DType dtype, int64_t n);
/* weights - base, to the nearest that dtype has. */
void outer_deltas(DType dtype, const float *weights, const float *base, int64_t n, void *out);
/* weights += moved, in f32. */
void outer_move(DType dtype, float *weights, const void *moved, int64_t n);

#endif
