/* Elementwise ops: operands broadcast by axis name; gradients of each. */
#include "ir/expr.h"
#include "ir/op.h"

#include <inttypes.h>

static DType input_dtype(const Node *node, int input) {
    return value_type(node->inputs[input])->dtype;
}

static bool require_float(Node *node, int input, Diag *diag) {
    if (dtype_is_float(input_dtype(node, input))) return true;
    diag_error(diag, node->loc, "%s: operand %d is %s; it must be f32, bf16 or f16",
               OPS[node->op].name, input + 1, dtype_name(input_dtype(node, input)));
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

/* All operands of one dtype: what mixes them says where it rounds. */
static bool require_one_dtype(Node *node, Diag *diag) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (!require_float(node, i, diag)) return false;
        if (input_dtype(node, i) == input_dtype(node, 0)) continue;
        diag_error(diag, node->loc,
                   "%s: operand 1 is %s and operand %d is %s; cast one with to_%s or to_%s",
                   OPS[node->op].name, dtype_name(input_dtype(node, 0)), i + 1,
                   dtype_name(input_dtype(node, i)), dtype_name(input_dtype(node, 0)),
                   dtype_name(input_dtype(node, i)));
        diag_note(diag, node->inputs[0].node->loc, "operand 1 made here");
        diag_note(diag, node->inputs[i].node->loc, "operand %d made here", i + 1);
        return false;
    }
    return true;
}

/* The union of all operands' axes: the widest operand's in its order, then what others add. */
static bool infer_union(Graph *graph, Node *node, Type *out, Diag *diag) {
    int widest = 0;
    for (int i = 1; i < node->n_inputs; i++) {
        if (value_type(node->inputs[i])->rank > value_type(node->inputs[widest])->rank) widest = i;
    }
    *out = *value_type(node->inputs[widest]);
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *type = value_type(node->inputs[i]);
        for (int j = 0; j < type->rank; j++) {
            int at = type_find_axis(out, type->axes[j]);
            if (at < 0 && out->rank == MAX_RANK) {
                diag_error(diag, node->loc, "%s: the result would have more than %d axes",
                           OPS[node->op].name, MAX_RANK);
                return false;
            }
            if (at < 0) {
                out->axes[out->rank] = type->axes[j];
                out->dims[out->rank++] = type->dims[j];
            } else if (out->dims[at] != type->dims[j]) {
                int other = i == widest ? 0 : widest;
                diag_error(diag, node->loc,
                           "%s: axis '%s' is %" PRId64 " in one operand and %" PRId64
                           " in the other",
                           OPS[node->op].name, graph->axes.names[type->axes[j]], out->dims[at],
                           type->dims[j]);
                diag_note(diag, node->inputs[other].node->loc, "one operand made here");
                diag_note(diag, node->inputs[i].node->loc, "the other made here");
                return false;
            }
        }
    }
    return true;
}

bool infer_elementwise(Graph *graph, Node *node, Diag *diag) {
    return require_one_dtype(node, diag) && infer_union(graph, node, &node->types[0], diag);
}

bool infer_dropout(Graph *graph, Node *node, Diag *diag) {
    int64_t first = node_int(node, ATTR_first, 0), count = node_int(node, ATTR_count, 1);
    if (!expr_lane_fits(first, count)) {
        diag_error(diag, node->loc, "dropout: row %" PRId64 " of each %" PRId64 " is not possible",
                   first, count);
        return false;
    }
    return infer_elementwise(graph, node, diag);
}

bool infer_compare(Graph *graph, Node *node, Diag *diag) {
    if (!infer_union(graph, node, &node->types[0], diag)) return false;
    node->types[0].dtype = DTYPE_F32;
    return true;
}

bool infer_number(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = type_with_dtype(value_type(node->inputs[0]), DTYPE_F32);
    if (value_type(node->inputs[0])->dtype == DTYPE_I32) return true;
    diag_error(diag, node->loc, "number: the operand is %s; it must be i32: tokens, labels, places",
               dtype_name(value_type(node->inputs[0])->dtype));
    diag_note(diag, node->inputs[0].node->loc, "made here");
    return false;
}

/* Only comparisons, and what makes numbers of them, read integers. */
static bool check_integers(const Node *node, const Expr *expr, Diag *diag) {
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        for (int i = 0; i < OPS[ins->op].min_inputs && !op_reads_integers(ins->op); i++) {
            int from = ins->operands[i];
            if (from < 0 && !dtype_is_float(input_dtype(node, ~from))) {
                diag_error(diag, node->loc, "fused: t%d=%s(...) reads operand %d, which is %s", n,
                           OPS[ins->op].name, ~from + 1, dtype_name(input_dtype(node, ~from)));
                return false;
            }
        }
    }
    return true;
}

