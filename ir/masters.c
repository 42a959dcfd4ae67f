#include "ir/masters.h"

#include <stdlib.h>
#include <string.h>

static bool belongs(const Node *upper, const Node *param) {
    return upper->block == param->block && upper->chunk == param->chunk &&
           strcmp(node_string(upper, ATTR_of), node_string(param, ATTR_name)) == 0;
}

const Node *master_upper(const Graph *graph, const Node *param) {
    for (int n = 0; n < graph->n_nodes && param->op == OP_PARAM; n++) {
        const Node *node = graph->nodes[n];
        if (node_is_upper(node) && belongs(node, param)) return node;
    }
    return NULL;
}

static int compare(const Node *a, const char *a_name, const Node *b, const char *b_name) {
    if (a->chunk != b->chunk) return a->chunk < b->chunk ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    return strcmp(a_name, b_name);
}

static int by_place_and_name(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    int order = compare(a, node_string(a, ATTR_name), b, node_string(b, ATTR_name));
    return order ? order : a->id - b->id;
}

/* The first of them whose name, block and chunk the upper half has. */
static const Node *find_master(const Node *const *params, int count, const Node *upper) {
    const char *of = node_string(upper, ATTR_of);
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        const Node *param = params[middle];
        if (compare(param, node_string(param, ATTR_name), upper, of) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && belongs(upper, params[low]) ? params[low] : NULL;
}

const Node **master_pairs(const Graph *graph, Arena *arena) {
    const Node **pairs = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1);
    const Node **params = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1);
    int count = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_PARAM) params[count++] = graph->nodes[n];
    }
    qsort(params, (size_t)count, sizeof(*params), by_place_and_name);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *upper = graph->nodes[n];
        if (!node_is_upper(upper)) continue;
        const Node *param = pairs[n] = find_master(params, count, upper);
        if (param && !pairs[param->id]) pairs[param->id] = upper;
    }
    return pairs;
}
