/* The rows of cuda_workspace_bytes (bind.h), each beside its binder. Types are local. */
#ifndef RUNTIME_CUDA_WORKSPACE_H
#define RUNTIME_CUDA_WORKSPACE_H

#include "ir/op.h"

int64_t cuda_attention_grad_workspace_bytes(const Node *node, const Type *inputs,
                                            const Type *outputs);
int64_t cuda_cache_attention_workspace_bytes(const Node *node, const Type *inputs,
                                             const Type *outputs);
int64_t cuda_linear_attention_workspace_bytes(const Node *node, const Type *inputs,
                                              const Type *outputs);
int64_t cuda_linear_attention_grad_workspace_bytes(const Node *node, const Type *inputs,
                                                   const Type *outputs);
int64_t cuda_convolve_grad_workspace_bytes(const Node *node, const Type *inputs,
                                           const Type *outputs);
int64_t cuda_norm_grad_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs);
int64_t cuda_embedding_grad_workspace_bytes(const Node *node, const Type *inputs,
                                            const Type *outputs);
int64_t cuda_reduce_sum_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs);
int64_t cuda_lamb_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs);
int64_t cuda_sumsq_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs);

#endif
