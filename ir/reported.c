#include "ir/reported.h"

#include "ir/message_group.h"
#include "ir/op.h"

static bool is_backward(const Node *node) {
    bool behind = node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS;
    return behind && !(OPS[node->op].flags & LEAF);
}

/* [n_nodes]: is it an accumulator of no parameter, or adds to one? */
static bool *find_sums(const Graph *graph, Arena *arena) {
    bool *sums = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        sums[n] = node->op == OP_ACCUMULATOR && !*node_string(node, ATTR_of);
        for (int o = 0; o < node->n_outputs; o++) {
            int alias = op_alias(node, o);
            sums[n] |= alias >= 0 && alias < node->n_inputs && sums[node->inputs[alias].node->id];
        }
    }
    return sums;
}

static bool mark_reported(const Graph *graph, const bool *sums, bool *out) {
    bool any = false;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        if (!is_backward(node)) continue;
        out[n] |= sums[n];
        any |= out[n];
        for (int i = 0; out[n] && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (is_backward(from)) out[from->id] = true;
        }
    }
    return any;
}

bool graph_find_reported(const Graph *graph, bool *out) {
    Arena *scratch = arena_create();
    bool any = mark_reported(graph, find_sums(graph, scratch), out);
    arena_destroy(scratch);
    for (int n = 0, end; any && n < graph->n_nodes; n = end) { /* a group goes as one message */
        bool some = false;
        end = message_group_end(graph, n);
        for (int k = n; k < end; k++) some |= out[k];
        for (int k = n; k < end && some; k++) out[k] = true;
    }
    return any;
}
