/* Bytes of workspace by op, for cuda_workspace_bytes. They follow from local shapes alone, not from
 * the device. */
#ifndef RUNTIME_CUDA_WORKSPACE_H
#define RUNTIME_CUDA_WORKSPACE_H

#include "ir/op.h"

int64_t cuda_reduce_sum_workspace(const Node *node, const Type *inputs, const Type *outputs);
int64_t cuda_add_n_workspace(const Node *node, const Type *inputs, const Type *outputs);
int64_t cuda_sumsq_workspace(const Node *node, const Type *inputs, const Type *outputs);

#endif
