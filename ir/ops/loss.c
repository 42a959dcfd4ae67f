/* Cross-entropy and its parts, sums of squares, clipping, optimizers, balancing. */
#include "ir/ops/loss.h"

#include "ir/rule.h"

#include <inttypes.h>

/* x [rows..., axis], f32, bf16 or f16, and, if given, index i32[rows...]. */
static bool check_rows(Graph *graph, Node *node, int index, Diag *diag) {
    const Type *x = value_type(node->inputs[0]);
    int axis = node_axis(node, ATTR_axis);
    if (!dtype_is_float(x->dtype)) {
        diag_error(diag, node->loc, "%s: the first operand is %s; it must be f32, bf16 or f16",
                   OPS[node->op].name, dtype_name(x->dtype));
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (x->rank < 1 || x->axes[x->rank - 1] != axis) {
        diag_error(diag, node->loc,
                   "%s: axis '%s' must be the last axis of the first operand; transpose puts it "
                   "there",
                   OPS[node->op].name, graph->axes.names[axis]);
        diag_note(diag, node->inputs[0].node->loc, "made here");
        return false;
    }
    if (index < 0) return true;
    Type rows = *x;
    rows.rank--;
    rows.dtype = DTYPE_I32;
    if (type_equal(value_type(node->inputs[index]), &rows)) return true;
    diag_error(diag, node->loc, "%s: labels must be i32 with the first operand's other axes",
               OPS[node->op].name);
    diag_note(diag, node->inputs[index].node->loc, "labels made here");
    return false;
}

/* Numbers per row: always f32. */
static Type rows_of(const Type *type) {
    Type rows = type_with_dtype(type, DTYPE_F32);
    rows.rank--;
    return rows;
}

/* logits, labels -> loss per row, logsumexp per row */
bool infer_cross_entropy(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    node->types[0] = node->types[1] = rows_of(value_type(node->inputs[0]));
    return true;
}

/* logits, labels, lse, dloss(, dlse) -> dlogits = exp(logits - lse) (dloss + dlse) - onehot(labels)
 * dloss */
bool infer_cross_entropy_grad(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    Type rows = rows_of(value_type(node->inputs[0]));
    for (int i = 2; i < node->n_inputs; i++) {
        if (type_equal(value_type(node->inputs[i]), &rows)) continue;
        diag_error(diag, node->loc, "cross_entropy_grad: operand %d must be one f32 number per row",
                   i + 1);
        return false;
    }
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

bool cross_entropy_has_mask(const Node *node) {
    return node->inputs[1].node->op != OP_INPUT;
}

/* dloss where labels are 0 and more, 0 elsewhere. */
static Value masked(GradContext *ctx, const Node *node, Value dloss) {
    if (!cross_entropy_has_mask(node)) return dloss;
    Attr below = attr_float(ATTR_value, -1);
    Value bound = grad_build(ctx, OP_CONST, NULL, 0, &below, 1);
    return GRAD_NODE(ctx, OP_MUL, dloss, GRAD_NODE(ctx, OP_LESS, bound, node->inputs[1]));
}

/* softmax(x) dlse, of x's dtype. */
static Value logsumexp_grad(GradContext *ctx, Value x, Value lse, Value dlse) {
    Value centred = GRAD_NODE(ctx, OP_SUB, grad_to_dtype(ctx, x, DTYPE_F32), lse);
    Value softmax = GRAD_NODE(ctx, OP_EXP, centred);
    return grad_reduce_to(ctx, GRAD_NODE(ctx, OP_MUL, softmax, dlse), value_type(x));
}

/* Both results have one: simplify has the second stand for other log-sum-exps of the logits. */
void grad_cross_entropy(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value logits = node->inputs[0], lse = node_value((Node *)node, 1);
    if (!douts[0].node) {
        dins[0] = logsumexp_grad(ctx, logits, lse, douts[1]);
        return;
    }
    dins[0] =
        grad_build(ctx, OP_CROSS_ENTROPY_GRAD,
                   (Value[]){logits, node->inputs[1], lse, masked(ctx, node, douts[0]), douts[1]},
                   douts[1].node ? 5 : 4, node->attrs, node->n_attrs);
}

bool infer_logsumexp(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, -1, diag)) return false;
    node->types[0] = rows_of(value_type(node->inputs[0]));
    return true;
}

