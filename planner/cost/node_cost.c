#include "planner/cost/node_cost.h"

#include "ir/expr.h"
#include "ir/op.h"
#include "ir/ops/loss.h"
#include "ir/ops/rotary.h"
#include "planner/cost/device_time.h"

#include <math.h>
#include <string.h>

static Type local_type(Value value, const Mesh *mesh) {
    return type_local(value_type(value), value_sharding(value), mesh);
}

static double local_bytes(Value value, const Mesh *mesh) {
    return (double)type_local_bytes(value_type(value), value_sharding(value), mesh);
}

static bool layout_of(const NodePricer *x, const Node *node, MatmulLayout *out) {
    *out = x->layouts[node->id];
    return out->batch > 0;
}

static const MatmulLayout *find_layouts(const Graph *graph, Arena *arena) {
    MatmulLayout *layouts = ARENA_ARRAY(arena, MatmulLayout, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_MATMUL) continue;
        Type a = local_type(node->inputs[0], &graph->mesh);
        Type b = local_type(node->inputs[1], &graph->mesh);
        if (!matmul_layout(node, &a, &b, &layouts[n])) layouts[n].batch = 0;
    }
    return layouts;
}

/* Products of one left operand that run at once: alike, too small to fill a device. That they lie
 * equally far apart is assumed. */
static bool can_batch(const NodePricer *x, const Node *a, const Node *b) {
    MatmulLayout p, q;
    if (a->op != OP_MATMUL || a->phase != b->phase || a->block != b->block) return false;
    if (!layout_of(x, a, &p) || !layout_of(x, b, &q) || p.batch != 1 || q.batch != 1) return false;
    return value_equal(a->inputs[0], b->inputs[0]) && p.m == q.m && p.n == q.n && p.k == q.k &&
           !matmul_is_large(&p);
}

/* Products of one operand and of one block, in one phase: run as one, as if their other operands
 * lay side by side. */
static bool can_join(const NodePricer *x, const Node *a, const Node *b) {
    MatmulLayout p, q;
    if (x->cluster->software.batches_products) return can_batch(x, a, b);
    if (a->op != OP_MATMUL || a->phase != b->phase || a->block != b->block) return false;
    if (!layout_of(x, a, &p) || !layout_of(x, b, &q) || p.batch != 1 || q.batch != 1) return false;
    bool left = value_equal(a->inputs[0], b->inputs[0]) && p.m == q.m;
    bool right = value_equal(a->inputs[1], b->inputs[1]) && p.n == q.n;
    return p.k == q.k && (left || right);
}

/* Products of what the gradient of attention makes, turned by rotary or not, added up as one
 * (runtime/cuda: products that are added up). That memory lies so is assumed, which with ZeRO from
 * 2 on it mostly does not. */
static bool can_stack(const NodePricer *x, const Node *a, const Node *b) {
    MatmulLayout p, q;
    const ClusterSoftware *software = &x->cluster->software;
    if (a->op != OP_MATMUL || b->op != OP_MATMUL || a->phase != b->phase ||
        !software->batches_products || !software->folds_epilogues) {
        return false;
    }
    const Value one = rotary_source(a->inputs[0]), other = rotary_source(b->inputs[0]);
    if (one.node->op != OP_ATTENTION_GRAD || other.node != one.node ||
        one.node->phase != a->phase || one.output == other.output) {
        return false;
    }
    return layout_of(x, a, &p) && layout_of(x, b, &q) && p.batch == 1 && q.batch == 1 &&
           p.m == q.m && p.n == q.n;
}

/* How often the graph reads what a node makes. */
static int count_readers(const int *uses, const Node *node) {
    int n = 0;
    for (int o = 0; o < node->n_outputs; o++) n += uses[node->id * MAX_OUTPUTS + o];
    return n;
}

/* Is all that reads the gradients of the same phase, are all three multiplied and added up, and is
 * it worth it? */
