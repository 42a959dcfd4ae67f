#include "planner/decode/unfuse.h"

#include "ir/expr.h"

static Node *add_instruction(const ExprInstruction *ins, const Value *inputs, const Node *of,
                             Graph *out, Diag *diag) {
    const Attr all[] = {
        attr_float(ATTR_value, ins->imm), attr_float(ATTR_p, ins->imm),
        attr_int(ATTR_key, ins->key),     attr_int(ATTR_first, ins->first),
        attr_int(ATTR_count, ins->count),
    };
    const int n_all = sizeof(all) / sizeof(all[0]);
    Attr attrs[sizeof(all) / sizeof(all[0])];
    int n_attrs = 0;
    for (int i = 0; i < n_all; i++) {
        bool required;
        if (!op_has_attr(ins->op, all[i].key, &required)) continue;
        if (required || ins->count > 0) attrs[n_attrs++] = all[i];
    }
    return graph_add(out,
                     &(NodeSpec){.op = ins->op,
                                 .inputs = inputs,
                                 .n_inputs = OPS[ins->op].min_inputs,
                                 .attrs = attrs,
                                 .n_attrs = n_attrs,
                                 .n_outputs = 1,
                                 .phase = of->phase,
                                 .block = of->block,
                                 .chunk = of->chunk,
                                 .loc = of->loc},
                     diag);
}

static bool add_program(ValueMap *map, const Node *node, Graph *out, Diag *diag) {
    Expr expr;
    const char *error;
    Value made[EXPR_MAX_INSTRUCTIONS];
    if (node->op != OP_FUSED ||
        !expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) {
        return false;
    }
    for (int n = 0; n < expr.n_instructions; n++) {
        const ExprInstruction *ins = &expr.instructions[n];
        Value inputs[EXPR_MAX_OPERANDS];
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            const int from = ins->operands[i];
            inputs[i] = from < 0 ? *value_map_at(map, node->inputs[~from]) : made[from];
        }
        Node *one = add_instruction(ins, inputs, node, out, diag);
        if (!one) return false;
        made[n] = node_value(one, 0);
    }
    for (int o = 0; o < expr.n_outputs; o++) {
        if (!type_same_shape(value_type(made[expr.outputs[o]]), &node->types[o])) return false;
    }
    for (int o = 0; o < expr.n_outputs; o++) {
        *value_map_at(map, node_value((Node *)node, o)) = made[expr.outputs[o]];
    }
    return true;
}

bool unfuse(ValueMap *map, const Node *node, Graph *out) {
    Diag *diag = diag_create();
    const bool made = add_program(map, node, out, diag);
    diag_destroy(diag);
    return made;
}
