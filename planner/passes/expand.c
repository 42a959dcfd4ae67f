/* expand: cross_entropy becomes logsumexp - pick, whose shards over the vocabulary can be combined
 * by one log-sum-exp and one sum over numbers per token (its gradient is one op already). Where
 * labels may be below 0 the difference is multiplied by 0 there.
 *
 * divergence likewise becomes two logsumexp and what else is summed over words; stored_divergence
 * one, and what the words that are not stored have together.
 *
 * attention with sinks becomes one without, whose rows are then scaled: with l the logarithm of a
 * row's denominator, a sink s makes it l' = log(e^l + e^s), and the result e^(l - l') =
 * sigmoid(l - s) times what it was. The gradient reads both as they are then, and so needs to know
 * of no sinks: any attention kernel will do. */
#include "ir/op.h"
#include "ir/ops/stored.h"
#include "planner/passes/pass.h"

/* 1 where labels are 0 and more, else 0. */
static Node *add_mask(const Node *node, Value labels, Graph *out, PassContext *ctx) {
    Attr below = attr_float(ATTR_value, -1);
    Node *bound = pass_build(ctx, out, OP_CONST, node, node->phase, NULL, 0, &below, 1);
    if (!bound) return NULL;
    Value operands[2] = {node_value(bound, 0), labels};
    return pass_build(ctx, out, OP_LESS, node, node->phase, operands, 2, NULL, 0);
}

static bool expand_cross_entropy(const Node *node, ValueMap *map, Graph *out, PassContext *ctx) {
    Value logits = *value_map_at(map, node->inputs[0]);
    Value labels = *value_map_at(map, node->inputs[1]);
    Attr axis = attr_axis(ATTR_axis, node_axis(node, ATTR_axis));
    Node *lse = pass_build(ctx, out, OP_LOGSUMEXP, node, node->phase, &logits, 1, &axis, 1);
    Node *own =
        pass_build(ctx, out, OP_PICK, node, node->phase, (Value[]){logits, labels}, 2, &axis, 1);
    if (!lse || !own) return false;
    Value operands[2] = {node_value(lse, 0), node_value(own, 0)};
    Node *loss = pass_build(ctx, out, OP_SUB, node, node->phase, operands, 2, NULL, 0);
    Node *mask = loss && cross_entropy_has_mask(node) ? add_mask(node, labels, out, ctx) : NULL;
    if (mask) {
        Value kept[2] = {node_value(loss, 0), node_value(mask, 0)};
        loss = pass_build(ctx, out, OP_MUL, node, node->phase, kept, 2, NULL, 0);
    }
    if (!loss || (cross_entropy_has_mask(node) && !mask)) return false;
    *value_map_at(map, node_value((Node *)node, 0)) = node_value(loss, 0);
    *value_map_at(map, node_value((Node *)node, 1)) = node_value(lse, 0);
    return true;
}

/* That of the value, which the cross-entropy of the same logits may have made. */
static Value find_logsumexp(const Node *node, Value x, const Attr *axis, Graph *out,
                            PassContext *ctx) {
    for (int n = out->n_nodes - 1; n >= 0; n--) {
        Node *made = out->nodes[n];
        bool same = made->op == OP_LOGSUMEXP && made->phase == node->phase &&
                    made->block == node->block && made->chunk == node->chunk &&
                    value_equal(made->inputs[0], x) && node_axis(made, ATTR_axis) == axis->axis;
        if (same) return node_value(made, 0);
    }
    Node *lse = pass_build(ctx, out, OP_LOGSUMEXP, node, node->phase, &x, 1, axis, 1);
    return lse ? node_value(lse, 0) : NO_VALUE;
}

static bool expand_divergence(const Node *node, ValueMap *map, Graph *out, PassContext *ctx) {
    Value operands[4];
    Attr axis = attr_axis(ATTR_axis, node_axis(node, ATTR_axis));
    for (int i = 0; i < 2; i++) operands[i] = *value_map_at(map, node->inputs[i]);
    for (int i = 0; i < 2; i++) {
        operands[2 + i] = find_logsumexp(node, operands[i], &axis, out, ctx);
        if (!operands[2 + i].node) return false;
        *value_map_at(map, node_value((Node *)node, 2 + i)) = operands[2 + i];
    }
    Node *rows = pass_build(ctx, out, OP_DIVERGENCE_ROWS, node, node->phase, operands, 4,
                            node->attrs, node->n_attrs);
    for (int o = 0; rows && o < 2; o++) {
        *value_map_at(map, node_value((Node *)node, o)) = node_value(rows, o);
    }
    return rows != NULL;
}

/* One elementwise op of one or two operands; NO_VALUE: reported, here or before. */
static Value apply(PassContext *ctx, Graph *out, const Node *node, OpKind op, Value a, Value b) {
    const int n = b.node ? 2 : 1;
    if (!a.node) return NO_VALUE;
    Node *made = pass_build(ctx, out, op, node, node->phase, (Value[]){a, b}, n, NULL, 0);
    return made ? node_value(made, 0) : NO_VALUE;
}

static Value offset(PassContext *ctx, Graph *out, const Node *node, Value x, double by) {
    Attr value = attr_float(ATTR_value, by);
    if (!x.node) return NO_VALUE;
    Node *made = pass_build(ctx, out, OP_OFFSET, node, node->phase, &x, 1, &value, 1);
    return made ? node_value(made, 0) : NO_VALUE;
}

