/* Shared weights: parameters of no block that blocks read. A stage that holds any reader of one has
 * a copy of it, with gradient and state, whichever and however many of its blocks read it.
 *
 * Parameters with the same readers are one SharedWeight. What before and after alone read is no
 * concern of this: LayoutCost.tied.
 */
#ifndef PLANNER_COST_SHARED_WEIGHTS_H
#define PLANNER_COST_SHARED_WEIGHTS_H

#include "planner/cost/model_cost.h"
#include "planner/plan/path.h"

/* Who reads a parameter: parts of the model. */
typedef struct WeightReaders {
    bool before, after;
    int n_kinds, capacity;
    int *kinds; /* of blocks, each once */
} WeightReaders;

/* Where the leaves of no block of a lowered program of one block per kind belong. */
typedef struct LeafPlaces {
    bool *before; /* by node id: before or a block reads it, else after */
    bool *tied;   /* before and after both read it, and no block */
    int *shared;  /* what lasts across steps and is read by blocks: index into `weights`; else -1 */
    int n_weights, capacity;
    WeightReaders *weights;
} LeafPlaces;

/* `segment`: by node id, of nodes that are no leaves: SEGMENT_*, or the kind of block. */
enum { SEGMENT_BEFORE = -2, SEGMENT_AFTER = -1 };
LeafPlaces find_leaf_places(const Graph *graph, const int *segment, Arena *arena);

/* The costs of the weights, still empty. */
SharedWeight *make_shared_weights(const LeafPlaces *places, const ModelCosts *costs, Arena *arena);

/* out_chunk[stage]: the first of the stage's global chunks that reads the weight, which completes
 * its gradient last and counts its costs; -1: none reads it. Returns how many stages do. */
int find_weight_chunks(const SharedWeight *weight, const int *split, Path path, int n_chunks,
                       int *out_chunk);

#endif
