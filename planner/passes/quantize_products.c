/* quantize_products: with --precision fp8, the products of blocks' weights take fp8 operands.
 *
 * Of each: y = x w, its gradients dx = dy w' and dw = x' dy. Each operand goes through `quantize`,
 * along the axes that are summed away, and back through `dequantize`, whose bf16 is exact: what the
 * product then multiplies are the fp8 numbers times their scales (DeepSeek-V3, arXiv 2412.19437,
 * section 3.3: blocks of 128 of activations and gradients, tiles of 128 x 128 of weights, e4m3
 * throughout). A product is in fp8 if what is summed and both its sides hold whole blocks, by
 * logical sizes but for the batch's: that is the same for the three, and which products are does
 * not depend on a layout. Those of experts' choices, whose side counts experts, stay in bf16 as
 * those outside of blocks do (embeddings, heads), and those with a weight that something is done to
 * first.
 *
 * A value is quantised once for all products that sum it along the same axes, where it is made or
 * first read. What a forward value is quantised for in the backward, gradients of weights, is done
 * in the forward if nothing else in the backward reads the value: then the frame keeps 8 bits of it
 * instead of 16. Weights are quantised at each use, from their copies in bf16: what they would take
 * in memory goes to no one, and with --zero they are gathered as before.
 *
 * For tensor cores an operand is quantised to lie as they read it (`last`, ir/ops/quantize.h):
 * multiply_fp8 then leaves out dequantize. Not where a product is one of a batch, as those of
 * experts are: cuBLASLt's documents do not say where the scales of the next one are.
 */
#include "ir/ops/quantize.h"
#include "planner/passes/pass.h"

#include <string.h>

typedef struct Run {
    int axes[MAX_RANK], count;
} Run;

/* A product's operand: its axes that are summed away and its own, without the batch; those that
 * come last, for tensor cores. */
typedef struct Side {
    Run summed, own, last;
} Side;

typedef struct Quantized {
    Value from;
    Run over, last;
    Phase phase; /* of the quantize node */
    Node *node;
} Quantized;

typedef struct Widened {
    Node *from; /* a quantize node */
    Phase phase;
    int block, chunk;
    Value value;
} Widened;

typedef struct Quantizer {
    PassContext *ctx;
    const Graph *in;
    Graph *out;
    ValueMap map;
    int batch, experts; /* axes, or -1 */
    bool *is_share;     /* by id: a share of a weight's gradient */
    bool *may;          /* by id: the product takes fp8 */
    bool *otherwise;    /* by value: something else in the backward reads it */
    const Node **late;  /* by value: the first product in the backward that quantises it, or NULL */
    Quantized *quantized;
    int n_quantized, quantized_capacity;
    Widened *widened;
    int n_widened, widened_capacity;
} Quantizer;

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

static bool is_weight(const Node *node) {
    return node_is_copy(node) ||
           (node->op == OP_PARAM && node_is_frozen(node) && node->types[0].dtype == DTYPE_BF16);
}

static bool is_one_of_batch(const Node *product) {
    const Type *a = value_type(product->inputs[0]), *b = value_type(product->inputs[1]);
    for (int k = 0; k < a->rank; k++) {
        bool summed = node_over(product, ATTR_over, a->axes[k]);
        if (!summed && type_find_axis(b, a->axes[k]) >= 0) return true;
    }
    return false;
}

static Side side_of(const Quantizer *q, const Node *product, int i) {
    const Type *type = value_type(product->inputs[i]), *other = value_type(product->inputs[1 - i]);
    const Attr *over = node_attr(product, ATTR_over);
    Side side = {.summed.count = 0};
    if (q->ctx->options.fp8_tensor_cores && !is_one_of_batch(product)) {
        side.last.count = over->axes.count;
        memcpy(side.last.axes, over->axes.items, sizeof(int) * (size_t)over->axes.count);
    }
    for (int k = 0; k < type->rank; k++) {
        int axis = type->axes[k];
        bool summed = node_over(product, ATTR_over, axis);
        if (axis == q->batch || (!summed && type_find_axis(other, axis) >= 0)) continue;
        Run *run = summed ? &side.summed : &side.own;
        run->axes[run->count++] = axis;
    }
    return side;
}

static bool holds_blocks(const Type *type, const Run *run, const Run *beside) {
    int64_t factors[MAX_RANK] = {1, 1, 1, 1, 1, 1};
    Type scales = *type;
    BlockLayout layout;
    if (!block_run(type, run->axes, run->count, factors)) return false;
    if (beside && !block_run(type, beside->axes, beside->count, factors)) return false;
    for (int k = 0; k < type->rank; k++) scales.dims[k] /= factors[k];
    return block_layout(type, &scales, type, &layout);
}

