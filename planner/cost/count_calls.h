/* Count calls: how many calls a rank's program would emit for each part of the model, and so how
 * many nodes its captured graph would have, from a lowered program of one block per kind.
 */
#ifndef PLANNER_COST_COUNT_CALLS_H
#define PLANNER_COST_COUNT_CALLS_H

#include "planner/cost/model_cost.h"

typedef struct CalledGraph {
    const Graph *graph;
    SegmentCost **segments; /* by node id: the part it belongs to; leaves sit where they are read */
    const bool *tied;       /* by node id: a parameter of both ends, and what belongs to it */
} CalledGraph;

/* A parameter of experts, or what belongs to one, that other ranks have alike than the rest: each
 * rank of e has others of its elements, and each of c its gradient for whole sequences. */
bool is_expert_leaf(const Graph *graph, const Node *leaf);

/* Adds to micro_calls and update_calls of `out` and its parts. `divided`: the model lowered with
 * ZeRO-1 over d; NULL: such a plan cannot be. */
void count_calls(const CalledGraph *whole, const CalledGraph *divided, LayoutCost *out,
                 Arena *work);

#endif
