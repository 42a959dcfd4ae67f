/* Optimizers' states in 8 bits (ir/moments.h), from and to f32.
 *
 * `blocks` has the address of number 0; `first` and n are whole blocks, dtype is dyn8 or dyn8u.
 * Blocks know nothing of each other: any number of threads gives the same bits.
 */
#ifndef RUNTIME_CPU_MOMENTS_H
#define RUNTIME_CPU_MOMENTS_H

#include "ir/type.h"

void moments_load(DType dtype, const void *blocks, int64_t first, float *out, int64_t n);
/* Rounded up where what lies above the lower is at least 1 - threshold / 2^16 of a code;
 * NEAREST_THRESHOLD: to nearest. Numbers of dyn8u are at least 0, and only 0 becomes 0. */
void moments_store(DType dtype, const float *from, void *blocks, int64_t first, int64_t n,
                   uint32_t threshold);

#endif