static bool is_stacked(const NodePricer *x, const int *uses, const Node *product) {
    const Node *maker = rotary_source(product->inputs[0]).node;
    MatmulLayout own, all = {0};
    int n_products = 0, n_left = count_readers(uses, maker);
    for (int n = maker->id + 1; n_left > 0 && n < x->graph->n_nodes; n++) {
        const Node *node = x->graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            if (rotary_source(node->inputs[i]).node != maker) continue;
            if (node->phase != maker->phase) return false;
            n_left--;
            if (node->op == OP_ROTARY) {
                n_left += count_readers(uses, node);
                continue;
            }
            if (i > 0 || (node != product && !can_stack(x, product, node))) continue;
            layout_of(x, node, &own);
            all.m = own.m;
            all.n = own.n;
            all.k += own.k;
            n_products++;
        }
    }
    return n_products == maker->n_outputs &&
           matmul_sum_is_one(&all, value_type(product->inputs[0])->dtype);
}

static void find_joined(NodePricer *x, const int *uses) {
    enum { NEAR = 24 }; /* nodes between them */
    for (int n = 0; n < x->graph->n_nodes; n++) {
        const Node *node = x->graph->nodes[n];
        x->joined[n] = x->last_joined[n] = n;
        const ClusterSoftware *software = &x->cluster->software;
        if (node->op != OP_MATMUL) continue;
        if (!software->joins_products && !software->batches_products) continue;
        for (int k = n - 1; k >= 0 && k >= n - NEAR && x->joined[n] == n; k--) {
            const Node *other = x->graph->nodes[k];
            if (can_join(x, other, node) ||
                (can_stack(x, other, node) && is_stacked(x, uses, node))) {
                x->joined[n] = x->joined[k];
                x->last_joined[x->joined[n]] = n;
            }
        }
    }
}

/* Results that the op's own kernel can go on with: a product's, a norm's gradient, which adds what
 * came past the norm, and sums, which go straight into accumulators. */
static bool goes_on(Value from, const Node *reader) {
    switch (from.node->op) {
    case OP_MATMUL: return true;
    case OP_LAYERNORM_GRAD:
    case OP_RMSNORM_GRAD: return from.output == 0 || reader->op == OP_ACCUMULATE;
    case OP_REDUCE_SUM: return reader->op == OP_ACCUMULATE;
    default: return false;
    }
}

/* Programs of nothing but what products and norms do as they store their result. */
static bool ends_product(const Node *node) {
    Expr expr;
    const char *error;
    if (node->op != OP_FUSED) return node->op == OP_ACCUMULATE || op_ends_product(node->op);
    if (!expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) return false;
    for (int i = 0; i < expr.n_instructions; i++) {
        if (!op_ends_product(expr.instructions[i].op)) return false;
    }
    return true;
}

/* Such elementwise work on such a result that nothing else reads. */
static void find_folded(NodePricer *x, const int *uses) {
    for (int n = 0; n < x->graph->n_nodes; n++) {
        const Node *node = x->graph->nodes[n];
        bool elementwise = OPS[node->op].flags & ELEMENTWISE_BIT || node->op == OP_FUSED ||
                           node->op == OP_ACCUMULATE;
        if (!elementwise || !x->cluster->software.folds_epilogues || !ends_product(node)) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            Value from = node->inputs[i];
            x->folded[n] |= goes_on(from, node) && from.node->phase == node->phase &&
                            uses[from.node->id * MAX_OUTPUTS + from.output] == 1;
        }
    }
}

/* The layernorm whose gradient, perhaps with what came past it, the value is; NULL: none. */
static const Node *find_norm(const NodePricer *x, Value value) {
    const Node *node = value.node;
    if (node->op == OP_LAYERNORM_GRAD) return value.output == 0 ? node : NULL;
    for (int i = 0; i < node->n_inputs && x->folded[node->id]; i++) {
        const Node *norm = node->inputs[i].node;
        if (norm->op == OP_LAYERNORM_GRAD && node->inputs[i].output == 0) return norm;
    }
    return NULL;
}

