/* Parameters of a graph by block and name: which one the `of` of a state, an accumulator or a copy
 * means. Names are of one block; '#' stands for its number. */
#ifndef IR_PARAM_INDEX_H
#define IR_PARAM_INDEX_H

#include "ir/graph.h"

typedef struct ParamIndex {
    int count;
    const Node **params; /* by block and name */
} ParamIndex;

ParamIndex param_index_create(const Graph *graph, Arena *arena);
/* NULL: there is none. */
const Node *param_index_find(const ParamIndex *index, int block, const char *name);

/* In a stage's program each chunk has blocks of its own; what belongs to no block is there once for
 * all chunks, each leaf in the chunk that reads it first. */
int leaf_chunk(const Node *leaf);
/* Does a state, an accumulator or a copy belong to the parameter? */
bool leaf_is_of(const Node *leaf, const Node *param);

#endif