/* One of a block's weights with an activation or its gradient; or two of these whose product is a
 * share of a weight's gradient, which alone are f32. */
static bool is_of_weights(const Node *node, const bool *is_share) {
    if (node->op != OP_MATMUL || node->block == NO_BLOCK || node->phase == PHASE_UPDATE ||
        node->n_inputs != 2 || node_attr(node, ATTR_to)) {
        return false;
    }
    int n_weights = 0;
    for (int i = 0; i < 2; i++) {
        const Node *from = node->inputs[i].node;
        if (value_type(node->inputs[i])->dtype != DTYPE_BF16) return false;
        n_weights += is_weight(from);
        if (OPS[from->op].flags & PERSISTENT && !is_weight(from)) return false;
    }
    return n_weights == 1 || (n_weights == 0 && is_share[node->id]);
}

static bool may_quantize(const Quantizer *q, const Node *node) {
    if (!is_of_weights(node, q->is_share)) return false;
    for (int i = 0; i < 2; i++) {
        const Type *type = value_type(node->inputs[i]);
        Side side = side_of(q, node, i);
        bool tiles = is_weight(node->inputs[i].node);
        for (int k = 0; k < side.own.count; k++) {
            if (side.own.axes[k] == q->experts) return false;
        }
        if (!holds_blocks(type, &side.summed, tiles ? &side.own : NULL)) return false;
        int64_t factors[MAX_RANK];
        if (!block_run(type, side.own.axes, side.own.count, factors)) return false;
    }
    return true;
}

/* Products that are added to a weight's gradient as they are. Of a weight that something is done to
 * first, so is something to its gradient. */
static void find_shares(Quantizer *q) {
    for (int n = 0; n < q->in->n_nodes; n++) {
        const Node *node = q->in->nodes[n];
        if (node->op != OP_ACCUMULATE || node->phase != PHASE_BACKWARD) continue;
        q->is_share[node->inputs[1].node->id] = true;
    }
}

static void find_readers(Quantizer *q) {
    for (int n = 0; n < q->in->n_nodes; n++) {
        const Node *node = q->in->nodes[n];
        q->may[n] = may_quantize(q, node);
        for (int i = 0; i < node->n_inputs && node->phase == PHASE_BACKWARD; i++) {
            int at = value_index(node->inputs[i]);
            if (!q->may[n]) q->otherwise[at] = true;
            if (q->may[n] && !q->late[at]) q->late[at] = node;
        }
    }
}

static bool run_equal(const Run *a, const Run *b) {
    return a->count == b->count && memcmp(a->axes, b->axes, sizeof(int) * (size_t)a->count) == 0;
}

/* Would a row of tiles' scales be no multiple of four long, if t divides it? */
static bool needs_each(const Quantizer *q, const Type *type, const Run *last) {
    int64_t blocks = 1, t = q->ctx->options.mesh.size[MESH_T];
    for (int k = 0; k < last->count; k++) {
        blocks *= type->dims[type_find_axis(type, last->axes[k])];
    }
    return blocks / SCALE_BLOCK % (4 * t) != 0;
}

static int quantize_attrs(const Quantizer *q, Value from, const Side *side, bool tiles,
                          Attr out[4]) {
    int n = 0;
    out[n++] = attr_axes(ATTR_over, side->summed.axes, side->summed.count);
    if (tiles) out[n++] = attr_axes(ATTR_beside, side->own.axes, side->own.count);
    if (side->last.count) out[n++] = attr_axes(ATTR_last, side->last.axes, side->last.count);
    if (side->last.count && tiles && needs_each(q, value_type(from), &side->last)) {
        out[n++] = attr_int(ATTR_each, 1);
    }
    return n;
}

/* `from`: a value of the new graph; `at`: gives place and line of the node. */
static Node *quantize_value(Quantizer *q, Value from, const Side *side, bool tiles,
                            const Node *at) {
    for (int i = q->n_quantized - 1; i >= 0; i--) {
        const Quantized *known = &q->quantized[i];
        if (!value_equal(known->from, from) || !run_equal(&known->over, &side->summed)) continue;
        if (!run_equal(&known->last, &side->last)) continue;
        bool early = known->phase == PHASE_FORWARD && !tiles;
        bool here = known->node->block == at->block && known->node->chunk == at->chunk;
        if (here && (known->phase == at->phase || early)) return known->node;
    }
    Attr attrs[4];
    int n_attrs = quantize_attrs(q, from, side, tiles, attrs);
    Node *node = pass_build(q->ctx, q->out, OP_QUANTIZE, at, at->phase, &from, 1, attrs, n_attrs);
    if (!node) BUG("quantize_products: cannot quantise");
    Quantized made = {from, side->summed, side->last, at->phase, node};
    ARENA_PUSH(q->ctx->arena, q->quantized, q->n_quantized, q->quantized_capacity, made);
    return node;
}

