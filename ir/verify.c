/* The graph's invariants, checked again by inference: what every pass must leave true. */
#include "ir/op.h"

#include <string.h>

/* Each mesh axis divides at most one dimension, is not partial at once, and is not larger than it.
 */
static bool check_sharding(const Graph *graph, const Node *node, int output, Diag *diag) {
    const Type *type = &node->types[output];
    const Sharding *sharding = &node->shardings[output];
    unsigned seen = sharding->partial;
    if (sharding->partial >> N_MESH_AXES || sharding->reduce > REDUCE_LSE) {
        diag_error(diag, node->loc, "%%%d %s: partial over an unknown mesh axis", node->id,
                   OPS[node->op].name);
        return false;
    }
    for (int i = 0; i < type->rank; i++) {
        int mesh = sharding->mesh[i];
        if (mesh < 0) continue;
        if (mesh >= N_MESH_AXES || seen >> mesh & 1) {
            diag_error(diag, node->loc, "%%%d %s: mesh axis '%s' is used twice", node->id,
                       OPS[node->op].name, mesh_axis_name(mesh));
            return false;
        }
        seen |= 1u << mesh;
        if (graph->mesh.size[mesh] > type->dims[i]) {
            diag_error(diag, node->loc, "%%%d %s: axis '%s' is smaller than its %d shards",
                       node->id, OPS[node->op].name, graph->axes.names[type->axes[i]],
                       graph->mesh.size[mesh]);
            return false;
        }
    }
    return true;
}

static bool check_node(const Graph *graph, Graph *scratch, const Node *node, Diag *diag) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        if (from->id < node->id && from->id < graph->n_nodes && graph->nodes[from->id] == from) {
            continue;
        }
        diag_error(diag, node->loc, "%%%d %s: operand %d is not defined before it", node->id,
                   OPS[node->op].name, i + 1);
        return false;
    }
    Node again = *node;
    if (!OPS[node->op].infer(scratch, &again, diag)) return false;
    for (int i = 0; i < node->n_outputs; i++) {
        if (type_equal(&again.types[i], &node->types[i])) continue;
        diag_error(diag, node->loc, "%%%d %s: result %d has another type than inference gives",
                   node->id, OPS[node->op].name, i);
        return false;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (!check_sharding(graph, node, i, diag)) return false;
    }
    return true;
}

bool graph_verify(const Graph *graph, Diag *diag) {
    int errors = diag_error_count(diag);
    Graph scratch = *graph;
    int phase = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->id != n) BUG("node %d is numbered %d", n, node->id);
        if ((int)node->phase < phase) {
            diag_error(diag, node->loc, "%%%d %s: runs in an earlier phase than the node before it",
                       n, OPS[node->op].name);
        }
        phase = (int)node->phase;
        check_node(graph, &scratch, node, diag);
    }
    return diag_error_count(diag) == errors;
}
