/* Gradients that meet behind a norm: the launch that adds a norm's gradient to the one that came
 * past the norm (a residual connection's) is gone, and the norm's own launch adds it before it
 * stores its result: one tensor less is written, one less is read.
 *
 * An add of two operands is folded where one is the gradient by layernorm_grad's or rmsnorm_grad's
 * input, which nothing else reads, and the other is there before the norm's launches. Sums are then
 * rounded to bf16 or f16 once instead of twice; in f32 the bits are the same. Values stay where the
 * plan has put them; where the sum's memory meets what the norm still reads, nothing is folded.
 *
 * To be called on one rank's walk, before messages are added and commands ordered. New arguments
 * and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_NORM_ADDEND_H
#define RUNTIME_CUDA_NORM_ADDEND_H

#include "runtime/cuda/command.h"

/* Returns how many launches are gone. */
int cuda_fold_norm_addends(CommandList *list, const Graph *graph, Arena *arena);

#endif
