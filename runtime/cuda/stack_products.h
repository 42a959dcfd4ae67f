/* The gradient that comes back through q, k and v is one product: [dq dk dv] with their weights one
 * below the other, summed in f32, in the place of three that each add to what the last has rounded
 * and stored, over a third as many numbers.
 *
 * A plan lays out dq, dk and dv one behind the other (join_gradients in plan_memory.c). Here their
 * rows go side by side into the same bytes: what makes them (the gradient of attention, cuDNN's or
 * own) leaves a row of all three from a position to the next, and what else reads them, gradients
 * of weights and of biases, follows. So does what turns some of them in their places, rotary, by
 * one launch for neighbours (stack_rotary.h). The weights are copied into a piece of the workspace
 * before each such product (program_workspace): some megabytes, next to the reads and writes of
 * activations that it saves.
 *
 * Left as they are: products of fewer rows than that is worth, whose operands lie otherwise, that
 * are anything but added up, or that a library could not leave so; gradients that are read by what
 * has no way to follow, in another task, that are turned after their product has read them, or
 * whose memory is used again before all have read it.
 * Sums differ in their rounding from three products' (they are better), but do not depend on the
 * layout more than those.
 *
 * To be called after sums and products were joined, before messages are added and commands ordered.
 * New arguments and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_STACK_PRODUCTS_H
#define RUNTIME_CUDA_STACK_PRODUCTS_H

#include "runtime/cuda/bind.h"

/* For the weights; of a rank, used by one product at a time. */
typedef struct StackRoom {
    void *at;
    int64_t bytes;
} StackRoom;

/* `check`: what it may lay out; NULL: all. Returns how many products are gone. */
int cuda_stack_products(CommandList *list, const Graph *graph, StackRoom room,
                        const AttentionCheck *check, Arena *arena);

#endif
