/* Reductions of members' parts. */
#ifndef RUNTIME_COMM_COMM_REDUCE_H
#define RUNTIME_COMM_COMM_REDUCE_H

#include "ir/type.h"

#include <stddef.h>

/* out[i] = in[0][i], in[1][i], ..., in[n-1][i] joined in that order in f32 (log-sum-exp: in f64)
 * and rounded once: the same bits however `count` elements are cut into calls. f32, bf16 or f16.
 * `out` may be one of the inputs. */
void comm_reduce(ReduceKind kind, DType dtype, const void *const *in, int n, size_t count,
                 void *out);

#endif
