/* What a rank is doing, in words: for reports of lost and stuck ranks. */
#ifndef RUNTIME_DESCRIBE_CALL_H
#define RUNTIME_DESCRIBE_CALL_H

#include "runtime/executor.h"

/* "B0.5 all_reduce of blocks.1.mlp.w1, models/gpt.lua:42": task, chunk and micro-batch, the op, for
 * messages the parameter that they carry or that is summed by them, and the Lua line. Cut to
 * `size`. Without a node: "F0.5 input". */
void describe_call(const RankContext *rank, const Node *node, TaskKind task, int chunk, int micro,
                   char *out, size_t size);

#endif
