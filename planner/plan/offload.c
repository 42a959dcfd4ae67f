#include "planner/plan/offload.h"

#include "ir/masters.h"

#include <stdlib.h>

/* Kernels that read and write each element once; all others want their operands near. */
static bool may_touch(const Node *node) {
    if (op_is_cast(node->op) || node->op == OP_ROUND_BLOCKS)
        return node->phase == PHASE_UPDATE || node_is_once(node);
    return node->phase == PHASE_UPDATE &&
           (op_is_optimizer(node->op) || node->op == OP_LAMB_MOMENTS ||
            node->op == OP_MUON_MOMENTUM || node->op == OP_EMA);
}

bool *offload_candidates(const Graph *graph, Arena *arena) {
    const size_t most = (size_t)graph->n_nodes + 1;
    const Node **halves = master_pairs(graph, arena);
    const Node **leaf_of = ARENA_ARRAY(arena, const Node *, most *MAX_OUTPUTS); /* in place */
    bool *updated = ARENA_ARRAY(arena, bool, most), *elsewhere = ARENA_ARRAY(arena, bool, most);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool state = node->op == OP_STATE && !node_is_copy(node);
        bool master =
            node->op == OP_PARAM && node->types[0].dtype == DTYPE_F32 && halves[n] == NULL;
        if (state || master) leaf_of[n * MAX_OUTPUTS] = node;
        for (int i = 0; i < node->n_inputs; i++) {
            Value in = node->inputs[i];
            const Node *leaf = leaf_of[in.node->id * MAX_OUTPUTS + in.output];
            bool unread = op_operand_precision(node->op, i) == OPERAND_UNREAD; /* its shape alone */
            if (leaf && !unread && !may_touch(node)) elsewhere[leaf->id] = true;
        }
        for (int o = 0; o < node->n_outputs; o++) {
            int alias = op_alias(node, o);
            if (alias < 0) continue;
            Value in = node->inputs[alias];
            const Node *leaf = leaf_of[in.node->id * MAX_OUTPUTS + in.output];
            leaf_of[n * MAX_OUTPUTS + o] = leaf;
            if (leaf) updated[leaf->id] = true;
        }
    }
    bool *may = ARENA_ARRAY(arena, bool, most);
    for (int n = 0; n < graph->n_nodes; n++) may[n] = updated[n] && !elsewhere[n];
    return may;
}

typedef struct Leaf {
    int id;
    int64_t bytes;
} Leaf;

static int by_size(const void *left, const void *right) {
    const Leaf *a = left, *b = right;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? 1 : -1;
    return a->id - b->id;
}

bool *offload_choose(const Graph *graph, int percent, Arena *arena) {
    if (percent == 0) return ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    bool *chosen = offload_candidates(graph, arena);
    Leaf *leaves = ARENA_ARRAY(arena, Leaf, graph->n_nodes + 1);
    int count = 0;
    double left = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!chosen[n]) continue;
        chosen[n] = false;
        int64_t bytes = type_local_bytes(&node->types[0], &node->shardings[0], &graph->mesh);
        leaves[count++] = (Leaf){n, bytes};
        left += (double)bytes * percent / 100;
    }
    qsort(leaves, (size_t)count, sizeof(*leaves), by_size);
    for (int i = 0; i < count; i++) {
        double bytes = (double)leaves[i].bytes;
        if (left < bytes / 2) continue;
        chosen[leaves[i].id] = true;
        left -= bytes;
    }
    return chosen;
}
