/* lower_gradients: with --gradients bf16, what products make as gradients of parameters is bf16, as
 * far as nothing more is added to it.
 *
 *   one micro-batch a step   a parameter's only share is bf16 from the product to the optimizer:
 *                            product, accumulator, message
 *   with --zero 2 and 3      so is a share that a message sums over ranks, up to there; those of
 *                            several micro-batches are added up in f32
 *
 * Sums are f32 within products and over ranks, and rounded once each (NCCL rounds on its way). What
 * other ops make (gains, biases, tables that are looked up in) is f32; what has several shares a
 * step (tied weights, lanes, parts of a loss, micro-batches) is added up in f32. After
 * insert_collectives, which knows the messages; before fold_accumulate, as a product has the dtype
 * of what it is added to.
 */
#include "ir/param_index.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct GradientLowerer {
    PassContext *ctx;
    const Graph *in;
    const int *uses;      /* graph_count_uses */
    const Node **leaf_of; /* by id, of accumulators and what follows from them alone: the leaf */
    int *n_shares;        /* by id of a leaf */
    bool *stays;          /* by id of a leaf: something reads it that takes f32 alone */
    bool *is_low;         /* by id: leaves, and products, that become bf16 */
    Graph *out;
    ValueMap map;
    const Node **squares; /* of gradients in bf16, that are to come */
    int n_squares;
} GradientLowerer;

static bool is_message(const Node *node) {
    return node->op == OP_REDUCE_SCATTER || node->op == OP_ALL_REDUCE;
}

static bool is_over_data(const Node *message) {
    const char *mesh = node_string(message, ATTR_mesh);
    return mesh_is_data(mesh_axis_find(mesh, (int)strlen(mesh)));
}

/* Gives on what it reads, all of it or a part, perhaps with what others have. */
static bool passes_on(const Node *node) {
    return is_message(node) || node->op == OP_SLICE || node->op == OP_STAGE_REDUCE;
}

/* The leaves of parameters' gradients, what follows from them, and how many shares each gets. */
static void find_chains(GradientLowerer *l) {
    const Graph *in = l->in;
    ParamIndex params = param_index_create(in, l->ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n], *leaf = NULL;
        if (node->op == OP_ACCUMULATOR && node_string(node, ATTR_of)[0]) {
            const Node *param = param_index_find(&params, node->block, node_string(node, ATTR_of));
            leaf = param && !node_is_balanced(param) ? node : NULL;
        } else if (node->op == OP_ACCUMULATE || passes_on(node)) {
            leaf = l->leaf_of[node->inputs[0].node->id];
        }
        l->leaf_of[n] = leaf;
        if (leaf && node->op == OP_ACCUMULATE) l->n_shares[leaf->id]++;
    }
}

static void find_readers(GradientLowerer *l) {
    for (int n = 0; n < l->in->n_nodes; n++) {
        const Node *node = l->in->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *leaf = l->leaf_of[node->inputs[i].node->id];
            if (!leaf || l->leaf_of[n]) continue;
            l->stays[leaf->id] |= op_operand_precision(node->op, i) != OPERAND_GRADIENT;
        }
    }
}

/* What makes the share, before messages; *out_sent: there is one over ranks with the same weights.
 * NULL: something else reads it as well. */
static const Node *maker_of(const GradientLowerer *l, const Node *accumulate, bool *out_sent) {
    Value share = accumulate->inputs[1];
    *out_sent = false;
    while (l->uses[share.node->id * MAX_OUTPUTS + share.output] == 1) {
        if (!passes_on(share.node)) return share.node;
        *out_sent |= is_message(share.node) && is_over_data(share.node);
        share = share.node->inputs[0];
    }
    return NULL;
}

/* A product of 16 bits that would give its sums as they are. */
static bool may_round(const Node *product) {
    return product->op == OP_MATMUL && product->n_inputs == 2 &&
           value_type(product->inputs[0])->dtype == DTYPE_BF16 &&
           product->types[0].dtype == DTYPE_F32;
}

static void choose(GradientLowerer *l, const Node *accumulate) {
    const Node *leaf = l->leaf_of[accumulate->id];
    bool sent, only = l->ctx->n_micro == 1 && l->n_shares[leaf->id] == 1 && !l->stays[leaf->id];
    const Node *maker = maker_of(l, accumulate, &sent);
    if (!maker || !may_round(maker) || maker->phase != accumulate->phase) return;
    if (!only && !sent) return;
    l->is_low[maker->id] = true;
    l->is_low[leaf->id] = only;
}

static Attr *with_dtype(const GradientLowerer *l, const Node *node, int *out_n) {
    Attr *attrs = ARENA_ARRAY(l->ctx->arena, Attr, node->n_attrs + 1);
    int n = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key != ATTR_dtype) attrs[n++] = node->attrs[i];
    }
    attrs[n++] = attr_string(ATTR_dtype, dtype_name(DTYPE_BF16));
    *out_n = n;
    return attrs;
}

/* Squares of gradients in bf16 come behind those in f32, whose order is that of their messages: a
 * GPU adds up neighbours of one dtype at once. */
static bool is_low_square(const Node *node, const ValueMap *map) {
    return node->op == OP_SUMSQ && node->phase == PHASE_UPDATE &&
           value_type(*value_map_at(map, node->inputs[0]))->dtype == DTYPE_BF16;
}

static bool copy_squares(GradientLowerer *l) {
    for (int k = 0; k < l->n_squares; k++) {
        if (!value_map_copy(&l->map, l->squares[k], l->out, l->ctx->diag)) return false;
    }
    l->n_squares = 0;
    return true;
}

static bool reads_squares(const GradientLowerer *l, const Node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (!value_map_at(&l->map, node->inputs[i])->node) return true;
    }
    return false;
}

static bool copy_node(GradientLowerer *l, const Node *from) {
    Node node = *from;
    if (reads_squares(l, from) && !copy_squares(l)) return false;
    if (is_low_square(from, &l->map)) {
        l->squares[l->n_squares++] = from;
        return true;
    }
    if (l->is_low[from->id] && from->op == OP_ACCUMULATOR) node.types[0].dtype = DTYPE_BF16;
    if (l->is_low[from->id] && from->op == OP_MATMUL) {
        node.attrs = with_dtype(l, from, &node.n_attrs);
    }
    return value_map_copy(&l->map, &node, l->out, l->ctx->diag) != NULL;
}

Graph *pass_lower_gradients(const Graph *in, PassContext *ctx) {
    if (ctx->options.gradient_dtype == DTYPE_F32) return (Graph *)in;
    GradientLowerer l = {.ctx = ctx, .in = in, .uses = graph_count_uses(in, ctx->arena)};
    l.leaf_of = ARENA_ARRAY(ctx->arena, const Node *, in->n_nodes + 1);
    l.n_shares = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1);
    l.stays = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    l.is_low = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1);
    find_chains(&l);
    find_readers(&l);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        if (node->op == OP_ACCUMULATE && l.leaf_of[n]) choose(&l, node);
    }
    l.out = graph_create_like(in, ctx->arena);
    l.map = value_map_create(in, ctx->arena);
    l.squares = ARENA_ARRAY(ctx->arena, const Node *, in->n_nodes + 1);
    for (int n = 0; n < in->n_nodes; n++) {
        if (!copy_node(&l, in->nodes[n])) return NULL;
    }
    return copy_squares(&l) ? l.out : NULL;
}
