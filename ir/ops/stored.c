/* How far the softmax of a row is from another one's of which its K likeliest words alone are
 * known, as of a teacher that was run before (Hinton et al. 2015; the rest as one more outcome).
 *
 * With p the softmax of s, q_k the probabilities that are stored of words w_k, and of all other
 * words together q* = max(0, 1 - sum_k q_k) and p* = sum of p over them:
 *   value = sum_k q_k (log q_k - log p(w_k)) + q* (log q* - log p*)
 * which is KL(q || p) of what is known: 0 where p is q, at most KL of the whole softmaxes, and that
 * where all words are stored; then nothing is left over, and q* counts as 0. Logarithms of q* and
 * p* are of STORED_LEAST more.
 *
 * `stored_divergence` becomes logsumexp, `stored_rows`, whose sums over a divided axis are partial,
 * and a few numbers of each row (pass expand). A word may be stored several times; one that is none
 * of the axis counts as none of it. Padding along the axis is not counted, and gradients are zero
 * there.
 */
#include "ir/ops/stored.h"

#include "ir/op.h"

/* s, words i32 and their log-probabilities f32 [rows, K]; then so many numbers for each row. */
static bool check_operands(Graph *graph, Node *node, Diag *diag) {
    const Type *s = value_type(node->inputs[0]), *words = value_type(node->inputs[1]);
    const int axis = node_axis(node, ATTR_axis), last = s->rank - 1;
    if (!dtype_is_float(s->dtype) || s->rank < 1 || s->axes[last] != axis) {
        diag_error(diag, node->loc,
                   "%s: takes f32, bf16 or f16 whose last axis is '%s'; transpose puts it there",
                   OPS[node->op].name, graph->axes.names[axis]);
        return false;
    }
    Type rows = type_with_dtype(s, DTYPE_F32), known = *words;
    rows.rank--;
    if (words->rank == s->rank && words->axes[last] != axis) {
        known = rows;
        known.axes[known.rank] = words->axes[last];
        known.dims[known.rank++] = words->dims[last];
    }
    const Type as_words = type_with_dtype(&known, DTYPE_I32);
    if (known.rank != s->rank || !type_equal(words, &as_words) ||
        !type_equal(value_type(node->inputs[2]), &known)) {
        diag_error(diag, node->loc,
                   "%s: what is stored are words in i32 and their log-probabilities in f32, of the "
                   "first operand's other axes and one of their own",
                   OPS[node->op].name);
        return false;
    }
    for (int i = 3; i < node->n_inputs; i++) {
        if (type_equal(value_type(node->inputs[i]), &rows)) continue;
        diag_error(diag, node->loc, "%s: operand %d must be one f32 number per row",
                   OPS[node->op].name, i + 1);
        return false;
    }
    for (int i = 0; i < node->n_outputs; i++) node->types[i] = rows;
    return true;
}

/* s, words, their log-probabilities -> divergence, p*, sum of q_k, log-sum-exp of s, per row */
bool infer_stored_divergence(Graph *graph, Node *node, Diag *diag) {
    return check_operands(graph, node, diag);
}

/* s, words, their log-probabilities, s's log-sum-exp -> the first sum, p*, the sum of q_k, of words
 * of this part of the axis */
bool infer_stored_rows(Graph *graph, Node *node, Diag *diag) {
    return check_operands(graph, node, diag);
}

/* s, words, their log-probabilities, s's log-sum-exp, what p counts of words that are stored and of
 * others, the divergence's gradient -> s's */
bool infer_stored_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_operands(graph, node, diag)) return false;
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

bool stored_has_rest(const Node *node) {
    const Type *s = value_type(node->inputs[0]), *words = value_type(node->inputs[1]);
    return words->dims[words->rank - 1] < s->dims[s->rank - 1];
}

static Value with(GradContext *ctx, OpKind op, Value x, double value) {
    Attr attr = attr_float(ATTR_value, value);
    return grad_build(ctx, op, &x, 1, &attr, 1);
}

/* The slope of -log p(w_k) is p less 1 at w_k, of -log p* it is p less p / p* at each other word.
 * So each word has p (sum of q_k + q*), of which stored ones lose q_k and others q* p / p*. What is
 * stored learns nothing. */
void grad_stored_divergence(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value tail = node_value((Node *)node, 1), known = node_value((Node *)node, 2);
    Value lse = node_value((Node *)node, 3), on = known, off = known;
    if (stored_has_rest(node)) {
        Value left = with(ctx, OP_OFFSET, with(ctx, OP_SCALE, known, -1), 1);
        Value rest = GRAD_NODE(ctx, OP_RELU, left);
        on = GRAD_NODE(ctx, OP_ADD, known, rest);
        off = GRAD_NODE(ctx, OP_SUB, on,
                        GRAD_NODE(ctx, OP_DIV, rest, with(ctx, OP_OFFSET, tail, STORED_LEAST)));
    }
    dins[0] = grad_build(
        ctx, OP_STORED_GRAD,
        (Value[]){node->inputs[0], node->inputs[1], node->inputs[2], lse, on, off, douts[0]}, 7,
        node->attrs, node->n_attrs);
}
