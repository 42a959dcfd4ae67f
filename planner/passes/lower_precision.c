/* lower_precision: with --precision bf16 or f16, activations and their gradients become that; with
 * fp8 they become bf16 (quantize_products is next).
 *
 * f32 stay: parameters (masters), statistics, what follows logsumexp and pick up to the loss, the
 * gradients of parameters, and every accumulator (Micikevicius et al. 2018). bf16 has the range of
 * f32; with f16 the loss is scaled (append_update.c). An op that multiplies by or looks up a
 * parameter, or adds it to a product (a bias: a product on a GPU adds one of its own dtype), reads
 * a copy of it, a state `<param>.bf16` (or .f16) that the optimizer refreshes together with the
 * parameter. A frozen parameter of which nothing but the copy would be read is 16 bits itself.
 *
 * With --qat a weight says what it will be quantized to (ir/ops/round_blocks.h): then all that read
 * its numbers, also in f32, read a copy that is rounded to that first, of which the gradient is the
 * weight's (Bengio et al. 2013, arXiv 1308.3432, section 4; Jacob et al. 2018, arXiv 1712.05877).
 * Such a copy is made behind the optimizer by a node of its own, round_blocks: a block's numbers
 * share a scale, and optimizers take each by itself.
 *
 * From there the dtype spreads along the graph: what an op may take in 16 bits, and what it gives,
 * is op_operand_precision's and inference's. Where f32 meets 16 bits in an elementwise op,
 * parameters and constants give way, then the narrower operand: x [batch, seq, model] times a
 * statistic [batch, seq] has 16 bits. Casts are nodes beside their reader, so that `fuse` can take
 * them in; in a fused program they round nothing.
 */
#include "ir/ops/round_blocks.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Cast {
    Value from, to;
    Phase phase;
    int block, chunk;
} Cast;

typedef struct Lowerer {
    PassContext *ctx;
    DType low; /* bf16 or f16; f32: there are copies that are rounded to blocks alone */
    const Graph *in;
    Graph *out;
    ValueMap map;
    Node **copies; /* by id of a parameter: its copy in `out`, or NULL */
    bool *has_copy;
    bool *is_low;   /* a frozen parameter that needs no other form than 16 bits */
    bool *weak;     /* by id: made of parameters and constants alone */
    bool *is_share; /* by id: read only to be accumulated, directly or in another layout or scale */
    Cast *casts;    /* looked up backwards */
    int n_casts, cast_capacity;
    const Node **waiting; /* optimizers whose copies are still to be rounded to blocks */
    int n_waiting, waiting_capacity;
} Lowerer;

/* Only moves numbers. */
static bool is_layout(const Node *node) {
    return node->op == OP_TRANSPOSE || op_moves_parts(node->op);
}

static bool is_elementwise(const Node *node) {
    return OPS[node->op].flags & ELEMENTWISE_BIT || node->op == OP_ADD_N;
}

/* Is operand i what is added to a product? Not of one that is said to stay f32: so does its bias.
 */
static bool is_bias(const Node *node, int i) {
    if (node->op != OP_ADD) return false;
    const Node *product = node->inputs[1 - i].node;
    return product->op == OP_MATMUL && !node_attr(product, ATTR_dtype);
}

/* Does operand i of the node read the copy of a parameter? */
static bool reads_copy(const Lowerer *l, const Node *node, int i) {
    OperandPrecision precision = op_operand_precision(node->op, i);
    if (node->phase == PHASE_UPDATE) return false;
    if (node_is_rounded(node->inputs[i].node)) return precision != OPERAND_UNREAD;
    return l->low != DTYPE_F32 && (op_reads_weights(node->op) || is_bias(node, i)) &&
           node->inputs[i].node->op == OP_PARAM && !node_is_balanced(node->inputs[i].node) &&
           precision == OPERAND_FOLLOWS;
}

static void find_copies_and_weak(Lowerer *l) {
    for (int n = 0; n < l->in->n_nodes; n++) {
        const Node *node = l->in->nodes[n];
        bool spreads = is_elementwise(node) || node->op == OP_BROADCAST || is_layout(node) ||
                       node->op == OP_REDUCE_SUM;
        l->weak[n] = node->op == OP_PARAM || op_is_number(node->op) || spreads;
        for (int i = 0; i < node->n_inputs; i++) {
            l->weak[n] &= l->weak[node->inputs[i].node->id];
            if (reads_copy(l, node, i)) l->has_copy[node->inputs[i].node->id] = true;
        }
    }
}

