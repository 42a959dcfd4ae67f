#include "runtime/bind_rule.h"

/* A copy in bf16 is its parameter's upper half everywhere (ir/masters.h); one in f16 is rounded
 * where it is stored. */
static void add_copy(Expr *expr, DType dtype) {
    int from = expr->outputs[0];
    if (dtype == DTYPE_BF16) {
        expr->instructions[expr->n_instructions] =
            (ExprInstruction){.op = OP_TO_UPPER, .operands = {from}};
        from = expr->n_instructions++;
    }
    expr->outputs[expr->n_outputs++] = from;
}

void bind_rule(const Binding *b, Rule *rule, RuleCall *out) {
    const Node *node = b->node;
    const int64_t squares = node_int(node, ATTR_squares, 0);
    const int scale = 2 + rule->n_states;
    *out = (RuleCall){.factor = b->in[scale],
                      .rate = b->in[scale + 1],
                      .updates = b->in[scale + 2],
                      .rate_scale = node_float(node, ATTR_lr_scale, 1),
                      .decay = node_float(node, ATTR_weight_decay, 0),
                      .copy_output = 1 + rule->n_states,
                      .has_copy = node->n_outputs > 1 + rule->n_states};
    for (int i = 0; i < rule->n_states; i++) {
        out->above[1 + i] = squares >> i & 1 && dtype_is_low(b->out_local[1 + i].dtype);
    }
    if (out->has_copy) add_copy(&rule->expr, b->out_local[out->copy_output].dtype);
}
