/* part_batch: with --lanes, the sequences of a micro-batch in so many lanes.
 *
 * Every node of what belongs to sequences is there once for each lane, with its share of them, from
 * the inputs to where the batch is summed away; parameters are everybody's. Lanes need nothing of
 * each other, so that hide_messages can put the messages of one, among the ranks that divide its
 * layers, beside the work of another (Wang et al. 2024, Domino, arXiv 2409.15241, cut rows of the
 * batch in the same way for t).
 *
 * Sequence i of a micro-batch is in lane i mod lanes. An input [batch, seq] becomes [batch / lanes,
 * lane, seq], the same numbers in the same places on every rank, so no layout sees a difference.
 * Dropout draws what it would for the whole. Sums over the batch, and gradients of weights, are
 * added up lane by lane; otherwise all results keep their bits, as far as products do.
 */
#include "ir/ops/parts.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Parter {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    int n_lanes, batch, lane; /* axes */
    ValueMap *maps;           /* [n_lanes]; what is everybody's is in all */
} Parter;

static bool refuse(const Parter *p, const Node *node, const char *what) {
    diag_error(p->ctx->diag, node->loc, "--lanes %d: %s", p->n_lanes, what);
    return false;
}

static bool has_batch(const Parter *p, const Type *type) {
    return type_find_axis(type, p->batch) >= 0;
}

/* Does it read or make something of sequences? */
static bool touches_batch(const Parter *p, const Node *node) {
    bool touches = false;
    for (int i = 0; i < node->n_inputs; i++) touches |= has_batch(p, value_type(node->inputs[i]));
    for (int o = 0; o < node->n_outputs; o++) touches |= has_batch(p, &node->types[o]);
    return touches;
}

static bool sums_batch(const Parter *p, const Node *node) {
    bool sums = node->op == OP_REDUCE_SUM || node->op == OP_MATMUL;
    return sums && node_over(node, ATTR_over, p->batch);
}

/* Does it work along the batch in any way but by summing? */
static bool works_along_batch(const Parter *p, const Node *node) {
    if (op_moves_parts(node->op) && parts_has_axis(node, p->batch)) return true;
    for (int i = 0; i < node->n_attrs; i++) {
        const Attr *attr = &node->attrs[i];
        if (ATTRS[attr->key].kind == ATTR_AXIS && attr->axis == p->batch) return true;
    }
    return node_over(node, ATTR_over, p->batch) && !sums_batch(p, node);
}

static bool check_node(const Parter *p, const Node *node) {
    if (works_along_batch(p, node))
        return refuse(p, node, "sequences of a micro-batch are not apart here");
    for (int o = 0; o < node->n_outputs; o++) {
        if (!sums_batch(p, node) && !has_batch(p, &node->types[o]))
            return refuse(p, node, "sequences of a micro-batch are not apart here");
    }
    return true;
}

static bool check_pairs(const Parter *p) {
    for (int n = 0; n < p->in->n_nodes; n++) {
        if (p->in->nodes[n]->op != OP_OF_PAIRS) continue;
        return refuse(p, p->in->nodes[n], "sequences are pairs, which have to stay together");
    }
    return true;
}

static void set_in_all(const Parter *p, const Node *node, Node *made) {
    for (int k = 0; k < p->n_lanes; k++) value_map_set_node(&p->maps[k], node, made);
}

/* The type of a lane's share. */
static bool divide_batch(const Parter *p, const Node *node, Type *type) {
    int at = type_find_axis(type, p->batch);
    if (at >= 0 && type->dims[at] % p->n_lanes)
        return refuse(p, node, "a micro-batch has no multiple of so many sequences");
    if (at >= 0) type->dims[at] /= p->n_lanes;
    return true;
}

/* The whole input, and each lane's rows of it. */
static bool add_input(Parter *p, const Node *node) {
    Node as = *node;
    Type *type = &as.types[0];
    int at = type_find_axis(type, p->batch) + 1;
    if (type->rank == MAX_RANK) return refuse(p, node, "the input has too many axes");
    if (!divide_batch(p, node, type)) return false;
    for (int i = type->rank++; i > at; i--) {
        type->axes[i] = type->axes[i - 1];
        type->dims[i] = type->dims[i - 1];
    }
    type->axes[at] = p->lane;
    type->dims[at] = p->n_lanes;
    Node *whole = graph_copy_node(p->out, &as, NULL, p->ctx->diag);
    for (int k = 0; whole && k < p->n_lanes; k++) {
        const Attr attrs[2] = {attr_axis(ATTR_axis, p->lane), attr_int(ATTR_first, k)};
        Value value = node_value(whole, 0);
        Node *rows = pass_build(p->ctx, p->out, OP_NARROW, node, node->phase, &value, 1, attrs, 2);
        if (!rows) return false;
        value_map_set_node(&p->maps[k], node, rows);
    }
    return whole != NULL;
}

