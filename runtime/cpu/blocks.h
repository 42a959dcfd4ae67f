/* Weights in blocks of 4 or 8 bits (ir/blocks.h), from and to f32, bf16 or f16; and arrays of any
 * dtype that a parameter or an optimizer's state may be kept in.
 *
 * Counts are whole blocks. Moments in 8 bits are rounded to nearest here (moments.h). No sums: any
 * number of threads gives the same bits.
 */
#ifndef RUNTIME_CPU_BLOCKS_H
#define RUNTIME_CPU_BLOCKS_H

#include "ir/type.h"

/* n numbers of nf4 or int8 as `out_dtype`, each times its block's scale in f32, rounded once. */
void blocks_widen(DType dtype, const void *blocks, DType out_dtype, void *out, int64_t n);

/* A parameter's numbers from `at` on as f32, and f32 as the numbers of a parameter. `numbers` has
 * the address of number 0; `at` and n are whole blocks, where the dtype has such. */
void weights_load(DType dtype, const void *numbers, int64_t at, float *out, int64_t n);
void weights_store(DType dtype, const float *from, void *numbers, int64_t n);

#endif