/* Frozen, and all that read its numbers read the copy. */
static void find_low_params(Lowerer *l) {
    for (int n = 0; n < l->in->n_nodes; n++) {
        const Node *node = l->in->nodes[n];
        l->is_low[n] = l->has_copy[n] && node_is_frozen(node);
        for (int i = 0; i < node->n_inputs; i++) {
            bool shape = op_operand_precision(node->op, i) == OPERAND_UNREAD;
            if (!shape && !reads_copy(l, node, i)) l->is_low[node->inputs[i].node->id] = false;
        }
    }
    for (int n = 0; n < l->in->n_nodes; n++) l->has_copy[n] &= !l->is_low[n];
}

static void find_shares(Lowerer *l) {
    int *uses = graph_count_uses(l->in, l->ctx->arena);
    for (int n = 0; n < l->in->n_nodes; n++) l->is_share[n] = uses[n * MAX_OUTPUTS] > 0;
    for (int n = l->in->n_nodes - 1; n >= 0; n--) {
        const Node *node = l->in->nodes[n];
        bool passes = l->is_share[n] && (is_elementwise(node) || is_layout(node));
        for (int i = 0; i < node->n_inputs; i++) {
            if (passes || (node->op == OP_ACCUMULATE && i == 1)) continue;
            l->is_share[node->inputs[i].node->id] = false;
        }
    }
}

static bool add_copy(Lowerer *l, const Node *param) {
    const char *name = node_string(param, ATTR_name);
    Attr attrs[2 + N_ROUND_ATTRS] = {
        attr_string(ATTR_name, arena_printf(l->out->arena, "%s.%s", name, dtype_name(l->low))),
        attr_string(ATTR_of, name),
    };
    Node like = *param;
    like.types[0].dtype = l->low;
    int n_attrs = 2;
    if (node_is_rounded(param)) {
        round_attrs(param, l->low, attrs + n_attrs);
        n_attrs += N_ROUND_ATTRS - 1; /* its type says the dtype */
    }
    l->copies[param->id] =
        pass_build(l->ctx, l->out, OP_STATE, &like, param->phase, NULL, 0, attrs, n_attrs);
    return l->copies[param->id] != NULL;
}

static Value cast(Lowerer *l, Value value, DType dtype, bool weak, const Node *reader) {
    if (value_type(value)->dtype == dtype || !dtype_is_float(value_type(value)->dtype))
        return value;
    for (int i = l->n_casts - 1; i >= 0; i--) {
        const Cast *known = &l->casts[i];
        if (known->phase != reader->phase || known->block != reader->block) break;
        if (known->chunk == reader->chunk && value_equal(known->from, value) &&
            value_type(known->to)->dtype == dtype) {
            return known->to;
        }
    }
    Node *node =
        pass_build(l->ctx, l->out, op_cast_to(dtype), reader, reader->phase, &value, 1, NULL, 0);
    if (!node) BUG("lower_precision: cannot cast");
    Cast made = {value, node_value(node, 0), reader->phase, reader->block, reader->chunk};
    /* A cast of a parameter in an elementwise op is that op's own: `fuse` makes it part of it. */
    if (!weak || !is_elementwise(reader))
        ARENA_PUSH(l->ctx->arena, l->casts, l->n_casts, l->cast_capacity, made);
    return made.to;
}

static bool follows(const Node *node, const Value *inputs, int i) {
    return op_operand_precision(node->op, i) == OPERAND_FOLLOWS &&
           dtype_is_float(value_type(inputs[i])->dtype);
}

/* The dtype of the operands that follow each other. */
static DType choose_dtype(const Lowerer *l, const Node *node, const Value *inputs) {
    int widest = -1;
    DType dtype = DTYPE_F32;
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(inputs[i]);
        if (!follows(node, inputs, i)) continue;
        if (!is_elementwise(node)) {
            if (type->dtype == l->low) return l->low;
            continue;
        }
        if (l->weak[node->inputs[i].node->id] || type->rank < widest) continue;
        if (type->rank > widest || type->dtype == DTYPE_F32) dtype = type->dtype;
        widest = type->rank;
    }
    return dtype;
}