bool infer_cast(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = type_with_dtype(value_type(node->inputs[0]), op_cast_dtype(node->op));
    return require_float(node, 0, diag);
}

bool infer_fused(Graph *graph, Node *node, Diag *diag) {
    Type type;
    const int most = OPS[OP_FUSED].n_outputs;
    if (node->n_outputs < 1 || node->n_outputs > most) {
        diag_error(diag, node->loc, "fused: has %d results; 1 to %d are possible", node->n_outputs,
                   most);
        return false;
    }
    Expr expr;
    const char *error;
    if (!expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error) ||
        expr.n_outputs != node->n_outputs) {
        diag_error(diag, node->loc, "fused: the program has %s",
                   error ? error : "another number of results");
        return false;
    }
    DType inputs[EXPR_MAX_INPUTS], registers[EXPR_MAX_INSTRUCTIONS];
    if (!check_integers(node, &expr, diag)) return false;
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = input_dtype(node, i);
    int mixed = expr_infer_dtypes(&expr, inputs, registers);
    if (mixed >= 0) {
        diag_error(
            diag, node->loc,
            "fused: t%d=%s(...) has operands of two dtypes; cast one with to_f32, to_bf16 or "
            "to_f16",
            mixed, OPS[expr.instructions[mixed].op].name);
        return false;
    }
    if (!infer_union(graph, node, &type, diag)) return false;
    for (int i = 0; i < node->n_outputs; i++) {
        node->types[i] = type_with_dtype(&type, registers[expr.outputs[i]]);
    }
    return true;
}

bool infer_add_n(Graph *graph, Node *node, Diag *diag) {
    node->types[0] = *value_type(node->inputs[0]);
    if (!require_one_dtype(node, diag)) return false;
    for (int i = 0; i < node->n_inputs; i++) {
        if (type_equal(value_type(node->inputs[i]), &node->types[0])) continue;
        diag_error(diag, node->loc, "add_n: operand %d has another shape than the first", i + 1);
        return false;
    }
    (void)graph;
    return true;
}

bool infer_accumulate(Graph *graph, Node *node, Diag *diag) {
    (void)graph;
    node->types[0] = *value_type(node->inputs[0]);
    if (node->types[0].dtype != DTYPE_F32 && node->types[0].dtype != DTYPE_BF16) {
        diag_error(diag, node->loc, "accumulate: the accumulator is %s; it must be f32 or bf16",
                   dtype_name(node->types[0].dtype));
        return false;
    }
    if (!require_float(node, 1, diag)) return false;
    if (type_same_shape(value_type(node->inputs[1]), &node->types[0])) return true;
    diag_error(diag, node->loc, "accumulate: the operands have different shapes");
    return false;
}

bool infer_broadcast(Graph *graph, Node *node, Diag *diag) {
    const Type *from = value_type(node->inputs[0]);
    for (int i = 0; i < from->rank; i++) {
        int at = type_find_axis(&node->types[0], from->axes[i]);
        if (at >= 0 && node->types[0].dims[at] == from->dims[i]) continue;
        diag_error(diag, node->loc, "broadcast: axis '%s' does not fit the result",
                   graph->axes.names[from->axes[i]]);
        return false;
    }
    if (from->dtype == node->types[0].dtype) return true;
    diag_error(diag, node->loc, "broadcast: the operand is %s and the result %s",
               dtype_name(from->dtype), dtype_name(node->types[0].dtype));
    return false;
}

static Value scaled(GradContext *ctx, Value value, double factor) {
    Attr attr = attr_float(ATTR_value, factor);
    return grad_build(ctx, OP_SCALE, &value, 1, &attr, 1);
}

static const Type *input_type(const Node *node, int input) {
    return value_type(node->inputs[input]);
}

void grad_add(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_reduce_to(ctx, douts[0], input_type(node, 0));
    dins[1] = grad_reduce_to(ctx, douts[0], input_type(node, 1));
}

void grad_sub(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_reduce_to(ctx, douts[0], input_type(node, 0));
    dins[1] = grad_reduce_to(ctx, GRAD_NODE(ctx, OP_NEG, douts[0]), input_type(node, 1));
}

void grad_mul(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    for (int i = 0; i < 2; i++) {
        Value product = GRAD_NODE(ctx, OP_MUL, douts[0], node->inputs[1 - i]);
        dins[i] = grad_reduce_to(ctx, product, input_type(node, i));
    }
}

