#include "ir/masters.h"

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

const Node *master_of_upper(const Graph *graph, const Node *upper) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && belongs(upper, node)) return node;
    }
    return NULL;
}
