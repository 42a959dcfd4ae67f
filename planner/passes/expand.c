/* expand: cross_entropy becomes logsumexp - pick, whose shards over the vocabulary can be combined
 * by one log-sum-exp and one sum over numbers per token (its gradient is one op already). Where
 * labels may be below 0 the difference is multiplied by 0 there. */
#include "ir/op.h"
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

Graph *pass_expand(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool done = node->op == OP_CROSS_ENTROPY
                        ? expand_cross_entropy(node, &map, out, ctx)
                        : value_map_copy(&map, node, out, ctx->diag) != NULL;
        if (!done) return NULL;
    }
    return out;
}
