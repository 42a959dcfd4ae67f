/* Linear attention by chunks on tensor cores: what bind_state.c leaves to bind_chunk.c. */
#ifndef RUNTIME_CUDA_BIND_CHUNK_H
#define RUNTIME_CUDA_BIND_CHUNK_H

#include "runtime/cuda/bind.h"

/* Of linear attention or its gradient, where linear_attention_by_chunks(node, local operands). */
bool cuda_bind_by_chunks(Binding *b);
int64_t cuda_chunk_workspace_bytes(const Node *node, const Type *inputs);

/* LINEAR_ATTENTION_PART_BYTES, less in tests. */
extern int64_t cuda_chunk_part_bytes;

#endif
