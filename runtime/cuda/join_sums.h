/* Sums over rows of tensors that are alike become one launch each for their rows and their chunks:
 * the gradients of the biases of q, k and v are. A third of them fills a device for a third of the
 * time that beginning and ending it takes.
 *
 * Joined are sums over leading axes, of one task, in f32, that are alike in all but what they read
 * and write, and find these equally far apart in memory, where the first one's workspace has room
 * for all their chunks. They stand where the first stood: nothing before the others' places may
 * write what they read or touch what they write. The bits are the same.
 *
 * To be called after cuda_fold_accumulations and cuda_fold_norm_sums, before messages are added and
 * commands ordered. New arguments and accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_JOIN_SUMS_H
#define RUNTIME_CUDA_JOIN_SUMS_H

#include "runtime/cuda/command.h"

/* Returns how many launches are gone. */
int cuda_join_sums(CommandList *list, Arena *arena);

#endif
