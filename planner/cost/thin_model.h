/* Thin model: a forward graph with one block of each kind, or a chain with a few.
 *
 * Blocks are of one kind when their nodes are alike one by one: op, attributes, types, and operands
 * that come from the same place, relative to the block, and need gradients alike; and when others
 * read the same of them, and get gradients, or do not. The thin graph keeps the first block of each
 * kind, in order; what a dropped block made is taken from the kept one of its kind. It is a graph
 * like any other, but for being shorter: planning it says what each kind of block costs.
 */
#ifndef PLANNER_COST_THIN_MODEL_H
#define PLANNER_COST_THIN_MODEL_H

#include "ir/graph.h"

typedef struct ThinModel {
    Graph *graph;       /* blocks 0 .. n_kinds - 1; of a chain: 0 .. n_kept - 1 */
    int n_kinds;        /* 0: the model has no blocks */
    int *kind_of_block; /* [n_blocks] of the whole model */
    int n_kept, *kind_of_kept;
} ThinModel;

/* NULL: reported. */
ThinModel *thin_model(Arena *arena, const Graph *forward, int n_blocks, Diag *diag);

/* The model's first blocks, of runs of one kind no more than `run`, until each kind was behind all
 * that it is behind anywhere, and run - 2 more. Kinds have thin_model's numbers. */
ThinModel *thin_chain(Arena *arena, const Graph *forward, int n_blocks, int run, Diag *diag);

#endif