/* A layernorm's gradient makes one sum over the rows that it stores, and cross-entropy's reads the
 * logits once for the log-sum-exp, too. (Not where other micro-batches' forward comes in between,
 * as in gpipe, which is not looked at here.) */
static void find_absorbed(NodePricer *x, bool *sums) {
    for (int n = 0; n < x->graph->n_nodes && x->cluster->software.folds_epilogues; n++) {
        const Node *node = x->graph->nodes[n];
        float dloss;
        if (node->op == OP_REDUCE_SUM) {
            Type rows = local_type(node->inputs[0], &x->graph->mesh);
            const Type *sum = &node->types[0];
            const Node *norm = find_norm(x, node->inputs[0]);
            if (!norm || sums[norm->id] || sum->dtype != DTYPE_F32 || sum->rank != 1 ||
                sum->axes[0] != rows.axes[rows.rank - 1] || norm->phase != node->phase) {
                continue;
            }
            x->absorbed[n] = sums[norm->id] = true;
        } else if (node->op == OP_CROSS_ENTROPY_GRAD && loss_is_joint(node, &dloss)) {
            Type logits = local_type(node->inputs[0], &x->graph->mesh);
            int64_t row = logits.dims[logits.rank - 1] * dtype_bytes(logits.dtype);
            x->absorbed[node->inputs[2].node->id] = row <= LOSS_ROW_BYTES;
        }
    }
}

/* Updates that the kernel of an earlier one does, too. */
static void find_continued(NodePricer *x) {
    bool seen[N_OPS] = {false};
    for (int n = 0; n < x->graph->n_nodes; n++) {
        const Node *node = x->graph->nodes[n];
        bool update = op_updates_elements(node->op) || node->op == OP_SUMSQ;
        if (!update || !x->cluster->software.joins_updates) continue;
        x->continued[n] = seen[node->op];
        seen[node->op] = true;
    }
}

NodePricer node_pricer_create(const Cluster *cluster, const Graph *graph, Arena *arena) {
    NodePricer x = {.cluster = cluster, .graph = graph};
    const int *uses = graph_count_uses(graph, arena);
    x.layouts = find_layouts(graph, arena);
    x.joined = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
    x.last_joined = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
    x.folded = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    find_joined(&x, uses);
    x.continued = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    find_folded(&x, uses);
    x.absorbed = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    find_absorbed(&x, ARENA_ARRAY(arena, bool, graph->n_nodes + 1));
    find_continued(&x);
    for (int n = 0; n < graph->n_nodes; n++) x.quantizes |= graph->nodes[n]->op == OP_QUANTIZE;
    return x;
}

static int64_t round_up(int64_t size, int multiple) {
    return (size + multiple - 1) / multiple * multiple;
}

/* Software that divides a vocabulary pads it to what kernels like; whole ones may stay odd. */
static void pad_shares(MatmulLayout *layout, const NodePricer *x) {
    int multiple = x->cluster->software.share_multiple;
    if (multiple < 2 || x->graph->mesh.size[MESH_T] < 2) return;
    int64_t *sizes[] = {&layout->m, &layout->n, &layout->k};
    for (int i = 0; i < 3; i++) *sizes[i] = round_up(*sizes[i], multiple);
}

static bool is_weight_gradient(const Node *node) {
    return (node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS) &&
           matmul_accumulator(node) >= 0;
}

/* Software that multiplies in fp8 does so with all weights, but in a graph that says with which. */
static bool is_fp8(const NodePricer *x, const Node *product) {
    if (matmul_is_scaled(product)) return x->cluster->device.fp8_blocks;
    if (!x->cluster->software.fp8_products) return false;
    return !x->quantizes || (product->inputs[0].node->op == OP_DEQUANTIZE &&
                             product->inputs[1].node->op == OP_DEQUANTIZE);
}

/* Products of a batch issued one by one on a few streams: so many are together on the device, whose
 * last wave they fill no better than such a product. */
