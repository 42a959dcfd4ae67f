/* fold_accumulate: accumulate(acc, product) becomes the product with acc as its last operand, so
 * that a weight gradient is added where it is kept and needs no memory of its own. Applies to
 * matmul (beta = 1) and embedding_grad when nothing else reads the product, and it is of the
 * accumulator's dtype. */
#include "planner/passes/pass.h"

static bool can_fold(const Node *node, const int *uses) {
    if (node->op != OP_ACCUMULATE) return false;
    const Node *product = node->inputs[1].node;
    bool foldable = (product->op == OP_MATMUL && product->n_inputs == 2) ||
                    (product->op == OP_EMBEDDING_GRAD && product->n_inputs == 3);
    return foldable && uses[product->id * MAX_OUTPUTS] == 1 && product->phase == node->phase &&
           product->chunk == node->chunk && product->types[0].dtype == node->types[0].dtype &&
           sharding_equal(&product->shardings[0], &node->shardings[0], node->types[0].rank);
}

Graph *pass_fold_accumulate(const Graph *in, PassContext *ctx) {
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    int *uses = graph_count_uses(in, ctx->arena);
    bool *folded = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        if (can_fold(in->nodes[n], uses)) folded[in->nodes[n]->inputs[1].node->id] = true;
    }
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (folded[n]) continue;
        if (node->op != OP_ACCUMULATE || !folded[node->inputs[1].node->id]) {
            if (!value_map_copy(&map, node, out, ctx->diag)) return NULL;
            continue;
        }
        const Node *product = node->inputs[1].node;
        Value inputs[4];
        for (int i = 0; i < product->n_inputs; i++) {
            inputs[i] = *value_map_at(&map, product->inputs[i]);
        }
        inputs[product->n_inputs] = *value_map_at(&map, node->inputs[0]);
        Node *sum = pass_build(ctx, out, product->op, product, product->phase, inputs,
                               product->n_inputs + 1, product->attrs, product->n_attrs);
        if (!sum) return NULL;
        sum->shardings[0] = node->shardings[0];
        value_map_set_node(&map, node, sum);
    }
    return out;
}
