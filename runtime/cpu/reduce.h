/* Reductions and layout changes of contiguous tensors of up to REDUCE_MAX_DIMS dimensions.
 *
 * Sums run in f32 over short tiles and in f64 across them, in an order that depends on the shape
 * alone: not on the number of threads.
 */
#ifndef RUNTIME_CPU_REDUCE_H
#define RUNTIME_CPU_REDUCE_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

#define REDUCE_MAX_DIMS 8

/* Sums x [dims] over the dimensions marked in `reduced`; out has the others, in order. With
 * `accumulate` the sums are added to out. An empty sum is 0. out may not overlap x.
 * Of f32, bf16 or f16, x_dtype and out_dtype; what is accumulated is f32. */
void reduce_sum(int n_dims, const int64_t *dims, const bool *reduced, const void *x, DType x_dtype,
                bool accumulate, void *out, DType out_dtype);

/* *out = sum of x[i]^2; x is f32, bf16 or f16. */
void reduce_sum_squares(const void *x, DType dtype, int64_t n, float *out);

/* out[j] = the largest of x[i, j], x f32 [n_rows, width]; with `accumulate` of out[j], too.
 * Not-a-number is larger than any number. */
void reduce_largest(int64_t n_rows, int64_t width, const float *x, bool accumulate, float *out);

/* The first i where x[i] is infinite or NaN, or -1; x is f32, bf16 or f16. */
int64_t reduce_first_nonfinite(const void *x, DType dtype, int64_t n);

/* out[i_perm[0], i_perm[1], ..] = x[i_0, i_1, ..]: dimension d of out is dimension perm[d] of x,
 * whose sizes are `dims`. They are of `dtype`, whatever has 4 bytes or 2. out may not overlap x. */
void reduce_permute(int n_dims, const int64_t *dims, const int *perm, DType dtype, const void *x,
                    void *out);

#endif
