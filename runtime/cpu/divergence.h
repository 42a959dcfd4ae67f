/* How far the softmax of s is from that of t along a last axis that may be sharded and padded
 * (ir/ops/divergence.c says what is computed; runtime/cpu/softmax.h how rows lie).
 *
 * s, t [rows, n_local] are of `dtype`, all else f32; log-sum-exps are of the whole axis. Results do
 * not depend on the number of threads.
 */
#ifndef RUNTIME_CPU_DIVERGENCE_H
#define RUNTIME_CPU_DIVERGENCE_H

#include "ir/type.h"

#include <stdint.h>

typedef struct Divergence {
    DType dtype;
    int64_t rows, n_local, n_valid;
    float beta;
    const void *s, *t;
    const float *lse_s, *lse_t;
} Divergence;

/* Sums over the valid columns: the divergence, and what its gradient needs. */
void divergence_rows(const Divergence *d, float *value, float *needed);

/* ds, where the divergence of each row has the gradient dvalue; padding columns 0. `needed` is of
 * the whole axis. ds may be s or t. */
void divergence_grad(const Divergence *d, const float *needed, const float *dvalue, void *ds);

#endif