static Value logarithm(PassContext *ctx, Graph *out, const Node *node, Value x) {
    return apply(ctx, out, node, OP_LOG, offset(ctx, out, node, x, STORED_LEAST), NO_VALUE);
}

/* q* (log q* - log p*), of the sum of what is stored and p*. */
static Value rest_of_stored(PassContext *ctx, Graph *out, const Node *node, Value known,
                            Value tail) {
    Value left = offset(ctx, out, node, apply(ctx, out, node, OP_NEG, known, NO_VALUE), 1);
    Value rest = apply(ctx, out, node, OP_RELU, left, NO_VALUE);
    Value own = logarithm(ctx, out, node, rest), other = logarithm(ctx, out, node, tail);
    if (!own.node || !other.node) return NO_VALUE;
    return apply(ctx, out, node, OP_MUL, apply(ctx, out, node, OP_SUB, own, other), rest);
}

static bool expand_stored(const Node *node, ValueMap *map, Graph *out, PassContext *ctx) {
    Value operands[4];
    Attr axis = attr_axis(ATTR_axis, node_axis(node, ATTR_axis));
    for (int i = 0; i < 3; i++) operands[i] = *value_map_at(map, node->inputs[i]);
    operands[3] = find_logsumexp(node, operands[0], &axis, out, ctx);
    if (!operands[3].node) return false;
    Node *rows = pass_build(ctx, out, OP_STORED_ROWS, node, node->phase, operands, 4, &axis, 1);
    if (!rows) return false;
    Value value = node_value(rows, 0);
    if (stored_has_rest(node)) {
        Value rest = rest_of_stored(ctx, out, node, node_value(rows, 2), node_value(rows, 1));
        value = rest.node ? apply(ctx, out, node, OP_ADD, value, rest) : NO_VALUE;
    }
    *value_map_at(map, node_value((Node *)node, 0)) = value;
    *value_map_at(map, node_value((Node *)node, 1)) = node_value(rows, 1);
    *value_map_at(map, node_value((Node *)node, 2)) = node_value(rows, 2);
    *value_map_at(map, node_value((Node *)node, 3)) = operands[3];
    return value.node != NULL;
}

/* log(e^a + e^b) = max(a, b) - log(sigmoid(|a - b|)), finite for all; apart: a - b. */
static Value add_logarithm(PassContext *ctx, Graph *out, const Node *node, Value a, Value b,
                           Value apart) {
    Value size = apply(ctx, out, node, OP_ABS, apart, NO_VALUE);
    Value share = apply(ctx, out, node, OP_SIGMOID, size, NO_VALUE);
    Value less = apply(ctx, out, node, OP_LOG, share, NO_VALUE);
    Value most = apply(ctx, out, node, OP_MAXIMUM, a, b);
    return less.node ? apply(ctx, out, node, OP_SUB, most, less) : NO_VALUE;
}

/* with_log: does anything read the logarithm of a row's denominator? Not where no gradient is made,
 * below what trains. */
static bool expand_sinks(const Node *node, bool with_log, ValueMap *map, Graph *out,
                         PassContext *ctx) {
    Value inputs[6];
    const int at = attention_sinks(node);
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_map_at(map, node->inputs[i]);
    Node *made = pass_build(ctx, out, OP_ATTENTION, node, node->phase, inputs, at, node->attrs,
                            node->n_attrs);
    if (!made) return false;
    if (node->n_outputs > 2) *value_map_at(map, node_value((Node *)node, 2)) = node_value(made, 2);
    Value sinks = inputs[at], lse = node_value(made, 1);
    Value above = apply(ctx, out, node, OP_SUB, lse, sinks);
    Value kept = apply(ctx, out, node, OP_SIGMOID, above, NO_VALUE);
    Value result = node_value(made, 0);
    const DType dtype = value_type(result)->dtype;
    if (dtype != DTYPE_F32) result = apply(ctx, out, node, OP_TO_F32, result, NO_VALUE);
    result = kept.node ? apply(ctx, out, node, OP_MUL, result, kept) : NO_VALUE;
    if (dtype != DTYPE_F32) result = apply(ctx, out, node, op_cast_to(dtype), result, NO_VALUE);
    *value_map_at(map, node_value((Node *)node, 0)) = result;
    if (!with_log || !result.node) return result.node != NULL;
    Value both = add_logarithm(ctx, out, node, lse, sinks, above);
    *value_map_at(map, node_value((Node *)node, 1)) = both;
    return both.node != NULL;
}

static bool expand_node(const Node *node, const int *uses, ValueMap *map, Graph *out,
                        PassContext *ctx) {
    if (node->op == OP_CROSS_ENTROPY) return expand_cross_entropy(node, map, out, ctx);
    if (node->op == OP_DIVERGENCE) return expand_divergence(node, map, out, ctx);
    if (node->op == OP_STORED_DIVERGENCE) return expand_stored(node, map, out, ctx);
    if (attention_sinks(node) >= 0) {
        return expand_sinks(node, uses[node->id * MAX_OUTPUTS + 1] > 0, map, out, ctx);
    }
    return value_map_copy(map, node, out, ctx->diag) != NULL;
}

Graph *pass_expand(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    const int *uses = graph_count_uses(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        if (!expand_node(in->nodes[n], uses, &map, out, ctx)) return NULL;
    }
    return out;
}
