/* Contractions, reductions and layout changes. */
#include "ir/ops/quantize.h"

#include <inttypes.h>
#include <string.h>

static bool axis_in(const Type *type, int axis) {
    return type_find_axis(type, axis) >= 0;
}

static bool require_float(const Node *node, int input, Diag *diag) {
    const Type *type = value_type(node->inputs[input]);
    if (dtype_is_float(type->dtype)) return true;
    diag_error(diag, node->loc, "%s: operand %d is %s; it must be f32, bf16 or f16",
               OPS[node->op].name, input + 1, dtype_name(type->dtype));
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

/* What the result is stored as: the attribute's dtype, or the operands'. */
static bool result_dtype(const Node *node, DType operands, DType *out, Diag *diag) {
    const char *name = node_string(node, ATTR_dtype);
    int dtype = name[0] ? dtype_find(name, (int)strlen(name)) : (int)operands;
    *out = (DType)dtype;
    if (dtype >= 0 && dtype_is_float(*out)) return true;
    diag_error(diag, node->loc, "%s: dtype is '%s'; it must be f32, bf16 or f16",
               OPS[node->op].name, name);
    return false;
}

static bool check_operands(const Node *node, Diag *diag) {
    DType a = value_type(node->inputs[0])->dtype, b = value_type(node->inputs[1])->dtype;
    if (matmul_is_scaled(node)) {
        if (a == DTYPE_FP8 && b == DTYPE_FP8) return true;
        diag_error(diag, node->loc, "matmul: scales are for operands of fp8, not of %s and %s",
                   dtype_name(a), dtype_name(b));
        return false;
    }
    if (!require_float(node, 0, diag) || !require_float(node, 1, diag)) return false;
    if (a == b) return true;
    diag_error(diag, node->loc,
               "matmul: the left operand is %s and the right %s; cast one with to_%s or to_%s",
               dtype_name(a), dtype_name(b), dtype_name(a), dtype_name(b));
    diag_note(diag, node->inputs[0].node->loc, "left operand made here");
    diag_note(diag, node->inputs[1].node->loc, "right operand made here");
    return false;
}

static bool check_matmul_dtypes(const Node *node, DType *out, Diag *diag) {
    if (!check_operands(node, diag)) return false;
    bool scaled = matmul_is_scaled(node);
    DType a = scaled ? DTYPE_BF16 : value_type(node->inputs[0])->dtype;
    if (!result_dtype(node, a, out, diag)) return false;
    if (a == *out || (dtype_is_low(a) && *out == DTYPE_F32)) return true;
    diag_error(diag, node->loc, "matmul: a product of %s operands is %s%s; cast them or the result",
               scaled ? dtype_name(DTYPE_FP8) : dtype_name(a), dtype_name(a),
               a == DTYPE_F32 ? "" : " or f32");
    return false;
}

/* Axes of both that stay: with `to` these are different ones, of one name, unless it is said. */
static bool is_shared(const Node *node, const Type *other, int axis) {
    bool said = !node_attr(node, ATTR_to) || node_over(node, ATTR_shared, axis);
    return said && axis_in(other, axis);
}

/* Sizes of one operand's runs: shared axes, then [free, summed] or [summed, free]. The summed axes
 * must come in the order of `over`. */
static bool operand_layout(const Node *node, const Type *type, const Type *other, int64_t *batch,
                           int64_t *free_size, int64_t *sum_size, bool *sum_first) {
    const Attr *over = node_attr(node, ATTR_over);
    int run = 0, n_summed = 0; /* 0: shared, then 1 and 2: the two runs in the order they come */
    bool run_summed[3] = {false};
    int64_t sizes[3] = {1, 1, 1};
    bool open[3] = {true, false, false};
    for (int i = 0; i < type->rank; i++) {
        int axis = type->axes[i];
        bool summed = node_over(node, ATTR_over, axis);
        bool shared = !summed && is_shared(node, other, axis);
        if (shared && run != 0) return false;
        if (!shared) {
            if (run == 0 || run_summed[run] != summed) {
                if (run == 2) return false;
                run++;
                open[run] = true;
                run_summed[run] = summed;
            }
        }
        if (summed && over->axes.items[n_summed++] != axis) return false;
        sizes[run] *= type->dims[i];
    }
    *batch = sizes[0];
    *sum_first = open[1] && run_summed[1] && open[2];
    int sum_run = open[1] && run_summed[1] ? 1 : 2;
    *sum_size = sizes[sum_run];
    *free_size = sizes[3 - sum_run];
    return n_summed == over->axes.count;
}

/* Do the axes that stay and are in both come in one order, so that products of one number meet? */
static bool shared_in_order(const Node *node, const Type *a, const Type *b) {
    int last = -1;
    for (int i = 0; i < b->rank; i++) {
        int at = type_find_axis(a, b->axes[i]);
        if (node_over(node, ATTR_over, b->axes[i]) || !is_shared(node, a, b->axes[i])) continue;
        if (at < last) return false;
        last = at;
    }
    return true;
}

bool matmul_layout(const Node *node, const Type *a, const Type *b, MatmulLayout *out) {
    int64_t batch_b, k_b;
    if (!shared_in_order(node, a, b)) return false;
    bool a_sum_first, b_sum_first;
    if (!operand_layout(node, a, b, &out->batch, &out->m, &out->k, &a_sum_first)) return false;
    if (!operand_layout(node, b, a, &batch_b, &out->n, &k_b, &b_sum_first)) return false;
    out->transpose_a = a_sum_first;
    out->transpose_b = !b_sum_first && out->n > 1;
    /* A right operand without free axes is [k]: a column. */
    return batch_b == out->batch && k_b == out->k;
}

/* For operands that no one product can read. The front end transposes such operands; graphs in text
 * form have to. */
static void report_layout(const Graph *graph, const Node *node, Diag *diag) {
    const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
    int64_t size;
    bool sum_first, left_fits = operand_layout(node, a, b, &size, &size, &size, &sum_first);
    int bad = left_fits ? 1 : 0;
    StrBuf type = strbuf_create();
    type_print(&type, &graph->axes, value_type(node->inputs[bad]), NULL);
    diag_error(diag, node->loc,
               "matmul: the %s operand is %s: its axes must come as (shared, free, summed) or "
               "(shared, summed, free), shared ones in the left operand's order, summed ones in "
               "that of 'over'; transpose it",
               bad ? "right" : "left", type.text);
    strbuf_destroy(&type);
    diag_note(diag, node->inputs[bad].node->loc, "%s operand made here", bad ? "right" : "left");
}

/* With `to`, the names of the result's axes. */
static bool rename_result(const Graph *graph, const Node *node, Type *out, Diag *diag) {
    const Attr *to = node_attr(node, ATTR_to);
    bool fits = to->axes.count == out->rank;
    for (int i = 0; fits && i < out->rank; i++) {
        fits = !node_over(node, ATTR_shared, out->axes[i]) || to->axes.items[i] == out->axes[i];
        out->axes[i] = to->axes.items[i];
        for (int k = 0; k < i; k++) fits &= out->axes[k] != out->axes[i];
        const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
        const Type *from = axis_in(a, out->axes[i]) ? a : b;
        int at = type_find_axis(from, out->axes[i]);
        fits &= at < 0 || from->dims[at] == out->dims[i];
    }
    if (fits) return true;
    (void)graph;
    diag_error(
        diag, node->loc,
        "matmul: 'to' must name each of the result's %d axes once, and none of another size; "
        "those in 'shared' keep their names",
        out->rank);
    return false;
}

/* An axis of one name has one size. */
static bool check_matmul_sizes(const Graph *graph, const Node *node, Diag *diag) {
    const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
    for (int i = 0; i < a->rank; i++) {
        int at = type_find_axis(b, a->axes[i]);
        if (at < 0 || a->dims[i] == b->dims[at]) continue;
        diag_error(diag, node->loc,
                   "matmul: axis '%s' is %" PRId64 " on the left and %" PRId64 " on the right",
                   graph->axes.names[a->axes[i]], a->dims[i], b->dims[at]);
        diag_note(diag, node->inputs[1].node->loc, "right operand made here");
        return false;
    }
    return true;
}

/* Of fp8: as cuBLASLt takes them (ir/ops/quantize.h), the scales of two tiles excepted. */
static bool check_scales(const Node *node, const MatmulLayout *l, Diag *diag) {
    const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
    ScaleForm of_a, of_b;
    if (!matmul_is_scaled(node)) return true;
    bool fits = l->batch == 1 && !l->transpose_a && l->transpose_b;
    for (int i = 2; i < 4; i++) fits &= value_type(node->inputs[i])->dtype == DTYPE_F32;
    fits = fits && scale_form(a, value_type(node->inputs[2]), a, l->m, l->k, &of_a) &&
           scale_form(b, value_type(node->inputs[3]), b, l->n, l->k, &of_b);
    if (fits && (of_a == SCALES_OF_ROWS || of_b == SCALES_OF_ROWS)) return true;
    diag_error(diag, node->loc,
               "matmul: operands of fp8 and their scales must lie as quantize gives them with "
               "'last', the axes that are summed away, one of the two at most in tiles");
    return false;
}

static bool check_accumulator(const Node *node, const Type *out, Diag *diag) {
    int at = matmul_accumulator(node);
    if (at < 0) return true;
    DType into = value_type(node->inputs[at])->dtype;
    if (!type_same_shape(value_type(node->inputs[at]), out)) {
        diag_error(diag, node->loc, "matmul: the accumulator's shape is not the product's");
        return false;
    }
    if (out->dtype == into && (into == DTYPE_F32 || into == DTYPE_BF16)) return true;
    diag_error(diag, node->loc,
               "matmul: adds %s to %s; products are added up in f32 or bf16, which `dtype` says",
               dtype_name(out->dtype), dtype_name(into));
    return false;
}

static bool check_shared(const Node *node, Diag *diag) {
    const Attr *shared = node_attr(node, ATTR_shared);
    bool fits = !shared || node_attr(node, ATTR_to);
    for (int i = 0; shared && i < shared->axes.count; i++) {
        int axis = shared->axes.items[i];
        fits &= !node_over(node, ATTR_over, axis) && axis_in(value_type(node->inputs[0]), axis) &&
                axis_in(value_type(node->inputs[1]), axis);
    }
    if (fits) return true;
    diag_error(diag, node->loc,
               "matmul: 'shared' goes with 'to', and names axes of both operands that stay");
    return false;
}

bool infer_matmul(Graph *graph, Node *node, Diag *diag) {
    const Type *a = value_type(node->inputs[0]), *b = value_type(node->inputs[1]);
    const Attr *over = node_attr(node, ATTR_over);
    Type out = {.rank = 0};
    if (!check_matmul_dtypes(node, &out.dtype, diag)) return false;
    if (!check_matmul_sizes(graph, node, diag)) return false;
    for (int i = 0; i < over->axes.count; i++) {
        int axis = over->axes.items[i];
        if (axis_in(a, axis) && axis_in(b, axis)) continue;
        diag_error(diag, node->loc, "matmul: axis '%s' is not an axis of the %s operand",
                   graph->axes.names[axis], axis_in(a, axis) ? "right" : "left");
        diag_note(diag, node->inputs[axis_in(a, axis) ? 1 : 0].node->loc, "made here");
        return false;
    }
    if (!check_shared(node, diag)) return false;
    /* Result: axes of both (a batch of products), then the left one's, then the right one's. */
    for (int part = 0; part < 3; part++) {
        const Type *from = part == 2 ? b : a;
        for (int i = 0; i < from->rank; i++) {
            int axis = from->axes[i];
            bool shared = axis_in(a, axis) && is_shared(node, b, axis);
            if (node_over(node, ATTR_over, axis) || shared != (part == 0)) continue;
            if (out.rank == MAX_RANK) {
                diag_error(diag, node->loc, "matmul: the result would have more than %d axes",
                           MAX_RANK);
                return false;
            }
            out.axes[out.rank] = axis;
            out.dims[out.rank++] = from->dims[i];
        }
    }
    if (node_attr(node, ATTR_to) && !rename_result(graph, node, &out, diag)) return false;
    node->types[0] = out;
    MatmulLayout layout;
    if (!matmul_layout(node, a, b, &layout)) {
        report_layout(graph, node, diag);
        return false;
    }
    return check_scales(node, &layout, diag) && check_accumulator(node, &out, diag);
}

double flops_matmul(const Node *node, const Type *inputs, const Type *outputs) {
    double flops = 2 * (double)type_elements(outputs);
    for (int i = 0; i < inputs[0].rank; i++) {
        if (node_over(node, ATTR_over, inputs[0].axes[i])) flops *= (double)inputs[0].dims[i];
    }
    return flops;
}

/* Has `b` all axes of `a`? */
static bool is_within(const Type *a, const Type *b) {
    for (int i = 0; i < a->rank; i++) {
        if (!axis_in(b, a->axes[i])) return false;
    }
    return true;
}

/* In the operands' dtype: a result that is kept wider has a wider gradient. Where nothing is summed
 * and one has all axes of the other, as for a sum of squares, it is no product of matrices. */
static Value product_over(GradContext *ctx, Value a, Value b, const Type *over_like,
                          const Node *node) {
    DType dtype = value_type(node->inputs[0])->dtype;
    a = grad_to_dtype(ctx, a, dtype);
    b = grad_to_dtype(ctx, b, dtype);
    if (!a.node || !b.node) return NO_VALUE;
    int axes[MAX_RANK], n_axes = 0;
    /* Everything of `over_like` that the gradient's type lacks and both operands have. */
    for (int i = 0; i < over_like->rank; i++) {
        int axis = over_like->axes[i];
        if (axis_in(value_type(a), axis) && axis_in(value_type(b), axis) &&
            !node_over(node, ATTR_over, axis)) {
            axes[n_axes++] = axis;
        }
    }
    if (n_axes == 0 &&
        (is_within(value_type(a), value_type(b)) || is_within(value_type(b), value_type(a)))) {
        return GRAD_NODE(ctx, OP_MUL, a, b);
    }
    Attr over = attr_axes(ATTR_over, axes, n_axes);
    return grad_build(ctx, OP_MATMUL, (Value[]){a, b}, 2, &over, 1);
}

/* The free axes of the other operand, in the order in which `dy` holds them. */
static Type free_axes(const Type *dy, const Type *other, const Type *target) {
    Type type = {.rank = 0};
    for (int i = 0; i < dy->rank; i++) {
        if (axis_in(other, dy->axes[i]) && !axis_in(target, dy->axes[i])) {
            type.axes[type.rank++] = dy->axes[i];
        }
    }
    return type;
}

void grad_matmul(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    if (node->n_inputs > 2 || node_attr(node, ATTR_to)) {
        diag_error(ctx->diag, node->loc,
                   "matmul: has no gradient with an accumulator or 'to': these forms "
                   "belong to backward and update graphs");
        ctx->failed = true;
        return;
    }
    for (int i = 0; i < 2; i++) {
        const Type *target = value_type(node->inputs[i]);
        Value other = node->inputs[1 - i];
        Type over = free_axes(value_type(douts[0]), value_type(other), target);
        /* Try the operand order that gives the target's axis order: its first axis that is not
         * both operands' (a batch's) is dy's or not. */
        int first = 0;
        while (first < target->rank && axis_in(value_type(douts[0]), target->axes[first]) &&
               axis_in(value_type(other), target->axes[first])) {
            first++;
        }
        bool dy_first = first == target->rank || axis_in(value_type(douts[0]), target->axes[first]);
        Value product = dy_first ? product_over(ctx, douts[0], other, &over, node)
                                 : product_over(ctx, other, douts[0], &over, node);
        dins[i] = grad_reduce_to(ctx, product, target);
    }
    if (node->n_inputs == 3) dins[2] = douts[0];
}

bool infer_reduce_sum(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const Attr *over = node_attr(node, ATTR_over);
    Type out = {.rank = 0};
    for (int i = 0; i < over->axes.count; i++) {
        if (axis_in(in, over->axes.items[i])) continue;
        diag_error(diag, node->loc, "reduce_sum: the operand has no axis '%s'",
                   graph->axes.names[over->axes.items[i]]);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (!require_float(node, 0, diag)) return false;
    if (!result_dtype(node, in->dtype, &out.dtype, diag)) return false;
    for (int i = 0; i < in->rank; i++) {
        if (node_over(node, ATTR_over, in->axes[i])) continue;
        out.axes[out.rank] = in->axes[i];
        out.dims[out.rank++] = in->dims[i];
    }
    node->types[0] = out;
    return true;
}

void grad_reduce_sum(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value dout = grad_to_dtype(ctx, douts[0], value_type(node->inputs[0])->dtype);
    if (!dout.node) return;
    Node *wide = graph_add(ctx->graph,
                           &(NodeSpec){.op = OP_BROADCAST,
                                       .inputs = &dout,
                                       .n_inputs = 1,
                                       .type = value_type(node->inputs[0]),
                                       .phase = PHASE_BACKWARD,
                                       .block = ctx->origin->block,
                                       .chunk = ctx->origin->chunk,
                                       .loc = ctx->origin->loc},
                           ctx->diag);
    ctx->failed |= !wide;
    dins[0] = node_value(wide, 0);
}

bool infer_transpose(Graph *graph, Node *node, Diag *diag) {
    const Type *in = value_type(node->inputs[0]);
    const Attr *to = node_attr(node, ATTR_to);
    Type out = {.dtype = in->dtype, .rank = in->rank};
    bool seen[MAX_RANK] = {false};
    bool fits = to->axes.count == in->rank;
    for (int i = 0; fits && i < in->rank; i++) {
        int at = type_find_axis(in, to->axes.items[i]);
        fits = at >= 0 && !seen[at];
        if (!fits) break;
        seen[at] = true;
        out.axes[i] = in->axes[at];
        out.dims[i] = in->dims[at];
    }
    if (!fits) {
        diag_error(diag, node->loc, "transpose: 'to' must name each axis of the operand once");
        diag_note(diag, node->inputs[0].node->loc, "made here");
        (void)graph;
        return false;
    }
    node->types[0] = out;
    return true;
}

void grad_transpose(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_reduce_to(ctx, douts[0], value_type(node->inputs[0]));
}
