/* What parameters, and what belongs to them, take on one rank of a lowered program: trained ones,
 * frozen ones, and of either those that e divides.
 */
#ifndef PLANNER_COST_COUNT_LEAVES_H
#define PLANNER_COST_COUNT_LEAVES_H

#include "ir/param_index.h"
#include "planner/cost/model_cost.h"

typedef struct LeafCounter {
    const Graph *graph;
    ParamIndex params;
    int64_t least;           /* elements of the smallest parameter that ZeRO divides */
    bool has_copies;         /* in 16 bits, of parameters */
    const bool *has_copy;    /* by a parameter's id: of this one */
    WeightShapes *shapes;    /* the layout's */
    const bool *may_offload; /* by id (planner/plan/offload.h) */
    int offload;             /* percent of these */
} LeafCounter;

LeafCounter leaf_counter_create(const Graph *graph, WeightShapes *shapes, int offload, Arena *work);

/* Adds a parameter, copy, state or accumulator to a segment. */
void leaf_counter_add(const LeafCounter *by, const Node *node, SegmentCost *segment);

#endif
