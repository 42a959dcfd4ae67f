/* The pieces of cross-entropy over a last axis that may be sharded and padded.
 *
 * x, logits [rows, n_local]: one rank's columns axis_offset .. of the whole axis. Only the first
 * n_valid columns exist; the rest, up to n_local, are padding: never read, gradients zero.
 * loss = lse - logit[label], with lse combined over ranks by the caller   (Shoeybi et al. 2019).
 * x, logits and dlogits are of `dtype`: f32, bf16 or f16; all else is f32.
 * Results do not depend on the number of threads.
 */
#ifndef RUNTIME_CPU_SOFTMAX_H
#define RUNTIME_CPU_SOFTMAX_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

/* lse[row] = ln sum over the valid columns of e^x; -inf where there are none. */
void softmax_logsumexp(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid, const void *x,
                       float *lse);

/* out[row] = x[row][index[row] - axis_offset], 0 where that column is not valid here. */
void softmax_pick(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid, int64_t axis_offset,
                  const void *x, const int32_t *index, float *out);

/* dlogits = e^(logit - lse) (dloss[row] + dlse[row]) - [column is the label] dloss[row]; padding
 * columns 0. lse is that of the whole axis. dlse may be NULL: 0. dlogits may be logits. */
void softmax_cross_entropy_grad(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid,
                                int64_t axis_offset, const void *logits, const int32_t *labels,
                                const float *lse, const float *dloss, const float *dlse,
                                void *dlogits);

#endif
