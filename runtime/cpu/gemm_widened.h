/* Products of bf16, f16 or fp8 on a CPU whose matrix library has none: blocks of the operands are
 * widened into a workspace of bounded size and multiplied in f32 (gemm_f32). The sums are f32
 * throughout: partial sums over blocks of k stay in f32, a result in 16 bits is rounded once.
 */
#ifndef RUNTIME_CPU_GEMM_WIDENED_H
#define RUNTIME_CPU_GEMM_WIDENED_H

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/quantize.h"

/* What op_workspace_bytes reserves for such a product: at most 2.5 MiB. */
size_t gemm_widened_workspace_bytes(const GemmShape *shape);
bool gemm_widened(const GemmShape *shape, const uint16_t *a, const uint16_t *b, void *c,
                  float *workspace);

/* op(A) is [m, k] and B [n, k], both fp8 with the scales of blocks along k: not transposed and
 * transposed, batch 1. What is multiplied is exact, as bf16 would be. */
typedef struct ScaledFactor {
    BlockLayout blocks;
    const uint8_t *values;
    const float *scales;
} ScaledFactor;
bool gemm_scaled(const GemmShape *shape, const ScaledFactor *a, const ScaledFactor *b, void *c,
                 float *workspace);

#endif