void grad_logsumexp(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = logsumexp_grad(ctx, node->inputs[0], node_value((Node *)node, 0), douts[0]);
}

bool infer_pick(Graph *graph, Node *node, Diag *diag) {
    if (!check_rows(graph, node, 1, diag)) return false;
    node->types[0] = rows_of(value_type(node->inputs[0]));
    return true;
}

void grad_pick(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    /* onehot(index) dy = -(exp(x - inf) - onehot) dy with lse = +inf; there is no gain in a kernel
     * for what only cross_entropy needs, and that has its own. */
    (void)douts, (void)dins;
    diag_error(ctx->diag, node->loc, "pick: has no gradient; use cross_entropy");
    ctx->failed = true;
}

bool infer_sumsq(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = (Type){.dtype = DTYPE_F32};
    DType dtype = value_type(node->inputs[0])->dtype;
    if (dtype == DTYPE_F32 || dtype == DTYPE_BF16) return true;
    diag_error(diag, node->loc, "sumsq: the operand must be f32 or bf16");
    return false;
}

static bool require_scalars(const Node *node, Diag *diag) {
    const Type scalar = {.dtype = DTYPE_F32};
    for (int i = 0; i < node->n_inputs; i++) {
        if (type_equal(value_type(node->inputs[i]), &scalar)) continue;
        diag_error(diag, node->loc, "%s: operand %d must be a single f32", OPS[node->op].name,
                   i + 1);
        return false;
    }
    return true;
}

/* The squared norm of gradients(, the loss scale that they bear) -> what they are to be multiplied
 * by(, the squared norm without the loss scale). */
bool infer_clip_scale(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->n_outputs = node->n_inputs;
    for (int i = 0; i < node->n_outputs; i++) node->types[i] = (Type){.dtype = DTYPE_F32};
    return require_scalars(node, diag);
}

/* What gradients are multiplied by, their squared norm, the most that it may be -> the first, or
 * +inf where the norm is above, or, whatever it is, where that is below 0 */
bool infer_skip_spike(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = (Type){.dtype = DTYPE_F32};
    return require_scalars(node, diag);
}

/* What gradients are multiplied by, the loss scale, finite steps since it last changed, updates
 * so far -> the last three, anew (Micikevicius et al. 2018, section 3.2) */
bool infer_loss_scale(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    for (int i = 0; i < node->n_outputs; i++) node->types[i] = (Type){.dtype = DTYPE_F32};
    if (node_int(node, ATTR_interval, 0) < 0) {
        diag_error(diag, node->loc, "loss_scale: interval is below 0");
        return false;
    }
    return require_scalars(node, diag);
}

/* inputs: the largest so far f32[heads...], rows f32[..., heads...] -> as the first */
bool infer_largest(Graph *graph, Node *node, Diag *diag) {
    const Type *most = value_type(node->inputs[0]), *rows = value_type(node->inputs[1]);
    int before = rows->rank - most->rank;
    (void)graph;
    bool fits = most->dtype == DTYPE_F32 && rows->dtype == DTYPE_F32 && before >= 0;
    for (int i = 0; fits && i < most->rank; i++) {
        fits = most->axes[i] == rows->axes[before + i] && most->dims[i] == rows->dims[before + i];
    }
    node->types[0] = *most;
    if (fits) return true;
    diag_error(diag, node->loc,
               "largest: takes f32 numbers, and rows in f32 of which these axes are the last");
    return false;
}

