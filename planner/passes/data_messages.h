/* Messages of weights and gradients over d within a task, which ZeRO-2 and 3 have. */
#ifndef PLANNER_PASSES_DATA_MESSAGES_H
#define PLANNER_PASSES_DATA_MESSAGES_H

#include "planner/passes/pass.h"

/* Of a weight's shards, outside the update. */
bool data_is_gather(const Node *node);
/* A gradient's share on its way to its sum: the accumulate of a reduce_scatter's result. */
bool data_is_sum(const Node *node);

/* It goes together with the message before it; comes last of a message's attributes. */
void data_mark_joined(Node *node, Arena *arena);

static inline bool data_same_task(const Node *a, const Node *b) {
    return a->phase == b->phase && a->chunk == b->chunk;
}

#endif
