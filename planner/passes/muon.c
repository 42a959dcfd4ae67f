#include "planner/passes/muon.h"

#include <string.h>

/* --- what parameters are for --- */

/* By id: is the value, or what elementwise ops make of it, what a loss picks labels from? */
static bool *find_logits(const Graph *graph, Arena *arena) {
    bool *logits = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool loss = node->op == OP_CROSS_ENTROPY || node->op == OP_LOGSUMEXP || node->op == OP_PICK;
        bool passes = logits[n] && OPS[node->op].flags & ELEMENTWISE_BIT;
        for (int i = 0; i < node->n_inputs && node->phase == PHASE_FORWARD; i++) {
            if (passes || (loss && i == 0)) logits[node->inputs[i].node->id] = true;
        }
    }
    return logits;
}

/* The matrix that operand i of the product is; false: it has axes that the product neither sums
 * away nor has of it alone, or all of one kind. */
static bool matrix_of(const Node *product, int i, MuonMatrix *out) {
    const Type *type = value_type(product->inputs[i]), *other = value_type(product->inputs[1 - i]);
    *out = (MuonMatrix){.n_inputs = 1, .n_outputs = 1};
    for (int k = 0; k < type->rank; k++) {
        int axis = type->axes[k];
        if (node_over(product, ATTR_over, axis)) {
            out->columns[out->n_columns++] = axis;
            out->n_inputs *= type->dims[k];
        } else if (type_find_axis(other, axis) < 0) {
            out->rows[out->n_rows++] = axis;
            out->n_outputs *= type->dims[k];
        } else {
            return false;
        }
    }
    return out->n_columns > 0 && out->n_rows > 0;
}

static bool same_set(const int *a, int n_a, const int *b, int n_b) {
    int found = 0;
    for (int i = 0; i < n_a; i++) {
        for (int k = 0; k < n_b; k++) found += a[i] == b[k];
    }
    return n_a == n_b && found == n_a;
}

static void note_product(ParamUses *uses, const Node *param, const Node *product, int operand,
                         bool is_head, bool *refused) {
    ParamUse *use = &uses->use[param->id];
    MuonMatrix matrix, *known = &uses->matrix[param->id];
    bool fits = matrix_of(product, operand, &matrix);
    if (fits && *use != USE_OTHER) {
        fits = same_set(matrix.rows, matrix.n_rows, known->rows, known->n_rows) &&
               same_set(matrix.columns, matrix.n_columns, known->columns, known->n_columns);
    }
    refused[param->id] |= !fits;
    if (*use == USE_OTHER) *known = matrix;
    if (*use != USE_HEAD) *use = is_head ? USE_HEAD : USE_MATRIX;
}

/* Products read weights as they are, or transposed. */
ParamUses muon_find_uses(const Graph *graph, Arena *arena) {
    ParamUses uses = {ARENA_ARRAY(arena, ParamUse, graph->n_nodes + 1),
                      ARENA_ARRAY(arena, MuonMatrix, graph->n_nodes + 1)};
    const bool *logits = find_logits(graph, arena);
    bool *refused = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    bool *looked_up = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs && node->phase == PHASE_FORWARD; i++) {
            const Node *from = node->inputs[i].node;
            while (from->op == OP_TRANSPOSE) from = from->inputs[0].node;
            if (from->op != OP_PARAM) continue;
            if (node->op == OP_MATMUL && i < 2) {
                note_product(&uses, from, node, i, logits[n], refused);
            }
            looked_up[from->id] |= node->op == OP_EMBEDDING;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (refused[n]) uses.use[n] = USE_OTHER;
        if (looked_up[n]) uses.use[n] = USE_TABLE;
    }
    return uses;
}

/* --- Newton-Schulz ---
 *
 * X <- a X + (b A + c A A) X with A = X X^T, five times (Jordan et al. 2024), after X = direction /
 * its Frobenius norm. X X^T X = X (X^T X): either side of the matrix can have the Gram matrix A.
 * It is the shorter one, unless t divides that and the other is at most twice as long: then A is
 * a partial sum over t, completed once a step, and what is as large as X stays divided. A short
 * side that t divides is gathered first, and every rank does all of it. The choice does not depend
 * on t, so the sums of all layouts are those of one rank but for their order.
 */
