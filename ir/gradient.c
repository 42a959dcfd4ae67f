#include "ir/gradient.h"

#include "ir/op.h"

const Node *gradient_accumulator(Value value) {
    const Node *node = value.node;
    while (node->n_inputs) {
        /* A gradient may be completed within the stage (data parallelism) first, or divided. */
        bool same = OPS[node->op].flags & COLLECTIVE || node->op == OP_SLICE;
        int alias = same ? 0 : op_alias(node, 0);
        if (alias < 0) return NULL;
        node = node->inputs[alias].node;
    }
    return node->op == OP_ACCUMULATOR ? node : NULL;
}

const Node *gradient_of_square(const Node *node) {
    if (node->op != OP_SUMSQ || node->phase != PHASE_UPDATE) return NULL;
    return gradient_accumulator(node->inputs[0]);
}