/* f32 of any shapes -> the largest of all their elements */
bool infer_max_n(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = (Type){.dtype = DTYPE_F32};
    for (int i = 0; i < node->n_inputs; i++) {
        if (value_type(node->inputs[i])->dtype == DTYPE_F32) continue;
        diag_error(diag, node->loc, "max_n: operand %d must be f32", i + 1);
        return false;
    }
    return true;
}

/* What a parameter is multiplied by along some of its axes. */
static bool check_rescale(const Node *node, int at, Diag *diag) {
    int unused;
    if (at < 0 ||
        op_rescale_place(value_type(node->inputs[0]), value_type(node->inputs[at]), &unused)) {
        return true;
    }
    diag_error(diag, node->loc,
               "%s: operand %d must have some axes of the parameter, one behind the other",
               OPS[node->op].name, at + 1);
    return false;
}

/* Of an operand that is a state, beside the first one. */
static Type state_type(const Node *node, const Type *param, int input) {
    DType dtype = node_state_dtype(node);
    return type_with_dtype(param, dtype == DTYPE_DYN8 ? op_moment_dtype(node->op, input) : dtype);
}

/* First `n_like` operands f32, or a state's or a gradient's, and shaped alike, then scalars, and
 * perhaps, past the `n_always`-th, what the parameter is multiplied by and its copy in bf16 or f16.
 * Results: `n_results`, the parameter and its states, and the copy. */
static bool check_update(Node *node, int n_like, int n_always, int n_results, Diag *diag) {
    const Type scalar = {.dtype = DTYPE_F32};
    const Type param = type_with_dtype(value_type(node->inputs[0]), DTYPE_F32);
    const Type gradient = type_with_dtype(&param, node_gradient_dtype(node));
    const int rescale = op_rescale_operand(node), copy_at = n_always + (rescale >= 0);
    bool has_copy = node->n_inputs > copy_at;
    DType low = has_copy ? value_type(node->inputs[copy_at])->dtype : DTYPE_BF16;
    const Type copy = type_with_dtype(&param, dtype_is_low(low) ? low : DTYPE_BF16);
    node->n_outputs = n_results + has_copy;
    node->types[0] = param;
    for (int i = 1; i < n_results; i++)
        node->types[i] = state_type(node, &param, op_alias(node, i));
    if (has_copy) node->types[n_results] = copy;
    if (!check_rescale(node, rescale, diag)) return false;
    if (node->n_inputs > copy_at + 1) {
        diag_error(diag, node->loc, "%s: operand %d is one too many", OPS[node->op].name,
                   copy_at + 2);
        return false;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        if (i == rescale) continue;
        OperandPrecision precision = op_operand_precision(node->op, i);
        const Type state = state_type(node, &param, i);
        const Type *like = precision == OPERAND_STATE      ? &state
                           : precision == OPERAND_GRADIENT ? &gradient
                                                           : &param;
        const Type *want = i == copy_at ? &copy : i < n_like ? like : &scalar;
        const Type *have = value_type(node->inputs[i]);
        bool any = precision == OPERAND_EITHER; /* looked at before */
        if (any || type_equal(have, want)) continue;
        if (type_same_shape(have, want)) {
            diag_error(diag, node->loc, "%s: operand %d is %s; it must be %s", OPS[node->op].name,
                       i + 1, dtype_name(have->dtype), dtype_name(want->dtype));
        } else {
            diag_error(diag, node->loc, "%s: operand %d has the wrong shape", OPS[node->op].name,
                       i + 1);
        }
        return false;
    }
    return true;
}

/* p, g, m, v, scale, lr, step(, copy of p) -> p, m, v(, copy)
 * (Loshchilov & Hutter 2019, algorithm 2) */
bool infer_adamw(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    return check_update(node, 4, 7, 3, diag);
}