enum { N_STEPS = 5, MOST_SIDE_AXES = (MAX_RANK - 1) / 2 }; /* a Gram matrix has each twice */
static const double A1 = 3.4445, A3 = -4.7750, A5 = 2.0315;
static const double EPS_SQUARED = 1e-14; /* the norm is 1e-7 at least, as PyTorch's */

typedef struct Steps {
    PassContext *ctx;
    Graph *out;
    const Node *param;
    DType low; /* of the products' operands */
    int n_side, n_other;
    int side[MAX_RANK], other[MAX_RANK], twin[MAX_RANK]; /* twin: the side's axes, named anew */
    int n_stacked, stacked;                              /* 1: X is many, along that axis; or 0 */
    unsigned shared_heads;                               /* sharding_rule_shared_heads */
    bool side_first;                                     /* X is [(stacked,) side, other] */
    bool failed;
} Steps;

static Value build(Steps *s, OpKind op, const Value *inputs, int n_inputs, const Attr *attrs,
                   int n_attrs) {
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].node) return NO_VALUE; /* reported */
    }
    Node *node =
        pass_build(s->ctx, s->out, op, s->param, PHASE_UPDATE, inputs, n_inputs, attrs, n_attrs);
    s->failed |= !node;
    return node ? node_value(node, 0) : NO_VALUE;
}

static Value scale(Steps *s, double factor, Value x) {
    Attr value = attr_float(ATTR_value, factor);
    return build(s, OP_SCALE, &x, 1, &value, 1);
}

static Value cast(Steps *s, Value x, DType dtype) {
    if (!x.node || value_type(x)->dtype == dtype) return x;
    return build(s, op_cast_to(dtype), &x, 1, NULL, 0);
}

/* In f32, of operands of 16 bits too: it is completed over ranks, and added up, before it is
 * rounded. */
static Value product(Steps *s, Value a, Value b, const int *over, int n_over, const int *to,
                     int n_to) {
    Attr attrs[4] = {attr_axes(ATTR_over, over, n_over), attr_axes(ATTR_to, to, n_to)};
    int n_attrs = 2;
    if (s->n_stacked) attrs[n_attrs++] = attr_axes(ATTR_shared, &s->stacked, 1);
    if (dtype_is_low(s->low)) attrs[n_attrs++] = attr_string(ATTR_dtype, "f32");
    return build(s, OP_MATMUL, (Value[]){a, b}, 2, attrs, n_attrs);
}

/* factor x + y, in f32. */
static Value add_scaled(Steps *s, double factor, Value x, Value y) {
    return build(s, OP_ADD, (Value[]){scale(s, factor, cast(s, x, DTYPE_F32)), y}, 2, NULL, 0);
}

/* The stack's axis, if there is one, `a` and `b`. Returns how many. */
static int join_axes(const Steps *s, const int *a, int n_a, const int *b, int n_b, int *out) {
    out[0] = s->stacked;
    memcpy(out + s->n_stacked, a, sizeof(int) * (size_t)n_a);
    memcpy(out + s->n_stacked + n_a, b, sizeof(int) * (size_t)n_b);
    return s->n_stacked + n_a + n_b;
}

static Value step(Steps *s, Value x) {
    int pair[2 * MAX_RANK], whole[2 * MAX_RANK];
    int n_pair = join_axes(s, s->side, s->n_side, s->twin, s->n_side, pair);
    int n_whole = s->side_first ? join_axes(s, s->side, s->n_side, s->other, s->n_other, whole)
                                : join_axes(s, s->other, s->n_other, s->side, s->n_side, whole);
    Value gram = product(s, x, x, s->other, s->n_other, pair, n_pair);
    Value low = cast(s, gram, s->low);
    Value square = product(s, low, low, s->twin, s->n_side, pair, n_pair);
    Value sum = cast(s, add_scaled(s, A3, gram, scale(s, A5, square)), s->low);
    Value y = s->side_first ? product(s, sum, x, s->side, s->n_side, whole, n_whole)
                            : product(s, x, sum, s->side, s->n_side, whole, n_whole);
    return cast(s, add_scaled(s, A1, x, y), s->low);
}

