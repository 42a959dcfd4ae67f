/* Normalisation over the last axis. x, y and their gradients are [rows, n]; statistics are kept per
 * row in f32 for the gradient. x, y and their gradients are of `dtype`: f32, bf16 or f16; all else
 * is f32. Row sums: f32 over tiles, f64 across. Results do not depend on the number of threads. y
 * may be x (dx may be dy): every row is read before it is written.
 *
 * Gain and bias gradients sum over rows in fixed groups, whose partial sums live in `workspace`:
 * norm_backward_workspace_bytes(rows, n) bytes, contents irrelevant before and after.
 */
#ifndef RUNTIME_CPU_NORM_H
#define RUNTIME_CPU_NORM_H

#include "ir/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = (x - mean) inv_std gain + bias, inv_std = 1 / sqrt(var + eps), var over n (not n - 1)
 *                                                                  (Ba, Kiros & Hinton 2016)
 * gain, bias [n]; mean, inv_std [rows]. */
void layernorm_forward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                       const float *bias, float eps, void *y, float *mean, float *inv_std);

/* Overwrites dx [rows, n], dgain [n], dbias [n]. */
void layernorm_backward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                        const float *mean, const float *inv_std, const void *dy, void *dx,
                        float *dgain, float *dbias, float *workspace);

/* y = x inv_rms gain, inv_rms = 1 / sqrt(mean(x^2) + eps)         (Zhang & Sennrich 2019) */
void rmsnorm_forward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                     float eps, void *y, float *inv_rms);

void rmsnorm_backward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                      const float *inv_rms, const void *dy, void *dx, float *dgain,
                      float *workspace);

size_t norm_backward_workspace_bytes(int64_t rows, int64_t n);

#endif
