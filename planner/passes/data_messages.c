#include "planner/passes/data_messages.h"

#include <stdlib.h>
#include <string.h>

static bool is_over_data(const Node *node) {
    const char *name = node_string(node, ATTR_mesh);
    int mesh = mesh_axis_find(name, (int)strlen(name));
    return node->phase != PHASE_UPDATE && mesh_is_replicas(mesh);
}

bool data_is_gather(const Node *node) {
    return node->op == OP_ALL_GATHER && is_over_data(node) &&
           OPS[node->inputs[0].node->op].flags & PERSISTENT;
}

void data_mark_joined(Node *node, Arena *arena) {
    Attr *attrs = ARENA_ARRAY(arena, Attr, node->n_attrs + 1);
    memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof(*attrs));
    attrs[node->n_attrs++] = attr_int(ATTR_joined, 1);
    node->attrs = attrs;
}

bool data_is_sum(const Node *node) {
    return node->op == OP_ACCUMULATE && node->inputs[1].node->op == OP_REDUCE_SCATTER &&
           node->inputs[1].node->phase == node->phase && is_over_data(node->inputs[1].node);
}

DataPlace *data_places_create(const Graph *graph, Arena *arena) {
    DataPlace *places = ARENA_ARRAY(arena, DataPlace, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) places[n] = (DataPlace){.at = n, .node = n};
    return places;
}

static int by_place(const void *left, const void *right) {
    const DataPlace *a = left, *b = right;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1) : a->node - b->node;
}

Graph *data_rearrange(const Graph *graph, DataPlace *places, const bool *joined, PassContext *ctx) {
    Graph *out = graph_create_like(graph, ctx->arena);
    ValueMap map = value_map_create(graph, ctx->arena);
    qsort(places, (size_t)graph->n_nodes, sizeof(*places), by_place);
    for (int k = 0; k < graph->n_nodes; k++) {
        const Node *node = graph->nodes[places[k].node];
        Node *copy = value_map_copy(&map, node, out, ctx->diag);
        if (!copy) return NULL;
        if (joined[node->id]) data_mark_joined(copy, ctx->arena);
    }
    return out;
}
