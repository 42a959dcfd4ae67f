#include "planner/cost/count_calls.h"

#include "planner/plan/plan_library.h"

#include <string.h>

static bool is_along(const Node *node, OpKind op, int mesh_axis) {
    const char *axis = node_string(node, ATTR_mesh);
    return node->op == op && mesh_axis_find(axis, (int)strlen(axis)) == mesh_axis;
}

/* By node id, for what gradients and updates are made of: the leaf of the parameter that they are
 * about. NULL: of none, or, in the update, of all, as the norm is. */
static const Node **find_leaves(const Graph *graph, Arena *work) {
    const Node **leaves = ARENA_ARRAY(work, const Node *, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (OPS[node->op].flags & PERSISTENT) leaves[n] = node;
        for (int i = 0; i < node->n_inputs && node->phase != PHASE_UPDATE; i++) {
            const Node *from = node->inputs[i].node; /* products add straight into accumulators */
            bool adds = leaves[from->id] && leaves[from->id]->op == OP_ACCUMULATOR;
            if (adds) leaves[n] = leaves[from->id];
        }
        if (node->phase != PHASE_UPDATE || node->n_inputs == 0) continue;
        const Node *first = node->inputs[0].node;
        bool norm = first->op == OP_SUMSQ && first->inputs[0].node->op != OP_MUON_MOMENTUM;
        if (!norm) leaves[n] = leaves[first->id];
    }
    return leaves;
}

/* Adds one call of the update: to the part that has its parameter, on both ends where that is tied,
 * or to every stage's. */
static void add_update(const CalledGraph *of, const Node *node, const Node *leaf, UpdateKind kind,
                       LayoutCost *out) {
    if (node->block == NO_BLOCK && !leaf) {
        out->update_calls[kind]++;
        return;
    }
    of->segments[leaf ? leaf->id : node->id]->update_calls[kind]++;
    if (!leaf || !of->tied[leaf->id]) return;
    out->after.update_calls[kind]++; /* segments said before */
    out->tied.update_calls[kind]++;
}

/* With replicas it is the same, and a message of each shard over them. */
static void add_divided(const CalledGraph *of, const Node *node, const Node *leaf,
                        LayoutCost *out) {
    add_update(of, node, leaf, UPDATE_DIVIDED, out);
    add_update(of, node, leaf, UPDATE_REPLICATED, out);
}

/* Counted besides, since sums over t go together. */
static void add_tensor_sum(const CalledGraph *of, const Node *leaf, LayoutCost *out) {
    of->segments[leaf->id]->n_tensor++;
    if (!of->tied[leaf->id]) return;
    out->after.n_tensor++;
    out->tied.n_tensor++;
}

static bool is_update_call(const Node *node) {
    return node->phase == PHASE_UPDATE && node_is_called(node);
}

bool is_expert_leaf(const Graph *graph, const Node *leaf) {
    unsigned axes = 0;
    bool of_experts = false;
    int experts = axis_find(&graph->axes, "experts", 7);
    for (int i = 0; i < leaf->types[0].rank; i++) {
        int mesh = leaf->shardings[0].mesh[i];
        if (!mesh_is_replicas(mesh)) axes |= mesh_axes(&graph->mesh, mesh);
        of_experts |= experts >= 0 && leaf->types[0].axes[i] == experts;
    }
    return axes >> MESH_E & 1 || (graph->mesh.size[MESH_C] > 1 && of_experts);
}

static void count_update(const CalledGraph *of, bool has_divided, LayoutCost *out, Arena *work) {
    const Node **leaves = find_leaves(of->graph, work);
    for (int n = 0; n < of->graph->n_nodes; n++) {
        const Node *node = of->graph->nodes[n], *leaf = leaves[n];
        /* With c and e the plan that is counted has a message of every gradient already, but for
         * those of experts. */
        bool summed = (out->c > 1 || out->e > 1) && !is_expert_leaf(of->graph, node);
        bool gradient = node->op == OP_ACCUMULATOR && node_string(node, ATTR_of)[0];
        if (gradient) add_update(of, node, leaf, UPDATE_REPLICATED, out); /* its message over r */
        if (gradient && !summed) {
            add_update(of, node, leaf, UPDATE_REDUCED, out); /* its message over d */
            if (!has_divided) add_divided(of, node, leaf, out);
        }
        if (!is_update_call(node)) continue;
        add_update(of, node, leaf, UPDATE_ALONE, out);
        add_update(of, node, leaf, UPDATE_REDUCED, out);
        /* Which gradients are partial over t depends on sequence parallelism. */
        bool partial = leaf && is_along(node, OP_ALL_REDUCE, MESH_T);
        if (!has_divided || partial) add_divided(of, node, leaf, out);
        if (partial) add_tensor_sum(of, leaf, out);
    }
}

static void count_divided_update(const CalledGraph *of, LayoutCost *out, Arena *work) {
    const Node **leaves = find_leaves(of->graph, work);
    for (int n = 0; n < of->graph->n_nodes; n++) {
        const Node *node = of->graph->nodes[n], *leaf = leaves[n];
        if (!is_update_call(node) || (leaf && is_along(node, OP_ALL_REDUCE, MESH_T))) continue;
        add_divided(of, node, leaf, out);
    }
}

void count_calls(const CalledGraph *whole, const CalledGraph *divided, LayoutCost *out,
                 Arena *work) {
    for (int n = 0; n < whole->graph->n_nodes; n++) {
        const Node *node = whole->graph->nodes[n];
        if (node->phase == PHASE_UPDATE || !node_is_called(node)) continue;
        whole->segments[n]->micro_calls += node->phase == PHASE_FORWARD ? FORWARD_EMISSIONS : 1;
    }
    count_update(whole, divided != NULL, out, work);
    if (divided) count_divided_update(divided, out, work);
}