/* 1 / max(the direction's norm, eps) */
static Value inverse_size(Steps *s, Value squares) {
    Attr least = attr_float(ATTR_value, EPS_SQUARED);
    Value bound = build(s, OP_CONST, NULL, 0, &least, 1);
    Value size = build(s, OP_MAXIMUM, (Value[]){squares, bound}, 2, NULL, 0);
    return build(s, OP_RSQRT, &size, 1, NULL, 0);
}

/* `name` with an ending, and none that the parameter has an axis of. */
static int new_axis(Steps *s, int axis, const char *ending) {
    const Type *type = &s->param->types[0];
    const char *name = s->out->axes.names[axis];
    int found;
    do {
        name = arena_printf(s->out->arena, "%s_%s", name, ending);
        found = graph_axis(s->out, name, (int)strlen(name));
    } while (type_find_axis(type, found) >= 0 && found >= 0);
    if (found >= 0) return found;
    diag_error(s->ctx->diag, s->param->loc,
               "muon: the update of this parameter needs an axis '%s' beside the model's: names "
               "have at most 64 letters, and there are at most %d axes",
               name, MAX_AXES);
    s->failed = true;
    return axis;
}

/* By some t or other. */
static bool has_divided(const Steps *s, const int *axes, int n_axes) {
    for (int i = 0; i < n_axes; i++) {
        if (sharding_rule_divides(s->out->axes.names[axes[i]], MESH_T, 0)) return true;
    }
    return false;
}

static void choose_side(Steps *s, const MuonMatrix *m) {
    bool rows = m->n_outputs <= m->n_inputs;
    int64_t shorter = rows ? m->n_outputs : m->n_inputs;
    int64_t longer = rows ? m->n_inputs : m->n_outputs;
    bool rows_divided = has_divided(s, m->rows, m->n_rows);
    bool columns_divided = has_divided(s, m->columns, m->n_columns);
    bool divided = rows ? rows_divided : columns_divided;
    bool other_divided = rows ? columns_divided : rows_divided;
    if (divided && !other_divided && longer <= 2 * shorter) rows = !rows;
    if ((rows ? m->n_rows : m->n_columns) > MOST_SIDE_AXES) rows = !rows;
    if ((rows ? m->n_rows : m->n_columns) > MOST_SIDE_AXES) rows = !rows;
    s->n_side = rows ? m->n_rows : m->n_columns;
    s->n_other = rows ? m->n_columns : m->n_rows;
    memcpy(s->side, rows ? m->rows : m->columns, sizeof(s->side));
    memcpy(s->other, rows ? m->columns : m->rows, sizeof(s->other));
}

/* x with axis `from` called `to`: whole on every rank. */
static Value rename_axis(Steps *s, Value x, int from, int to) {
    if (!x.node) return x;
    int at = type_find_axis(value_type(x), from);
    Attr attrs[4] = {attr_axis(ATTR_axis, from), attr_axes(ATTR_to, &to, 1),
                     attr_int(ATTR_first, 0), attr_int(ATTR_count, value_type(x)->dims[at])};
    return build(s, OP_NARROW, &x, 1, attrs, 4);
}

/* Do the side's axes come first or last, all together, but for the stack's? */
static bool is_grouped(const Steps *s, const Type *type) {
    int changes = 0;
    for (int i = 1 + s->n_stacked; i < type->rank; i++) {
        bool before = false, here = false;
        for (int k = 0; k < s->n_side; k++) {
            before |= type->axes[i - 1] == s->side[k];
            here |= type->axes[i] == s->side[k];
        }
        changes += before != here;
    }
    return changes == 1;
}

static Value transpose(Steps *s, Value x, const int *to, int n_to) {
    Attr order = attr_axes(ATTR_to, to, n_to);
    return build(s, OP_TRANSPOSE, &x, 1, &order, 1);
}

/* The axes of both sides in the order in which X has them, as products ask. */
static void order_axes(Steps *s, const Type *type) {
    int side[MAX_RANK], other[MAX_RANK], n_side = 0, n_other = 0;
    for (int i = s->n_stacked; i < type->rank; i++) {
        bool own = false;
        for (int k = 0; k < s->n_side; k++) own |= s->side[k] == type->axes[i];
        *(own ? &side[n_side++] : &other[n_other++]) = type->axes[i];
        if (i == s->n_stacked) s->side_first = own;
    }
    memcpy(s->side, side, sizeof(side));
    memcpy(s->other, other, sizeof(other));
}

