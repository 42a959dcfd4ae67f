/* Products of one operand with several others become one batched product: q, k and v are, and so
 * are the gradients of their weights. One product of a third of the size leaves part of a device's
 * multiprocessors without work in its last round of tiles; three at once do so once.
 *
 * Joined are products of one task that read the same left operand, are alike in everything but
 * their right operand, result and bias, and find these equally far apart in memory, as a plan lays
 * out parameters, accumulators and what lives equally long. They stand where the first stood:
 * nothing before the others' places may write what they read or touch what they write. Those that
 * fill a device by themselves are left alone. The bits stay the same as far as the library's
 * choice of an algorithm does.
 *
 * To be called after cuda_fold_epilogues and cuda_fold_accumulations, before messages are added and
 * commands ordered. New accesses are allocated in `arena`.
 */
#ifndef RUNTIME_CUDA_JOIN_PRODUCTS_H
#define RUNTIME_CUDA_JOIN_PRODUCTS_H

#include "runtime/cuda/epilogue.h"

/* Returns how many products are gone. */
int cuda_join_products(CommandList *list, const EpilogueCheck *check, Arena *arena);

#endif
