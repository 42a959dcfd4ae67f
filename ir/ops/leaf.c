/* Leaves, structure and collectives: ops whose types are stated or passed through. */
#include "ir/init.h"
#include "ir/op.h"
#include "ir/ops/round_blocks.h"

bool infer_leaf(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (!round_check_leaf(node, diag)) return false;
    if (node->op != OP_PARAM || init_find(node_string(node, ATTR_init))) return true;
    diag_error(diag, node->loc,
               "param: 'init' is '%s'; it must be normal, uniform, range, zeros or ones",
               node_string(node, ATTR_init));
    return false;
}

/* One number that the update keeps from step to step, the same on every rank. */
bool infer_variable(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    if (node->types[0].rank == 0 && node->types[0].dtype == DTYPE_F32) return true;
    diag_error(diag, node->loc, "variable: must be a single f32");
    return false;
}

bool infer_nothing(Graph *graph, Node *node, Diag *diag) {
    (void)graph, (void)node, (void)diag;
    return true;
}

bool infer_scalar(Graph *graph, Node *node, Diag *diag) {
    (void)graph, (void)diag;
    node->types[0] = (Type){.dtype = DTYPE_F32};
    return true;
}

bool infer_same(Graph *graph, Node *node, Diag *diag) {
    (void)graph, (void)diag;
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

/* shards(, what the whole is written over) -> whole */
bool infer_all_gather(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = *value_type(node->inputs[0]);
    if (node->n_inputs < 2 || type_equal(value_type(node->inputs[1]), &node->types[0])) return true;
    diag_error(diag, node->loc, "all_gather: what it is to write over has another type");
    diag_note(diag, node->inputs[1].node->loc, "made here");
    return false;
}

bool infer_all_to_all(Graph *graph, Node *node, Diag *diag) {
    const Type *type = value_type(node->inputs[0]);
    const Attr *over = node_attr(node, ATTR_over);
    int axis = node_axis(node, ATTR_axis);
    (void)graph;
    node->types[0] = *type;
    bool fits = type_find_axis(type, axis) >= 0 && over->axes.count == 1 &&
                type_find_axis(type, over->axes.items[0]) >= 0 && over->axes.items[0] != axis;
    if (fits) return true;
    diag_error(diag, node->loc, "all_to_all: 'axis' and 'over' must be two axes of its operand");
    return false;
}

double flops_zero(const Node *node, const Type *inputs, const Type *outputs) {
    (void)node, (void)inputs, (void)outputs;
    return 0;
}

/* One operation per element of the largest operand or result. */
double flops_elements(const Node *node, const Type *inputs, const Type *outputs) {
    int64_t most = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        int64_t elements = type_elements(&inputs[i]);
        if (elements > most) most = elements;
    }
    for (int i = 0; i < node->n_outputs; i++) {
        int64_t elements = type_elements(&outputs[i]);
        if (elements > most) most = elements;
    }
    return (double)most;
}