static Steps begin(PassContext *ctx, Graph *out, const Node *param) {
    bool low = ctx->options.precision != DTYPE_F32; /* bf16 has the range that f16 lacks */
    return (Steps){.ctx = ctx,
                   .out = out,
                   .param = param,
                   .low = low ? DTYPE_BF16 : DTYPE_F32,
                   .shared_heads = sharding_rule_shared_heads(out, &ctx->options.mesh),
                   .stacked = -1};
}

Value muon_append_scaled(PassContext *ctx, Graph *out, const Node *param, Value direction,
                         Value squares) {
    Steps s = begin(ctx, out, param);
    Value factor = inverse_size(&s, squares);
    return cast(&s, build(&s, OP_MUL, (Value[]){direction, factor}, 2, NULL, 0), s.low);
}

/* Sides that t divides are gathered, under another name. */
static Value gather_side(Steps *s, Value x) {
    for (int i = 0; i < s->n_side; i++) {
        int from = s->side[i];
        const char *name = s->out->axes.names[from];
        if (s->ctx->options.mesh.size[MESH_T] < 2) continue;
        if (!sharding_rule_divides(name, MESH_T, s->shared_heads)) continue;
        s->side[i] = new_axis(s, from, "all");
        if (!s->failed) x = rename_axis(s, x, from, s->side[i]);
    }
    return x;
}

Value muon_append_steps(PassContext *ctx, Graph *out, const Node *param, const MuonMatrix *matrix,
                        Value x) {
    Steps s = begin(ctx, out, param);
    if (!x.node) return NO_VALUE;
    const Type type = *value_type(x);
    int renamed[MAX_RANK];
    s.n_stacked = type.rank - param->types[0].rank;
    s.stacked = s.n_stacked ? type.axes[0] : -1;
    choose_side(&s, matrix);
    bool moves = !is_grouped(&s, &type);
    if (moves) {
        int order[2 * MAX_RANK];
        join_axes(&s, s.side, s.n_side, s.other, s.n_other, order);
        x = transpose(&s, x, order, type.rank);
    }
    if (x.node) order_axes(&s, value_type(x));
    memcpy(renamed, s.side, sizeof(renamed));
    x = gather_side(&s, x);
    for (int i = 0; i < s.n_side; i++) s.twin[i] = new_axis(&s, s.side[i], "too");
    for (int k = 0; k < N_STEPS && !s.failed; k++) x = step(&s, x);
    for (int i = 0; i < s.n_side && !s.failed; i++) {
        if (s.side[i] != renamed[i]) x = rename_axis(&s, x, s.side[i], renamed[i]);
    }
    if (moves && !s.failed) x = transpose(&s, x, type.axes, type.rank);
    return s.failed ? NO_VALUE : x;
}

/* --- matrices of one kind at once --- */

bool muon_may_stack(const Node *param, const MuonMatrix *m, const Node *other,
                    const MuonMatrix *of_other) {
    bool fits = param->types[0].rank < MAX_RANK &&
                (m->n_rows <= MOST_SIDE_AXES || m->n_columns <= MOST_SIDE_AXES);
    return fits && type_equal(&param->types[0], &other->types[0]) &&
           same_set(m->rows, m->n_rows, of_other->rows, of_other->n_rows);
}

Value muon_append_stack(PassContext *ctx, Graph *out, const Node *param, const Value *xs, int n_xs,
                        int64_t count) {
    Steps s = begin(ctx, out, param);
    int axis = new_axis(&s, param->types[0].axes[0], "each");
    Attr attrs[2] = {attr_axes(ATTR_to, &axis, 1), attr_int(ATTR_count, count)};
    return s.failed ? NO_VALUE : build(&s, OP_STACK, xs, n_xs, attrs, 2);
}

Value muon_append_part(PassContext *ctx, Graph *out, const Node *param, Value stack, int number) {
    Steps s = begin(ctx, out, param);
    Attr attrs[2] = {attr_axis(ATTR_axis, value_type(stack)->axes[0]),
                     attr_int(ATTR_first, number)};
    return build(&s, OP_NARROW, &stack, 1, attrs, 2);
}