static double streamed_us(const ClusterDevice *device, MathKind math, ProductShape shape,
                          int streams) {
    int64_t n_rounds = shape.batch / streams, rest = shape.batch % streams;
    shape.batch = streams;
    double us = n_rounds > 0 ? (double)n_rounds * device_product_us(device, math, &shape) : 0;
    shape.batch = rest;
    return rest > 0 ? us + device_product_us(device, math, &shape) : us;
}

/* What multiplies weights is read in 16 bits and written in 8, as rows and as columns: forward the
 * activations, which the weights' gradients read, too; backward the gradients. */
static void add_quantization(PhaseCost *cost, const Cluster *cluster, const ProductShape *shape) {
    double elements = (double)shape->batch * (double)shape->m * (double)shape->k;
    double bytes = cluster->software.quantize_bytes * elements;
    if (bytes <= 0) return;
    cost->memory_us += device_memory_us(&cluster->device, bytes);
    cost->n_ops++;
}

static void add_product(PhaseCost *cost, const NodePricer *x, const Node *node) {
    const Cluster *cluster = x->cluster;
    MatmulLayout layout;
    if (!layout_of(x, node, &layout)) return;
    cost->flops +=
        2.0 * (double)layout.batch * (double)layout.m * (double)layout.n * (double)layout.k;
    double accumulated = cluster->software.accumulate_bytes * (double)layout.batch *
                         (double)layout.m * (double)layout.n;
    if (is_weight_gradient(node) && accumulated > 0) {
        cost->memory_us += device_memory_us(&cluster->device, accumulated);
        cost->n_ops++;
    }
    bool stacked = false;
    if (x->joined[node->id] != node->id) return;
    if (matmul_is_dots(&layout)) { /* as long as reading takes */
        double bytes = local_bytes(node->inputs[0], &x->graph->mesh);
        if (!value_equal(node->inputs[0], node->inputs[1])) bytes *= 2;
        cost->memory_us += device_memory_us(&cluster->device, bytes);
        cost->n_ops++;
        return;
    }
    for (int n = node->id + 1; n <= x->last_joined[node->id]; n++) {
        const Node *other = x->graph->nodes[n];
        MatmulLayout beside;
        if (x->joined[n] != node->id || !layout_of(x, other, &beside)) continue;
        bool left = value_equal(other->inputs[0], node->inputs[0]);
        if (can_stack(x, node, other)) {
            layout.k += beside.k;
            stacked = true;
            continue;
        }
        if (cluster->software.batches_products) {
            layout.batch++;
            continue;
        }
        *(left ? &layout.n : &layout.m) += left ? beside.n : beside.m;
    }
    Type a = local_type(node->inputs[0], &x->graph->mesh);
    MathKind math = cluster_math(cluster, a.dtype == DTYPE_FP8 ? DTYPE_BF16 : a.dtype);
    if (math == MATH_BF16 && is_fp8(x, node)) math = MATH_FP8;
    pad_shares(&layout, x);
    bool bytes = x->quantizes && math == MATH_FP8;
    ProductShape shape = {layout.batch, layout.m, layout.n, layout.k,
                          dtype_bytes(bytes ? DTYPE_FP8 : a.dtype)};
    if (math == MATH_FP8 && !x->quantizes && !is_weight_gradient(node)) {
        add_quantization(cost, cluster, &shape);
    }
    if (stacked) { /* weights are copied one below the other */
        double weights = (double)layout.k * (double)layout.n * dtype_bytes(a.dtype);
        cost->memory_us += device_memory_us(&cluster->device, 2 * weights);
        cost->n_ops++;
    }
    int streams = cluster->software.product_streams;
    bool alone = streams == 0 || shape.batch < 2;
    cost->product_us += alone ? device_product_us(&cluster->device, math, &shape)
                              : streamed_us(&cluster->device, math, shape, streams);
    cost->n_ops += alone ? 1 : (int)shape.batch;
}