/* p, g, states, scale, lr, step(, copy of p) -> p, states(, copy) */
bool infer_rule(Graph *graph, Node *node, Diag *diag) {
    const int n_states = op_rule_states(node->op);
    const int64_t squares = node_int(node, ATTR_squares, 0);
    const char *error;
    Rule rule;
    (void)graph;
    if (!rule_parse(node_string(node, ATTR_program), node_string(node, ATTR_numbers), n_states,
                    &rule, &error)) {
        diag_error(diag, node->loc, "%s: the program has %s", OPS[node->op].name, error);
        return false;
    }
    if (squares < 0 || squares >> n_states) {
        diag_error(diag, node->loc, "%s: squares=%" PRId64 " names more states than there are",
                   OPS[node->op].name, squares);
        return false;
    }
    return check_update(node, 2 + n_states, 5 + n_states, 1 + n_states, diag);
}

/* Each instruction of each element. */
double flops_rule(const Node *node, const Type *inputs, const Type *outputs) {
    Rule rule = rule_of_node(node);
    (void)outputs;
    return (double)type_elements(&inputs[0]) * rule.expr.n_instructions;
}

/* p, g, m, scale, lr(, copy of p) -> p, m(, copy)    (Chen et al. 2023, Lion, algorithm 2) */
bool infer_lion(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    return check_update(node, 3, 5, 2, diag);
}

/* p, m, v, scale, step, g -> m, v, |p|^2, |r|^2    (You et al. 2020, LAMB, algorithm 2): Adam's
 * moments, and r = m_hat / (sqrt(v_hat) + eps) + weight_decay p. The last two are numbers. */
bool infer_lamb_moments(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    const Type scalar = {.dtype = DTYPE_F32};
    const Type param = type_with_dtype(value_type(node->inputs[0]), DTYPE_F32);
    const Type state = type_with_dtype(&param, node_state_dtype(node));
    const Type gradient = type_with_dtype(&param, node_gradient_dtype(node));
    for (int i = 0; i < node->n_inputs; i++) {
        bool number = i == 3 || i == 4, is_state = i == 1 || i == 2;
        const Type *want = number ? &scalar : is_state ? &state : i == 5 ? &gradient : &param;
        if (type_equal(value_type(node->inputs[i]), want)) continue;
        diag_error(diag, node->loc, "lamb_moments: operand %d must be %s", i + 1,
                   number     ? "a single f32"
                   : is_state ? "f32 or bf16, as the other state, of the parameter's shape"
                   : i == 5   ? "f32 or bf16 of the parameter's shape"
                              : "f32 of the parameter's shape");
        return false;
    }
    node->types[0] = node->types[1] = state;
    node->types[2] = node->types[3] = scalar;
    return true;
}

/* p, m, v, scale, lr, step, |p|^2, |r|^2(, copy of p) -> p(, copy)
 * p -= lr trust r, unless scale is not finite; trust = |p| / |r|, 1 where either is 0 */
bool infer_lamb(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    return check_update(node, 3, 8, 1, diag);
}

/* momentum buffer m, scale, g -> m, direction    (Jordan et al. 2024, Muon):
 * m = momentum m + scale g, direction = scale g + momentum m */
bool infer_muon_momentum(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    const Type scalar = {.dtype = DTYPE_F32};
    const Type *m = value_type(node->inputs[0]), *g = value_type(node->inputs[2]);
    const Type want = type_with_dtype(m, node_gradient_dtype(node));
    node->types[0] = *m;
    node->types[1] = type_with_dtype(m, DTYPE_F32);
    if (m->dtype == node_state_dtype(node) && type_equal(g, &want) &&
        type_equal(value_type(node->inputs[1]), &scalar)) {
        return true;
    }
    diag_error(
        diag, node->loc,
        "muon_momentum: takes a state in f32 or bf16, a single f32, and a gradient in f32 or "
        "bf16 of the state's shape");
    return false;
}

