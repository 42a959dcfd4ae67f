#include "ir/reported.h"

#include "ir/message_group.h"
#include "ir/op.h"

#include <string.h>

static bool is_backward(const Node *node) {
    bool behind = node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS;
    return behind && !(OPS[node->op].flags & LEAF);
}

/* Does it add to an accumulator of no parameter? */
static bool reports(const Node *node) {
    for (int o = 0; o < node->n_outputs; o++) {
        const Node *from = node;
        for (int alias = op_alias(node, o); alias >= 0; alias = op_alias(from, 0)) {
            from = from->inputs[alias].node;
            if (from->n_outputs == 0) break;
        }
        const char *of = from->op == OP_ACCUMULATOR ? node_string(from, ATTR_of) : "?";
        if (of && !*of) return true;
    }
    return false;
}

bool graph_find_reported(const Graph *graph, bool *out) {
    bool any = false;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        if (!is_backward(node)) continue;
        out[n] |= reports(node);
        any |= out[n];
        for (int i = 0; out[n] && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (is_backward(from)) out[from->id] = true;
        }
    }
    for (int n = 0, end; any && n < graph->n_nodes; n = end) { /* a group goes as one message */
        bool some = false;
        end = message_group_end(graph, n);
        for (int k = n; k < end; k++) some |= out[k];
        for (int k = n; k < end && some; k++) out[k] = true;
    }
    return any;
}