/* q [batch, seq, kv_heads, (group,) head] */
static AttentionShape attention_shape(const Node *node, const Cluster *cluster, const Mesh *mesh) {
    Type q = local_type(node->inputs[0], mesh);
    int64_t group = q.rank == 5 ? q.dims[3] : 1;
    return (AttentionShape){.batch = q.dims[0],
                            .seq = q.dims[1],
                            .kv_heads = q.dims[2],
                            .heads = q.dims[2] * group,
                            .head = q.dims[q.rank - 1],
                            .window = node_int(node, ATTR_window, 0),
                            .causal = node_int(node, ATTR_causal, 1) != 0,
                            .dropout = cluster && cluster->software.attention_dropout,
                            .bytes_per_element = dtype_bytes(q.dtype),
                            .keys = local_type(node->inputs[1], mesh).dims[1],
                            .values = value_type(node->inputs[2])->dims[3],
                            .documents = attention_documents(node) >= 0,
                            .capped = node_attr(node, ATTR_softcap) != NULL,
                            .drops = attention_drops(node)};
}

double attention_score_elements(const Node *node, const Mesh *mesh) {
    AttentionShape shape = attention_shape(node, NULL, mesh);
    return (double)shape.batch * (double)shape.heads * (double)shape.seq * (double)shape.keys;
}

static void add_attention(PhaseCost *cost, const Cluster *cluster, const Node *node,
                          const Mesh *mesh, bool backward) {
    AttentionShape shape = attention_shape(node, cluster, mesh);
    Type operands[3];
    for (int i = 0; i < 3; i++) operands[i] = local_type(node->inputs[i], mesh);
    int n_ops = 1;
    cost->attention_us += device_attention_us(cluster, cluster_math(cluster, operands[0].dtype),
                                              &shape, backward, &n_ops);
    double forward = OPS[OP_ATTENTION].flops(node, operands, NULL);
    double again = OPS[OP_ATTENTION_GRAD].flops(node, operands, NULL);
    if (cluster->software.attention == ATTENTION_MATERIALISED) { /* all scores, then a mask */
        forward = 2 * (double)shape.batch * (double)shape.heads * (double)shape.seq *
                  (double)shape.keys * (double)(shape.head + shape.values);
        again = 2 * forward; /* backward makes none again */
    }
    cost->flops += backward ? again : forward;
    cost->n_ops += n_ops;
}

/* What own kernels of linear attention by chunks do on tensor cores, of local operands: in all, and
 * what they move; of a part of the batch, steps that wait for each other in its sweeps, and
 * launches. `rows`: positions of a group; `heads`: of all sequences. */
typedef struct ChunkWork {
    double flops, bytes;
    int n_sweeps, n_launches;
} ChunkWork;

static ChunkWork count_chunk_work(const Node *node, const Type *operands, int64_t runs) {
    enum { CHUNK = LINEAR_ATTENTION_CHUNK };
    const Type *q = &operands[0], *v = &operands[2];
    double keys = (double)q->dims[q->rank - 1], values = (double)v->dims[v->rank - 1];
    double rows = (double)type_elements(q) / keys, heads = (double)type_elements(v) / values;
    double state = 2 * heads * keys * values, own = 2 * heads * CHUNK * values; /* FLOPs */
    double shared = 2 * rows * CHUNK * keys, squares = 2 * heads * CHUNK * keys;
    double states = 2 * heads / CHUNK * keys * values, square = 2 * heads * CHUNK; /* bytes */
    bool delta = linear_attention_write(node) >= 0;
    if (node->op == OP_LINEAR_ATTENTION && !delta) {
        return (ChunkWork){2 * state + own + shared, 2 * states, 1, 2};
    }
    if (node->op == OP_LINEAR_ATTENTION) {
        return (ChunkWork){3 * state + 2 * own + squares + shared, 2 * states + 2 * square, 3, 3};
    }
    /* Tiles of 64 keys each make the products of values and their gradients again. */
    double tiles = ceil(keys / CHUNK), sums = 2 * 4 * rows * keys * (double)runs;
    if (!delta) {
        return (ChunkWork){5 * state + (1 + 2 * tiles) * own + 4 * shared, 5 * states + 2 * sums, 2,
                           8};
    }
    return (ChunkWork){7 * state + (2 + 4 * tiles) * own + 2 * squares + 6 * shared,
                       6 * states + 4 * square + 4 * sums, 4, 10};
}

