/* Gradients of biases behind a layernorm: the sum over rows of what a layernorm's gradient stores
 * becomes a third sum of the norm's own launches, beside those of its gain and bias. In a block
 * that is the gradient of the bias that was added before the norm, of attention's and of the
 * feed-forward's output: the tensor is not read once more, and two launches are gone.
 *
 * Folded is a sum in f32 over all rows, whose rows the norm's launch takes in one turn, where
 * nothing writes to the tensor in between and the sum's memory is left alone until then. Summed is
 * what the norm computes, before it is rounded to 16 bits. A norm makes one such sum.
 *
 * To be called after cuda_fold_norm_addends, cuda_fold_bias_gradients and cuda_fold_accumulations,
 * before messages are added and commands ordered. New arguments and accesses are allocated in
 * `arena`.
 */
#ifndef RUNTIME_CUDA_NORM_SUM_H
#define RUNTIME_CUDA_NORM_SUM_H

#include "runtime/cuda/command.h"

/* Returns how many launches are gone. */
int cuda_fold_norm_sums(CommandList *list, const Graph *graph, Arena *arena);

#endif
