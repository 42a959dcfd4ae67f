/* Gradients that are sums over rows (of biases, of norms' gains) go straight into their
 * accumulators: the small launch that copied or added each of them there is gone. Products do so by
 * the planner's fold_accumulate; these few numbers cost a launch each and nothing else, which in a
 * step of small micro-batches is what counts.
 *
 * An accumulate of the backward is folded where its share is made by reduce_sum, layernorm_grad or
 * rmsnorm_grad, in f32, and nothing else reads the share or touches the accumulator in between. The
 * bits are the same. A product that makes the sum (bias_grad.h) can set an accumulator, not add.
 *
 * To be called after cuda_fold_bias_gradients, on one rank's walk, before messages are added and
 * commands ordered. New arguments and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_ACCUMULATION_H
#define RUNTIME_CUDA_ACCUMULATION_H

#include "runtime/cuda/command.h"

/* Returns how many launches are gone. */
int cuda_fold_accumulations(CommandList *list, const Graph *graph, Arena *arena);

#endif
