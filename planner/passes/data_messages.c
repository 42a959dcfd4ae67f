#include "planner/passes/data_messages.h"

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
