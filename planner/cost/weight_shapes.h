/* Shapes of the weights that ZeRO divides, which tell how many ranks divide an axis of them. One of
 * which they divide none stays whole on every rank (shard_update.c). */
#ifndef PLANNER_COST_WEIGHT_SHAPES_H
#define PLANNER_COST_WEIGHT_SHAPES_H

#include "ir/graph.h"

/* Distinct ones of a model; of more, all others count as divided. */
enum { WEIGHT_SHAPES = 16 };

typedef struct WeightShape {
    int n_axes; /* that nothing else divides */
    int64_t dims[MAX_RANK];
    int64_t multiple[MAX_RANK]; /* what a rank has is filled up to: vocabularies; 0: positions, to
                                 * which nothing is added */
    bool leads[MAX_RANK];       /* all axes before it have a length of 1 on a rank */
    int64_t elements;           /* of one rank, but for ZeRO's */
    bool is_expert;
} WeightShape;

typedef struct WeightShapes {
    int n;
    WeightShape of[WEIGHT_SHAPES];
} WeightShapes;

/* The parameter's, which is added where it is new; -1: there are too many. whole: no ranks divide
 * it. */
int weight_shapes_find(WeightShapes *shapes, const Graph *graph, const Node *param, bool is_expert,
                       bool whole);
/* What each of so many ranks has of a shape: 1 where they divide no axis of it. *out_packs: their
 * parts do not lie one behind the other, so that messages have to be packed (plan_workspace.c). */
double weight_shape_share(const WeightShape *shape, int n_ranks, bool *out_packs);

#endif