void grad_div(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value da = GRAD_NODE(ctx, OP_DIV, douts[0], node->inputs[1]);
    dins[0] = grad_reduce_to(ctx, da, input_type(node, 0));
    Value ratio = GRAD_NODE(ctx, OP_DIV, node_value((Node *)node, 0), node->inputs[1]);
    Value db = GRAD_NODE(ctx, OP_NEG, GRAD_NODE(ctx, OP_MUL, douts[0], ratio));
    dins[1] = grad_reduce_to(ctx, db, input_type(node, 1));
}

void grad_neg(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    (void)node;
    dins[0] = GRAD_NODE(ctx, OP_NEG, douts[0]);
}

void grad_scale(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = scaled(ctx, douts[0], node_float(node, ATTR_value, 1));
}

void grad_copy(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    (void)ctx, (void)node;
    dins[0] = douts[0];
}

void grad_square(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = scaled(ctx, GRAD_NODE(ctx, OP_MUL, douts[0], node->inputs[0]), 2);
}

void grad_sqrt(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = scaled(ctx, GRAD_NODE(ctx, OP_DIV, douts[0], node_value((Node *)node, 0)), 0.5);
}

void grad_rsqrt(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    /* d x^-1/2 = -1/2 x^-3/2 = -1/2 y / x */
    Value slope = GRAD_NODE(ctx, OP_DIV, node_value((Node *)node, 0), node->inputs[0]);
    dins[0] = scaled(ctx, GRAD_NODE(ctx, OP_MUL, douts[0], slope), -0.5);
}

void grad_reciprocal(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value y2 = GRAD_NODE(ctx, OP_SQUARE, node_value((Node *)node, 0));
    dins[0] = GRAD_NODE(ctx, OP_NEG, GRAD_NODE(ctx, OP_MUL, douts[0], y2));
}

void grad_exp(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_MUL, douts[0], node_value((Node *)node, 0));
}

void grad_log(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_DIV, douts[0], node->inputs[0]);
}

void grad_tanh(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value y2 = GRAD_NODE(ctx, OP_SQUARE, node_value((Node *)node, 0));
    dins[0] = GRAD_NODE(ctx, OP_SUB, douts[0], GRAD_NODE(ctx, OP_MUL, douts[0], y2));
}

void grad_sigmoid(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value y = node_value((Node *)node, 0);
    Value slope = GRAD_NODE(ctx, OP_SUB, y, GRAD_NODE(ctx, OP_SQUARE, y));
    dins[0] = GRAD_NODE(ctx, OP_MUL, douts[0], slope);
}

void grad_softplus(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_MUL, douts[0], GRAD_NODE(ctx, OP_SIGMOID, node->inputs[0]));
}

void grad_gelu(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_GELU_GRAD, node->inputs[0], douts[0]);
}

void grad_gelu_erf(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_GELU_ERF_GRAD, node->inputs[0], douts[0]);
}

void grad_silu(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_SILU_GRAD, node->inputs[0], douts[0]);
}

void grad_relu(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_RELU_GRAD, node->inputs[0], douts[0]);
}

/* maximum_grad(a, b, dy) is what flows to a (half where both are equal); the rest flows to b. */
void grad_maximum(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value to_a = GRAD_NODE(ctx, OP_MAXIMUM_GRAD, node->inputs[0], node->inputs[1], douts[0]);
    dins[0] = grad_reduce_to(ctx, to_a, input_type(node, 0));
    dins[1] = grad_reduce_to(ctx, GRAD_NODE(ctx, OP_SUB, douts[0], to_a), input_type(node, 1));
}

/* As of -maximum(-a, -b): the gradient of a where b is the larger. */
void grad_minimum(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    Value to_a = GRAD_NODE(ctx, OP_MAXIMUM_GRAD, node->inputs[1], node->inputs[0], douts[0]);
    dins[0] = grad_reduce_to(ctx, to_a, input_type(node, 0));
    dins[1] = grad_reduce_to(ctx, GRAD_NODE(ctx, OP_SUB, douts[0], to_a), input_type(node, 1));
}

/* 0 at 0. */
void grad_abs(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = GRAD_NODE(ctx, OP_MUL, douts[0], GRAD_NODE(ctx, OP_SIGN, node->inputs[0]));
}

/* The same mask again: nothing is stored (Philox is counter-based). */
void grad_dropout(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_build(ctx, OP_DROPOUT, douts, 1, node->attrs, node->n_attrs);
}

/* Back to what the operand is. */
void grad_cast(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_to_dtype(ctx, douts[0], input_dtype(node, 0));
}

void grad_broadcast(GradContext *ctx, const Node *node, const Value *douts, Value *dins) {
    dins[0] = grad_reduce_to(ctx, douts[0], input_type(node, 0));
}
