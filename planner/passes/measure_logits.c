/* measure_logits: with --max-logit or --qk-clip the largest score of each head of attention, over
 * all pairs of positions of a step, as the softmax sees it.
 *
 * Attention gives the largest of each row, beside the logarithm of its denominator, and `largest`
 * keeps the maximum over rows and micro-batches; maxima over ranks are messages like any other
 * (ReduceKind). Only of attention that trains: not of a teacher, nor below what is frozen.
 */
#include "planner/passes/pass.h"

#include <string.h>

/* Of a block's accumulators, and of those of none: '#' is the block's number (ir/teacher.h). */
static Attr next_name(PassContext *ctx, int *counts, int block) {
    bool none = block == NO_BLOCK;
    int number = counts[none ? ctx->n_blocks : block]++;
    const char *name = none ? "max_logit.%d" : "max_logit.#.%d";
    return attr_string(ATTR_name, arena_printf(ctx->arena, name, number));
}

static Node *add_largest(PassContext *ctx, Graph *out, Node *attention, Attr name) {
    const Attr attrs[2] = {name, attr_string(ATTR_of, "")};
    Node like = *attention;
    Type *heads = &like.types[0];
    heads->dtype = DTYPE_F32;
    heads->rank = attention->types[2].rank - 2; /* [batch, seq, heads...] */
    for (int i = 0; i < heads->rank; i++) {
        heads->axes[i] = attention->types[2].axes[2 + i];
        heads->dims[i] = attention->types[2].dims[2 + i];
    }
    Node *leaf = pass_build(ctx, out, OP_ACCUMULATOR, &like, PHASE_FORWARD, NULL, 0, attrs, 2);
    if (!leaf) return NULL;
    Value inputs[2] = {node_value(leaf, 0), node_value(attention, 2)};
    return pass_build(ctx, out, OP_LARGEST, attention, PHASE_FORWARD, inputs, 2, NULL, 0);
}

/* The node with a third result; NULL: reported. */
static Node *copy_attention(ValueMap *map, const Node *node, Graph *out, PassContext *ctx) {
    Node asked = *node;
    asked.attrs = ARENA_ARRAY(ctx->arena, Attr, node->n_attrs + 1);
    asked.n_attrs = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key != ATTR_largest) asked.attrs[asked.n_attrs++] = node->attrs[i];
    }
    asked.attrs[asked.n_attrs++] = attr_int(ATTR_largest, 1);
    return value_map_copy(map, &asked, out, ctx->diag);
}

/* The name is taken if the model reports a number of its own by it. */
static bool check_name(const Graph *in, PassContext *ctx) {
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool own = node->op == OP_ACCUMULATOR &&
                   strcmp(node_string(node, ATTR_name), OUTPUT_MAX_LOGIT) == 0;
        if (!own) continue;
        diag_error(ctx->diag, node->loc,
                   "the model's output '" OUTPUT_MAX_LOGIT "' has the name that --max-logit and "
                   "--qk-clip report attention's largest score by; rename it");
        return false;
    }
    return true;
}

Graph *pass_measure_logits(const Graph *in, PassContext *ctx) {
    if (!ctx->options.max_logit && ctx->options.qk_clip == 0) return (Graph *)in;
    if (!check_name(in, ctx)) return NULL;
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    const bool *learns = graph_find_learning(in, ctx->arena);
    int *counts = ARENA_ARRAY(ctx->arena, int, ctx->n_blocks + 1);
    bool any = false;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool asked = node->op == OP_ATTENTION && node->phase == PHASE_FORWARD && learns[n];
        Node *copy = asked ? copy_attention(&map, node, out, ctx)
                           : value_map_copy(&map, node, out, ctx->diag);
        if (!copy) return NULL;
        if (!asked) continue;
        any = true;
        if (!add_largest(ctx, out, copy, next_name(ctx, counts, node->block))) return NULL;
    }
    if (any) return out;
    diag_error(ctx->diag, NO_LOC, "%s: the model has no attention (ops.attention) that trains",
               ctx->options.qk_clip != 0 ? "--qk-clip" : "--max-logit");
    return NULL;
}