/* In 16 bits a GPU's tensor cores do it chunk by chunk. Sweeps over the states go along a sequence;
 * the rest is of all chunks at once. CHUNK_SHARE is assumed, as nothing of it was measured: a warp
 * with 16 rows reads shared memory for as long as it multiplies (attention with 32 rows is at 60 %
 * at most), and weighs by decays in between. */
static void add_chunks(PhaseCost *cost, const Cluster *cluster, const Node *node,
                       const Type *operands, double bytes) {
    static const double CHUNK_SHARE = 0.25;
    enum { BLOCKS_A_UNIT = 2 };
    /* A product that waits for the one before it, through shared memory: some 1,700 cycles of
     * barriers, fragments and a warp's 32 to 64 products. */
    static const double STEP_US = 1;
    const ClusterDevice *device = &cluster->device;
    const Type *q = &operands[0], *v = &operands[2];
    ChunkDivision division = linear_attention_divide(node, operands, LINEAR_ATTENTION_PART_BYTES);
    ChunkWork work = count_chunk_work(node, operands, division.runs);
    double parts = ceil((double)q->dims[0] / (double)division.sequences);
    double values = (double)v->dims[v->rank - 1];
    double heads = (double)type_elements(v) / values / (double)q->dims[1] / (double)q->dims[0];
    double blocks = heads * (double)division.sequences * ceil(values / LINEAR_ATTENTION_CHUNK);
    double waves = ceil(blocks / (BLOCKS_A_UNIT * (double)device->n_units));
    double steps = work.n_sweeps * waves * ceil((double)q->dims[1] / LINEAR_ATTENTION_CHUNK);
    double us = work.flops / (CHUNK_SHARE * device->peak_flops[MATH_BF16]) * 1e6;
    double memory_us = device_memory_us(device, bytes + work.bytes);
    cost->attention_us += parts * steps * STEP_US + (us > memory_us ? us : memory_us);
    cost->n_ops += (int)parts * work.n_launches;
}

/* A state lies in registers, or a CPU's first cache, and changes position by position, by ordinary
 * arithmetic in f32: of its rate STATE_SHARE is assumed, where there are enough columns of states
 * to keep every unit of the device busy while others wait. */
