/* Bias gradients: the sum of a product's right operand over the rows that the product sums over.
 *
 * In a backward pass dw += x' dy is followed or preceded by db = the sum of dy over the same rows.
 * cuBLASLt's BGRADA does both in one call, without accumulation: db is set, as by the launches of
 * reduce_sum, whose place the product then takes; what adds db to the micro-batches before stays
 * (reduce_sum's launches would do that, too: accumulation.h).
 *
 * The product moves up to where the sum stood, so it must find its operands there and disturb
 * nothing in between. It stays behind what makes a message's data: weight gradients are what such
 * messages overlap with.
 *
 * Whether a call does both faster than a product and a sum is not known without measuring. In bf16
 * cuBLASLt 13.1 has kernels that sum while they multiply for sm_80 only; elsewhere it runs those,
 * or launches a kernel that reads dy again. All that can be saved is that reading, some 150 / m of
 * the product's time on an H200 (m rows of dw; 600 TFLOP/s, 4 TB/s). So products are folded only
 * where `perilune tune` has found it to be faster and has written so into the plan. The other way
 * to do it, DGELU_BGRAD, stores sums in the product's dtype: bf16, where gradients are f32.
 *
 * To be called after cuda_fold_epilogues, before messages are added and commands ordered. Returns
 * how many launches are gone. New accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_BIAS_GRAD_H
#define RUNTIME_CUDA_BIAS_GRAD_H

#include "runtime/cuda/epilogue.h"

int cuda_fold_bias_gradients(CommandList *list, const EpilogueCheck *check, Arena *arena);

#endif