/* p, direction x (f32 or in 16 bits), scale, lr(, copy of p) -> p(, copy)
 * p -= lr weight_decay p + lr `scale` x, unless the operand scale is not finite */
bool infer_muon(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    const Type *x = value_type(node->inputs[1]);
    const Type like = type_with_dtype(value_type(node->inputs[0]), x->dtype);
    if (!dtype_is_float(x->dtype) || !type_equal(x, &like)) {
        diag_error(diag, node->loc, "muon: the direction must have the parameter's shape");
        return false;
    }
    return check_update(node, 2, 4, 1, diag);
}

/* p, g, momentum buffer, scale, lr(, copy of p) -> p, buffer(, copy) */
bool infer_sgd(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    return check_update(node, 3, 5, 2, diag);
}

/* a balanced parameter, f32 numbers with its axes, and perhaps others */
bool infer_tally(Graph *graph, Node *node, Diag *diag) {
    const Node *param = node->inputs[0].node;
    const Type *numbers = value_type(node->inputs[1]);
    (void)graph;
    if (!node_is_balanced(param)) {
        diag_error(diag, node->loc,
                   "tally: the first operand must be a parameter made with 'balance', what it "
                   "changes by in a step");
        diag_note(diag, param->loc, "made here");
        return false;
    }
    bool fits = numbers->dtype == DTYPE_F32;
    for (int i = 0; i < param->types[0].rank; i++) {
        int at = type_find_axis(numbers, param->types[0].axes[i]);
        fits &= at >= 0 && numbers->dims[at] == param->types[0].dims[i];
    }
    if (fits) return true;
    diag_error(diag, node->loc, "tally: the numbers must be f32, and have the parameter's axes");
    diag_note(diag, node->inputs[1].node->loc, "made here");
    return false;
}

/* p, tally, scale -> p: p += balance sign(mean of the tally - tally), unless scale is not finite
 * (Wang et al. 2024, arXiv 2408.15664, algorithm 1) */
bool infer_balance(Graph *graph, Node *node, Diag *diag) {
    double step = node_float(node, ATTR_balance, 0);
    (void)graph;
    if (!(step >= 0 && step <= 1e6)) {
        diag_error(diag, node->loc, "balance: a step of %g; it is from 0 to 1e6", step);
        return false;
    }
    return check_update(node, 2, 3, 1, diag);
}

/* average, p, scale, update t -> average: average += (1 - decay_t) (p - average), unless scale is
 * not finite; decay_t = min(decay, (t - 1) / (t + 8)), see optimizer_ema */
bool infer_ema(Graph *graph, Node *node, Diag *diag) {
    const double decay = node_float(node, ATTR_decay, 0);
    const Type *average = value_type(node->inputs[0]);
    (void)graph;
    node->types[0] = *average;
    if (!(decay > 0 && decay < 1)) {
        diag_error(diag, node->loc, "ema: a decay of %g; it is between 0 and 1", decay);
        return false;
    }
    return check_update(node, 2, 4, 1, diag);
}

/* The same for all elements, as kernels compute it; false: not known without running. */
static bool find_constant(Value value, float *out) {
    const Node *node = value.node;
    switch (node->op) {
    case OP_CONST: *out = (float)node_float(node, ATTR_value, 0); return true;
    case OP_BROADCAST:
    case OP_NARROW: return find_constant(node->inputs[0], out);
    case OP_SCALE:
        if (!find_constant(node->inputs[0], out)) return false;
        *out *= (float)node_float(node, ATTR_value, 1);
        return true;
    default: return false;
    }
}

bool loss_is_joint(const Node *gradient, float *out_dloss) {
    const Node *lse = gradient->inputs[2].node;
    return gradient->op == OP_CROSS_ENTROPY_GRAD && gradient->n_inputs == 4 &&
           lse->op == OP_LOGSUMEXP && value_equal(lse->inputs[0], gradient->inputs[0]) &&
           find_constant(gradient->inputs[3], out_dloss);
}