/* The node for lane k; NULL: reported. */
static Node *add_to_lane(Parter *p, const Node *node, int k) {
    Node as = *node;
    Value *inputs = ARENA_ARRAY(p->ctx->arena, Value, node->n_inputs + 1);
    Attr *attrs = ARENA_ARRAY(p->ctx->arena, Attr, node->n_attrs + 2);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = *value_map_at(&p->maps[k], node->inputs[i]);
    }
    if (node_draws(node)) { /* the rows of the whole that it draws for */
        memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof(Attr));
        as.attrs = attrs;
        attrs[as.n_attrs++] = attr_int(ATTR_first, k);
        attrs[as.n_attrs++] = attr_int(ATTR_count, p->n_lanes);
    }
    if (!divide_batch(p, node, &as.types[0])) return NULL; /* said where it cannot be inferred */
    return graph_copy_node(p->out, &as, inputs, p->ctx->diag);
}

static Value add_terms(Parter *p, const Node *origin, Value sum, Value term) {
    const Value terms[2] = {sum, term};
    if (!sum.node) return term;
    Node *all = pass_build(p->ctx, p->out, OP_ADD, origin, origin->phase, terms, 2, NULL, 0);
    return all ? node_value(all, 0) : NO_VALUE;
}

/* What sums the batch away, of all lanes. */
static bool add_sum(Parter *p, const Node *node) {
    Value sum = NO_VALUE;
    for (int k = 0; k < p->n_lanes; k++) {
        Node *part = add_to_lane(p, node, k);
        if (!part) return false;
        sum = add_terms(p, node, sum, node_value(part, 0));
        if (!sum.node) return false;
    }
    set_in_all(p, node, sum.node);
    return true;
}

/* Tallies are summed over the batch anyway; a parameter has one. */
static bool add_tally(Parter *p, const Node *node) {
    Value inputs[2] = {*value_map_at(&p->maps[0], node->inputs[0]), NO_VALUE};
    const Attr over = attr_axes(ATTR_over, &p->batch, 1);
    for (int k = 0; k < p->n_lanes; k++) {
        Value counts = *value_map_at(&p->maps[k], node->inputs[1]);
        Node *part =
            pass_build(p->ctx, p->out, OP_REDUCE_SUM, node, node->phase, &counts, 1, &over, 1);
        if (!part) return false;
        inputs[1] = add_terms(p, node, inputs[1], node_value(part, 0));
        if (!inputs[1].node) return false;
    }
    return graph_copy_node(p->out, node, inputs, p->ctx->diag) != NULL;
}

static bool add_node(Parter *p, const Node *node) {
    if (!touches_batch(p, node)) {
        Node *made = value_map_copy(&p->maps[0], node, p->out, p->ctx->diag);
        if (made) set_in_all(p, node, made);
        return made != NULL;
    }
    if (node->op == OP_TALLY) return add_tally(p, node);
    if (node->op == OP_OUTPUT) { /* nothing in training reads logits */
        if (strcmp(node_string(node, ATTR_name), "logits") == 0) return true;
        return refuse(p, node, "an output has a number for each sequence of a micro-batch");
    }
    if (!check_node(p, node)) return false;
    if (node->op == OP_INPUT) return add_input(p, node);
    if (sums_batch(p, node)) return add_sum(p, node);
    for (int k = 0; k < p->n_lanes; k++) {
        Node *made = add_to_lane(p, node, k);
        if (!made) return false;
        value_map_set_node(&p->maps[k], node, made);
    }
    return true;
}

Graph *pass_part_batch(const Graph *in, PassContext *ctx) {
    if (ctx->options.lanes < 2) return (Graph *)in;
    Parter p = {.ctx = ctx,
                .in = in,
                .out = graph_create_like(in, ctx->arena),
                .n_lanes = ctx->options.lanes,
                .batch = axis_find(&in->axes, "batch", 5),
                .maps = ARENA_ARRAY(ctx->arena, ValueMap, ctx->options.lanes)};
    p.lane = graph_axis(p.out, AXIS_LANE, (int)strlen(AXIS_LANE));
    if (p.lane < 0) {
        diag_error(ctx->diag, NO_LOC, "--lanes %d: the model has too many axes", p.n_lanes);
        return NULL;
    }
    if (!check_pairs(&p)) return NULL;
    for (int k = 0; k < p.n_lanes; k++) p.maps[k] = value_map_create(in, ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        if (!add_node(&p, in->nodes[n])) return NULL;
    }
    return p.out;
}