static bool lower_node(Lowerer *l, const Node *node) {
    Arena *arena = l->ctx->arena;
    Value *inputs = ARENA_ARRAY(arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Node *copy = reads_copy(l, node, i) ? l->copies[node->inputs[i].node->id] : NULL;
        inputs[i] = copy ? node_value(copy, 0) : *value_map_at(&l->map, node->inputs[i]);
    }
    DType dtype = choose_dtype(l, node, inputs);
    for (int i = 0; i < node->n_inputs; i++) {
        bool weak = l->weak[node->inputs[i].node->id];
        OperandPrecision precision = op_operand_precision(node->op, i);
        if (follows(node, inputs, i)) inputs[i] = cast(l, inputs[i], dtype, weak, node);
        if (precision == OPERAND_F32) inputs[i] = cast(l, inputs[i], DTYPE_F32, weak, node);
    }
    Attr attrs[N_ATTRS];
    int n_attrs = node->n_attrs;
    bool stated;
    memcpy(attrs, node->attrs, sizeof(Attr) * (size_t)n_attrs);
    bool low = dtype == l->low && dtype_is_low(dtype);
    if (low && l->is_share[node->id] && !node_attr(node, ATTR_dtype) &&
        op_has_attr(node->op, ATTR_dtype, &stated)) {
        attrs[n_attrs++] = attr_string(ATTR_dtype, "f32");
    }
    /* What has a soft cap, documents, dropout, or values of another size, is not cuDNN's to do. */
    if (node->op == OP_ATTENTION_GRAD && l->ctx->options.cudnn_backward &&
        !node_attr(node, ATTR_softcap) && attention_documents(node) < 0 && !attention_drops(node) &&
        attention_value_axis(node) == node_axis(node, ATTR_head)) {
        attrs[n_attrs++] = attr_int(ATTR_room, 1);
    }
    Type type = node->types[0];
    if (node->op == OP_BROADCAST) type.dtype = value_type(inputs[0])->dtype;
    if (l->is_low[node->id]) type.dtype = l->low;
    Node *lowered = graph_add(l->out,
                              &(NodeSpec){.op = node->op,
                                          .inputs = inputs,
                                          .n_inputs = node->n_inputs,
                                          .attrs = attrs,
                                          .n_attrs = n_attrs,
                                          .type = &type,
                                          .n_outputs = node->n_outputs,
                                          .phase = node->phase,
                                          .block = node->block,
                                          .chunk = node->chunk,
                                          .loc = node->loc},
                              l->ctx->diag);
    if (lowered) value_map_set_node(&l->map, node, lowered);
    return lowered != NULL;
}

/* Copies that are rounded to blocks, behind optimizers that stand together: so they still do. */
static bool round_waiting(Lowerer *l) {
    for (int i = 0; i < l->n_waiting; i++) {
        const Node *update = l->waiting[i], *param = update->inputs[0].node;
        Value inputs[2] = {*value_map_at(&l->map, node_value((Node *)update, 0)),
                           node_value(l->copies[param->id], 0)};
        Attr attrs[N_ROUND_ATTRS];
        round_attrs(param, l->low, attrs);
        if (!pass_build(l->ctx, l->out, OP_ROUND_BLOCKS, update, PHASE_UPDATE, inputs, 2, attrs,
                        N_ROUND_ATTRS)) {
            return false;
        }
    }
    l->n_waiting = 0;
    return true;
}

/* The optimizer of a parameter with a copy writes the copy too. */
static bool lower_update(Lowerer *l, const Node *node) {
    bool updates = op_is_optimizer(node->op);
    Node *copy = updates ? l->copies[node->inputs[0].node->id] : NULL;
    if (!updates && !(OPS[node->op].flags & LEAF) && !round_waiting(l)) return false;
    if (copy && node_is_rounded(copy)) {
        ARENA_PUSH(l->ctx->arena, l->waiting, l->n_waiting, l->waiting_capacity, node);
        copy = NULL;
    }
    if (!copy) return value_map_copy(&l->map, node, l->out, l->ctx->diag) != NULL;
    Value *inputs = ARENA_ARRAY(l->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_map_at(&l->map, node->inputs[i]);
    inputs[node->n_inputs] = node_value(copy, 0);
    Node *update = pass_build(l->ctx, l->out, node->op, node, node->phase, inputs,
                              node->n_inputs + 1, node->attrs, node->n_attrs);
    if (update) value_map_set_node(&l->map, node, update);
    return update != NULL;
}

static bool rounds_any(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && node_is_rounded(node)) return true;
    }
    return false;
}

Graph *pass_lower_precision(const Graph *in, PassContext *ctx) {
    if (ctx->options.precision == DTYPE_F32 && !rounds_any(in)) return (Graph *)in;
    Arena *arena = ctx->arena;
    Lowerer l = {.ctx = ctx, .low = dtype_of_activations(ctx->options.precision), .in = in};
    l.out = graph_create_like(in, arena);
    l.map = value_map_create(in, arena);
    l.copies = ARENA_ARRAY(arena, Node *, in->n_nodes + 1);
    l.has_copy = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    l.weak = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    l.is_low = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    l.is_share = ARENA_ARRAY(arena, bool, in->n_nodes + 1);
    find_copies_and_weak(&l);
    find_low_params(&l);
    find_shares(&l);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        bool done = node->phase == PHASE_UPDATE ? lower_update(&l, node) : lower_node(&l, node);
        if (!done || (l.has_copy[n] && !add_copy(&l, node))) return NULL;
    }
    return round_waiting(&l) ? l.out : NULL;
}
