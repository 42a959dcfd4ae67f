/* Products of bf16 or f16 on a CPU whose matrix library has none: blocks of the operands are
 * widened into a workspace of bounded size and multiplied in f32 (gemm_f32). The sums are f32
 * throughout: partial sums over blocks of k stay in f32, a result in 16 bits is rounded once.
 */
#ifndef RUNTIME_CPU_GEMM_WIDENED_H
#define RUNTIME_CPU_GEMM_WIDENED_H

#include "runtime/cpu/gemm.h"

/* What op_workspace_bytes reserves for such a product: at most 2.5 MiB. */
size_t gemm_widened_workspace_bytes(const GemmShape *shape);
bool gemm_widened(const GemmShape *shape, const uint16_t *a, const uint16_t *b, void *c,
                  float *workspace);

#endif
