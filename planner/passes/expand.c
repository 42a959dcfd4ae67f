/* expand: cross_entropy becomes logsumexp - pick, whose shards over the vocabulary can be combined
 * by one log-sum-exp and one sum over numbers per token (its gradient is one op already). */
#include "planner/passes/pass.h"

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
    if (!loss) return false;
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