static Value widen(Quantizer *q, Node *from, const Node *reader) {
    for (int i = q->n_widened - 1; i >= 0; i--) {
        const Widened *known = &q->widened[i];
        if (known->phase != reader->phase || known->block != reader->block) break;
        if (known->chunk == reader->chunk && known->from == from) return known->value;
    }
    Value parts[2] = {node_value(from, 0), node_value(from, 1)};
    Node *node =
        pass_build(q->ctx, q->out, OP_DEQUANTIZE, reader, reader->phase, parts, 2, NULL, 0);
    if (!node) BUG("quantize_products: cannot widen");
    Widened made = {from, reader->phase, reader->block, reader->chunk, node_value(node, 0)};
    ARENA_PUSH(q->ctx->arena, q->widened, q->n_widened, q->widened_capacity, made);
    return made.value;
}

static Node *copy_product(Quantizer *q, const Node *node) {
    Value inputs[2];
    for (int i = 0; i < 2; i++) {
        Side side = side_of(q, node, i);
        bool tiles = is_weight(node->inputs[i].node);
        Value from = *value_map_at(&q->map, node->inputs[i]);
        inputs[i] = widen(q, quantize_value(q, from, &side, tiles, node), node);
    }
    return graph_copy_node(q->out, node, inputs, q->ctx->diag);
}

/* What only gradients of weights read of it in the backward: kept as they need it. */
static void quantize_early(Quantizer *q, const Node *node) {
    for (int o = 0; o < node->n_outputs && node->phase == PHASE_FORWARD; o++) {
        Value value = node_value((Node *)node, o);
        const Node *late = q->late[value_index(value)];
        if (!late || q->otherwise[value_index(value)] || OPS[node->op].flags & PERSISTENT) continue;
        if (late->block != node->block || late->chunk != node->chunk) continue;
        Side side = side_of(q, late, value_equal(late->inputs[1], value));
        quantize_value(q, *value_map_at(&q->map, value), &side, false, node);
    }
}

static bool copy_node(Quantizer *q, const Node *node) {
    Node *copy = q->may[node->id] ? copy_product(q, node)
                                  : value_map_copy(&q->map, node, q->out, q->ctx->diag);
    if (!copy) return false;
    value_map_set_node(&q->map, node, copy);
    quantize_early(q, node);
    return true;
}

Graph *pass_quantize_products(const Graph *in, PassContext *ctx) {
    if (ctx->options.precision != DTYPE_FP8) return (Graph *)in;
    Arena *arena = ctx->arena;
    size_t n_values = (size_t)in->n_nodes * MAX_OUTPUTS + 1;
    Quantizer q = {.ctx = ctx,
                   .in = in,
                   .out = graph_create_like(in, arena),
                   .map = value_map_create(in, arena),
                   .batch = axis_find(&in->axes, "batch", 5),
                   .experts = axis_find(&in->axes, "experts", 7),
                   .is_share = ARENA_ARRAY(arena, bool, in->n_nodes + 1),
                   .may = ARENA_ARRAY(arena, bool, in->n_nodes + 1),
                   .otherwise = ARENA_ARRAY(arena, bool, n_values),
                   .late = ARENA_ARRAY(arena, const Node *, n_values)};
    find_shares(&q);
    find_readers(&q);
    for (int n = 0; n < in->n_nodes; n++) {
        if (!copy_node(&q, in->nodes[n])) return NULL;
    }
    return q.out;
}

bool check_quantized(const Graph *graph, DType precision, const char *here, Diag *diag) {
    bool any = precision != DTYPE_FP8;
    for (int n = 0; n < graph->n_nodes && !any; n++) any = graph->nodes[n]->op == OP_QUANTIZE;
    if (any) return true;
    diag_error(diag, NO_LOC,
               "--precision fp8: no block has a product whose sides and positions%s hold whole "
               "blocks of %d, the sizes that share a scale; use bf16",
               here, SCALE_BLOCK);
    return false;
}
