/* Cross-entropy and its parts, sums of squares, clipping, optimizers. */
#include "ir/op.h"

/* x f32[rows..., axis] and, if given, index i32[rows...]. */
static bool check_rows(Graph *graph, Node *node, int index, Diag *diag) {
    const Type *x = value_type(node->inputs[0]);
    int axis = node_axis(node, ATTR_axis);
    if (x->dtype != DTYPE_F32 || x->rank < 1 || x->axes[x->rank - 1] != axis) {
        diag_error(diag, node->loc, "%s: axis '%s' must be the last axis of the first operand",
                   OPS[node->op].name, graph->axes.names[axis]);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (index < 0) return true;
    Type rows = *x;
    rows.rank--;
    rows.dtype = DTYPE_I32;
    if (type_equal(value_type(node->inputs[index]), &rows)) return true;
    diag_error(diag, node->loc, "%s: labels must be i32 with the first operand's other axes",
               OPS[node->op].name);
    diag_note(diag, node->inputs[index].node->loc, "labels made here");
    return false;
}

static Type rows_of(const Type *type) {
    Type rows = *type;
    rows.rank--;
    return rows;
}

/* logits, labels -> loss per row, logsumexp per row */
bool infer_cross_entropy(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    node->types[0] = node->types[1] = rows_of(value_type(node->inputs[0]));
    return true;
}

/* logits, labels, lse, dloss -> dlogits = (exp(logits - lse) - onehot(labels)) dloss */
bool infer_cross_entropy_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    Type rows = rows_of(value_type(node->inputs[0]));
    for (int i = 2; i < 4; i++) {
        if (type_equal(value_type(node->inputs[i]), &rows)) continue;
        diag_error(diag, node->loc, "cross_entropy_grad: operand %d must be one number per row",
                   i + 1);
        return false;
    }
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

void grad_cross_entropy(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value lse = node_value((Node *)node, 1);
    if (!douts[0].node) return;
    if (douts[1].node) {
        diag_error(ctx->diag, node->loc,
                   "cross_entropy: its second result has no gradient; use "
                   "logsumexp");
        ctx->failed = true;
        return;
    }
    dins[0] = grad_build(ctx, OP_CROSS_ENTROPY_GRAD,
                         (Value[]){node->inputs[0], node->inputs[1], lse, douts[0]}, 4, node->attrs,
                         node->n_attrs);
}

bool infer_logsumexp(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, -1, diag)) return false;
    node->types[0] = rows_of(value_type(node->inputs[0]));
    return true;
}

void grad_logsumexp(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value centred = GRAD_NODE(ctx, OP_SUB, node->inputs[0], node_value((Node *)node, 0));
    Value softmax = GRAD_NODE(ctx, OP_EXP, centred);
    dins[0] =
        grad_reduce_to(ctx, GRAD_NODE(ctx, OP_MUL, softmax, douts[0]), value_type(node->inputs[0]));
}

bool infer_pick(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    node->types[0] = rows_of(value_type(node->inputs[0]));
    return true;
}

void grad_pick(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    /* onehot(index) dy = -(exp(x - inf) - onehot) dy with lse = +inf; there is no gain in a kernel
     * for what only cross_entropy needs, and that has its own. */
    (void)douts, (void)dins;
    diag_error(ctx->diag, node->loc, "pick: has no gradient; use cross_entropy");
    ctx->failed = true;
}

bool infer_sumsq(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = (Type){.dtype = DTYPE_F32};
    if (value_type(node->inputs[0])->dtype == DTYPE_F32) return true;
    diag_error(diag, node->loc, "sumsq: the operand must be f32");
    return false;
}

/* First `n_like` operands shaped alike, the rest scalars. */
static bool check_update(Node *node, int n_like, Diag *diag) {
    const Type scalar = {.dtype = DTYPE_F32};
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *want = i < n_like ? value_type(node->inputs[0]) : &scalar;
        if (type_equal(value_type(node->inputs[i]), want)) continue;
        diag_error(diag, node->loc, "%s: operand %d has the wrong shape", OPS[node->op].name,
                   i + 1);
        return false;
    }
    return true;
}

/* p, g, m, v, scale, lr, step -> p, m, v (Loshchilov & Hutter 2019, algorithm 2) */
bool infer_adamw(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    for (int i = 0; i < 3; i++) node->types[i] = *value_type(node->inputs[0]);
    return check_update(node, 4, diag);
}

/* p, g, momentum buffer, scale, lr -> p, buffer */
bool infer_sgd(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    for (int i = 0; i < 2; i++) node->types[i] = *value_type(node->inputs[0]);
    return check_update(node, 3, diag);
}
