#include "ir/param_index.h"

#include <stdlib.h>
#include <string.h>

static int by_block_and_name(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    int order = strcmp(node_string(a, ATTR_name), node_string(b, ATTR_name));
    return order ? order : a->id - b->id;
}

ParamIndex param_index_create(const Graph *graph, Arena *arena) {
    ParamIndex index = {.params = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1)};
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_PARAM) index.params[index.count++] = graph->nodes[n];
    }
    qsort(index.params, (size_t)index.count, sizeof(*index.params), by_block_and_name);
    return index;
}

/* The first that is not before (block, name): of several of one name the first in the graph. */
const Node *param_index_find(const ParamIndex *index, int block, const char *name) {
    int low = 0, high = index->count;
    while (low < high) {
        int middle = (low + high) / 2;
        const Node *param = index->params[middle];
        bool before = param->block != block ? param->block < block
                                            : strcmp(node_string(param, ATTR_name), name) < 0;
        if (before) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == index->count) return NULL;
    const Node *found = index->params[low];
    bool same = found->block == block && strcmp(node_string(found, ATTR_name), name) == 0;
    return same ? found : NULL;
}

int leaf_chunk(const Node *leaf) {
    return leaf->block == NO_BLOCK ? 0 : leaf->chunk;
}

bool leaf_is_of(const Node *leaf, const Node *param) {
    return leaf->block == param->block && leaf_chunk(leaf) == leaf_chunk(param) &&
           strcmp(node_string(leaf, ATTR_of), node_string(param, ATTR_name)) == 0;
}
