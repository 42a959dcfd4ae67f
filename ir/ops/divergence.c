/* How far the softmax of one row is from another's along an axis: Kullback and Leibler's divergence
 * and what lies between its two directions (Agarwal et al. 2024, arXiv 2306.13649, equation 1).
 *
 * With p and q the softmax of s and of t, and m = beta q + (1 - beta) p:
 *   beta 0           KL(q || p), what distillation asks for most (Hinton et al. 2015)
 *   beta 1           KL(p || q)
 *   between the two  beta KL(q || m) + (1 - beta) KL(p || m)
 * The second result is what the gradient for s needs of a row: KL(p || q) where beta is 1, KL(p ||
 * m) between, 0 where it is 0. The other two are the log-sum-exps of s and t.
 *
 * `divergence` becomes two logsumexp and `divergence_rows` (pass expand), whose sums over a divided
 * axis are partial. Padding along the axis is not counted, and gradients are zero there.
 */
#include "ir/ops/loss.h"

#include "ir/op.h"

static bool check_beta(const Node *node, Diag *diag) {
    double beta = node_float(node, ATTR_beta, -1);
    if (beta >= 0 && beta <= 1) return true;
    diag_error(diag, node->loc, "%s: 'beta' is %g; it is from 0 to 1", OPS[node->op].name, beta);
    return false;
}

/* s and t, alike, with the axis last; then so many numbers for each row. */
static bool check_operands(Graph *graph, Node *node, Diag *diag) {
    const Type *s = value_type(node->inputs[0]), *t = value_type(node->inputs[1]);
    int axis = node_axis(node, ATTR_axis);
    Type rows = type_with_dtype(s, DTYPE_F32);
    if (!dtype_is_float(s->dtype) || !type_equal(s, t)) {
        diag_error(diag, node->loc, "%s: takes two values in f32, bf16 or f16 that are alike",
                   OPS[node->op].name);
        diag_note(diag, node->inputs[1].node->loc, "the second one made here");
        return false;
    }
    if (s->rank < 1 || s->axes[s->rank - 1] != axis) {
        diag_error(diag, node->loc,
                   "%s: axis '%s' must be the last axis of the operands; transpose puts it there",
                   OPS[node->op].name, graph->axes.names[axis]);
        return false;
    }
    rows.rank--;
    for (int i = 2; i < node->n_inputs; i++) {
        if (type_equal(value_type(node->inputs[i]), &rows)) continue;
        diag_error(diag, node->loc, "%s: operand %d must be one f32 number per row",
                   OPS[node->op].name, i + 1);
        return false;
    }
    for (int i = 0; i < node->n_outputs; i++) node->types[i] = rows;
    return check_beta(node, diag);
}

/* s, t -> divergence, what its gradient needs, log-sum-exps of s and t, per row */
bool infer_divergence(Graph *graph, Node *node, Diag *diag) {
    return check_operands(graph, node, diag);
}

/* s, t, their log-sum-exps -> the first two of these */
bool infer_divergence_rows(Graph *graph, Node *node, Diag *diag) {
    return check_operands(graph, node, diag);
}

/* s, t, their log-sum-exps, what the gradient needs of each row, the divergence's gradient -> s's
 */
bool infer_divergence_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_operands(graph, node, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

static Value gradient_of(GradContext *ctx, const Node *node, bool second, double beta, Value needed,
                         Value dout) {
    Value s = node->inputs[second], t = node->inputs[!second];
    Value lse_s = node_value((Node *)node, 2 + second),
          lse_t = node_value((Node *)node, 3 - second);
    Attr attrs[2] = {attr_axis(ATTR_axis, node_axis(node, ATTR_axis)), attr_float(ATTR_beta, beta)};
    return grad_build(ctx, OP_DIVERGENCE_GRAD, (Value[]){s, t, lse_s, lse_t, needed, dout}, 6,
                      attrs, 2);
}

static Value scaled(GradContext *ctx, Value x, double by) {
    Attr factor = attr_float(ATTR_value, by);
    return grad_build(ctx, OP_SCALE, &x, 1, &factor, 1);
}

/* t's is s's with both changed places, 1 - beta for beta. */
void grad_divergence(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    double beta = node_float(node, ATTR_beta, 0);
    Value value = node_value((Node *)node, 0), needed = node_value((Node *)node, 1), other = value;
    if (beta > 0 && beta < 1) {
        Value rest = GRAD_NODE(ctx, OP_SUB, value, scaled(ctx, needed, 1 - beta));
        other = scaled(ctx, rest, 1 / beta);
    }
    dins[0] = gradient_of(ctx, node, false, beta, needed, douts[0]);
    dins[1] = gradient_of(ctx, node, true, 1 - beta, other, douts[0]);
}