static void add_linear_attention(PhaseCost *cost, const Cluster *cluster, const Node *node,
                                 const Mesh *mesh) {
    static const double STATE_SHARE = 0.4;
    enum { COLUMNS = 64, BLOCKS_A_UNIT = 2 }; /* of own kernels: two warps for each scheduler */
    Type operands[8], *v = &operands[2];
    double bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        operands[i] = local_type(node->inputs[i], mesh);
        bytes += (double)type_bytes(&operands[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        Type type = local_type(node_value((Node *)node, o), mesh);
        bytes += (double)type_bytes(&type);
    }
    double flops = OPS[node->op].flops(node, operands, NULL);
    cost->flops += flops;
    if (!cluster->is_cpu && cluster->device.peak_flops[MATH_BF16] > 0 &&
        linear_attention_by_chunks(node, operands)) {
        add_chunks(cost, cluster, node, operands, bytes);
        return;
    }
    double columns = (double)type_elements(v) / (double)v->dims[1];
    double busy = columns / (COLUMNS * BLOCKS_A_UNIT * (double)cluster->device.n_units);
    double rate = STATE_SHARE * cluster->device.peak_flops[MATH_F32] * (busy < 1 ? busy : 1);
    double memory_us = device_memory_us(&cluster->device, bytes), us = flops / rate * 1e6;
    cost->attention_us += us > memory_us ? us : memory_us;
    cost->n_ops++;
}

CollectiveKind collective_kind(OpKind op) {
    switch (op) {
    case OP_ALL_GATHER: return COLLECTIVE_ALL_GATHER;
    case OP_REDUCE_SCATTER: return COLLECTIVE_REDUCE_SCATTER;
    case OP_ALL_TO_ALL: return COLLECTIVE_ALL_TO_ALL;
    default: return COLLECTIVE_ALL_REDUCE;
    }
}

/* Experts that a token goes to: of the rows that the block's dispatch makes, or its gradient reads,
 * those of one token, on all ranks of t. 1 if there is none near by. */
static double choices_of(const NodePricer *x, const Node *node) {
    for (int n = 0; n < x->graph->n_nodes; n++) {
        const Node *other = x->graph->nodes[n];
        if (other->op != OP_DISPATCH || other->block != node->block) continue;
        const Type *tokens = value_type(other->inputs[0]);
        const Type *rows = value_type(node_value((Node *)other, 0));
        return (double)type_elements(rows) / (double)type_elements(tokens);
    }
    return 1;
}

/* Of the rows that leave a node, how many do where a token goes to a node once: its choices fall on
 * nodes evenly, on at most so many as the software's routing allows (2412.19437, section 3.2.2). */
static double crossing_share(const ClusterSoftware *software, const CollectiveGroup *group,
                             double n_choices) {
    double nodes = (double)group->n_ranks / group->per_node;
    double most = software->exchange_most_nodes;
    if (!software->exchange_once_a_node || nodes <= 1 || n_choices <= 1) return 1;
    if (most == 0 || most > nodes) most = nodes;
    return most * (1 - pow(1 - 1 / most, n_choices)) / n_choices;
}

static void add_collective(PhaseCost *cost, const NodePricer *x, const Node *node) {
    const Cluster *cluster = x->cluster;
    const Mesh *mesh = &x->graph->mesh;
    const char *axis = node_string(node, ATTR_mesh);
    int mesh_axis = mesh_axis_find(axis, (int)strlen(axis));
    int t = mesh->size[MESH_T], n_devices = cluster->node.n_devices;
    if (mesh_axis == MESH_H) mesh_axis = MESH_C;
    bool within = mesh_axis == MESH_T || mesh_axis == MESH_C || mesh_axis == MESH_E;
    if (!within || mesh->size[mesh_axis] < 2) return;
    CollectiveGroup group = {t, t < n_devices ? t : n_devices, 1};
    if (mesh_axis != MESH_T) {
        Placement placement = {n_devices, t, 1, 1, mesh->size[MESH_C], mesh->size[MESH_E], 1};
        group = placement_group(&placement, mesh_axis);
    }
    Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
    CollectiveKind kind = collective_kind(node->op);
    double bytes = local_bytes(whole, mesh);
    double us = 0;
    if (kind == COLLECTIVE_ALL_TO_ALL && node_is_exchange(node)) {
        double crossing = crossing_share(&cluster->software, &group, choices_of(x, node));
        us = exchange_us(cluster, bytes, &group, crossing);
        cost->exchange_us += us;
    } else {
        us = collective_us(cluster, kind, bytes, &group);
    }
    cost->collective_us += us;
    cost->collective_bytes += bytes;
    cost->n_collectives++;
}

/* Rows of tokens are read as often as they are sent: as much as there is of slots. */
static double routed_bytes(const NodePricer *x, const Node *node) {
    Value rows = node->op == OP_DISPATCH ? node_value((Node *)node, 0) : node->inputs[0];
    double bytes = local_bytes(rows, &x->graph->mesh);
    if (node->op != OP_COMBINE) return 2 * bytes;
    return bytes + local_bytes(node_value((Node *)node, 0), &x->graph->mesh);
}

/* What a look-up or its gradient touches of the table is as much as it gives or takes. */
static double traffic_bytes(const NodePricer *x, const Node *node) {
    const Mesh *mesh = &x->graph->mesh;
    const ClusterSoftware *software = &x->cluster->software;
    double bytes = 0;
    bool lookup = node->op == OP_EMBEDDING, scatter = node->op == OP_EMBEDDING_GRAD;
    double loss_bytes = node->op == OP_LOGSUMEXP            ? software->loss_forward_bytes
                        : node->op == OP_CROSS_ENTROPY_GRAD ? software->loss_backward_bytes
                                                            : 0;
    if (loss_bytes > 0) {
        Type logits = local_type(node->inputs[0], mesh);
        return loss_bytes * (double)type_elements(&logits);
    }
    bool routed = node->op == OP_DISPATCH || node->op == OP_COMBINE || node->op == OP_SLOT_DOT;
    if (routed) return routed_bytes(x, node);
    for (int i = 0; i < node->n_inputs; i++) {
        if ((lookup && i == 1) || (scatter && i != 1)) continue;
        bytes += local_bytes(node->inputs[i], mesh);
    }
    if (scatter) return 3 * bytes;
    for (int o = 0; o < node->n_outputs; o++) {
        bytes += local_bytes(node_value((Node *)node, o), mesh);
    }
    return lookup ? 2 * bytes : bytes;
}

/* Without the result that it goes on from, which is neither written nor read. */
static double folded_bytes(const NodePricer *x, const Node *node) {
    double bytes = traffic_bytes(x, node);
    for (int i = 0; i < node->n_inputs; i++) {
        if (!goes_on(node->inputs[i], node)) continue;
        bytes -= 2 * local_bytes(node->inputs[i], &x->graph->mesh);
    }
    return bytes > 0 ? bytes : 0;
}

void node_cost_add(PhaseCost *cost, const NodePricer *pricer, const Node *node) {
    const ClusterDevice *device = &pricer->cluster->device;
    unsigned flags = OPS[node->op].flags;
    if (!(flags & KERNEL) || op_is_number(node->op) || pricer->absorbed[node->id]) return;
    if (node->op == OP_DEQUANTIZE && pricer->cluster->software.fp8_products) return;
    if (flags & COLLECTIVE) {
        add_collective(cost, pricer, node);
    } else if (node->op == OP_MATMUL) {
        add_product(cost, pricer, node);
    } else if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) {
        add_attention(cost, pricer->cluster, node, &pricer->graph->mesh,
                      node->op == OP_ATTENTION_GRAD);
    } else if (linear_attention_decay(node->op) >= 0) {
        add_linear_attention(cost, pricer->cluster, node, &pricer->graph->mesh);
    } else if (pricer->folded[node->id]) {
        double us =
            device_memory_us(device, folded_bytes(pricer, node)) - device_memory_us(device, 0);
        cost->memory_us += us;
    } else if (pricer->continued[node->id]) {
        cost->memory_us += device_stream_us(device, traffic_bytes(pricer, node));
    } else {
        cost->memory_us += device_memory_us(device, traffic_bytes(pricer, node));
        cost->n_ops++;
    }
}

void node_cost_add_attention_again(PhaseCost *cost, const NodePricer *pricer, const Node *node) {
    add_attention(cost, pricer->cluster, node, &pricer->graph->mesh, false);
}

void phase_cost_close(PhaseCost *cost, const ClusterSoftware *software, int t, bool backward) {
    if (software->overlaps_tensor)
        cost->collective_us -=
            (cost->collective_us - cost->exchange_us) *
            (backward ? software->tensor_backward_hidden : software->tensor_forward_hidden);
    double device_us = cost->product_us + cost->attention_us + cost->memory_us;
    double hidden_us = software->exchange_hidden * cost->exchange_us;
    if (hidden_us > device_us) hidden_us = device_us;
    cost->beside_us = (1 - software->overlap_slowdown) * hidden_us;
    cost->collective_us -= cost->beside_us + (1 - software->overlap_slowdown) * cost->within_us;
    cost->us = software_phase_us(software, device_us, cost->collective_us, cost->n_ops,
                                 cost->n_collectives, t, backward);
    cost->host_us = cost->us - device_us - cost->collective_us;
}
