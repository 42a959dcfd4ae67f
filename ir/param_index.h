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

#endif
