/* Messages of weights and gradients over d within a task, which ZeRO-2 and 3 have. */
#ifndef PLANNER_PASSES_DATA_MESSAGES_H
#define PLANNER_PASSES_DATA_MESSAGES_H

#include "planner/passes/pass.h"

#include <limits.h>

/* Of a weight's shards, outside the update. */
bool data_is_gather(const Node *node);
/* A gradient's share on its way to its sum: the accumulate of a reduce_scatter's result. */
bool data_is_sum(const Node *node);

/* It goes together with the message before it; comes last of a message's attributes. */
void data_mark_joined(Node *node, Arena *arena);

/* Where a node comes in a new order: where node `at` was, by rank among those there; 0 is where it
 * was itself. */
typedef struct DataPlace {
    int at, rank, node;
} DataPlace;
enum { DATA_RANK_LEAF = INT_MIN / 2 }; /* before all else there */
/* By id: each where it is. */
DataPlace *data_places_create(const Graph *graph, Arena *arena);
static inline void data_place(DataPlace *places, int id, int at, int rank) {
    places[id].at = at;
    places[id].rank = rank;
}
/* The graph in that order, which operands allow; joined, by id: goes with the message before it.
 * The places are then sorted. NULL: reported. */
Graph *data_rearrange(const Graph *graph, DataPlace *places, const bool *joined, PassContext *ctx);

static inline bool data_same_task(const Node *a, const Node *b) {
    return a->phase == b->phase && a->chunk == b->chunk;
}

#endif
