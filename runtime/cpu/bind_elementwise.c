/* Elementwise and fused nodes, broadcasts, sums of scalars, constants, the share of labels,
 * accumulation. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/bind_elementwise.h"

#include <string.h>

static bool run_elementwise(const void *args) {
    elementwise_run(args);
    return true;
}

/* The kernel's number of an op of the table, by name; -1: it has none. */
static int find_kernel_op(OpKind op) {
    for (int i = 0; i < N_ELEMENTWISE_OPS; i++) {
        if (strcmp(ELEMENTWISE_NAMES[i], OPS[op].name) == 0) return i;
    }
    return -1;
}

static bool fill_space(const Binding *b, const Expr *expr, ElementwiseSpec *spec) {
    ElementSpace space;
    _Static_assert(SPACE_MOST_DIMS <= ELEMENTWISE_MAX_DIMS, "a space has more dimensions");
    if (!bind_space(b, expr, &space)) return false;
    spec->n_dims = space.n_dims;
    spec->n_in = b->node->n_inputs;
    for (int d = 0; d < space.n_dims; d++) {
        spec->dims[d] = space.dims[d];
        spec->global_stride[d] = space.stride[d];
        spec->global_offset[d] = space.offset[d];
        for (int k = 0; k < spec->n_in; k++) spec->in_stride[k][d] = space.in_stride[k][d];
    }
    for (int k = 0; k < spec->n_in; k++) {
        spec->in[k] = b->in[k];
        spec->in_dtype[k] = b->in_local[k].dtype;
    }
    spec->seed = &cpu_context(b)->state->seed;
    spec->step = &cpu_context(b)->state->step;
    spec->train = &cpu_context(b)->state->train;
    return true;
}

bool cpu_fill_instructions(Binding *b, const Expr *expr, ElementwiseInstr *out) {
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *from = &expr->instructions[n];
        int op = find_kernel_op(from->op);
        if (op < 0) return bind_fail(b, "has no elementwise kernel");
        out[n] = (ElementwiseInstr){.op = (ElementwiseOp)op,
                                    .dst = expr->n_inputs + n,
                                    .imm = (float)from->imm,
                                    .key = bind_random_key(b->block, from->key)};
        for (int i = 0; i < EXPR_MAX_OPERANDS; i++) {
            int operand = from->operands[i];
            out[n].arg[i] = operand < 0 ? ~operand : expr->n_inputs + operand;
        }
    }
    return true;
}

static bool bind_expr(Binding *b, const Expr *expr, CpuCall *out) {
    ElementwiseSpec spec = {.n_out = expr->n_outputs, .n_instr = expr->n_instructions};
    ElementwiseInstr instructions[EXPR_MAX_INSTRUCTIONS];
    ElementwiseCall *call = ARENA_NEW(b->arena, ElementwiseCall);
    const char *why = "";
    if (!fill_space(b, expr, &spec)) return false;
    if (!cpu_fill_instructions(b, expr, instructions)) return false;
    for (int i = 0; i < expr->n_outputs; i++) {
        spec.out[i] = b->out[i];
        spec.out_dtype[i] = b->out_local[i].dtype;
        spec.out_register[i] = spec.n_in + expr->outputs[i];
    }
    spec.instr = instructions;
    if (!elementwise_prepare(&spec, call, &why)) return bind_fail(b, why);
    *out = (CpuCall){run_elementwise, call};
    return true;
}

bool cpu_bind_elementwise(Binding *b, CpuCall *out) {
    Expr expr = expr_of_node(b->node);
    return bind_expr(b, &expr, out);
}

bool cpu_bind_fused(Binding *b, CpuCall *out) {
    Expr expr;
    const char *error;
    if (!expr_parse(node_string(b->node, ATTR_program), b->node->n_inputs, &expr, &error)) {
        return bind_fail(b, error);
    }
    return bind_expr(b, &expr, out);
}

static Expr unary(OpKind op) {
    return (Expr){.n_inputs = 1,
                  .n_instructions = 1,
                  .n_outputs = 1,
                  .instructions = {{.op = op, .operands = {~0, ~0, ~0}}}};
}

bool cpu_bind_broadcast(Binding *b, CpuCall *out) {
    Expr expr = unary(OP_COPY);
    return bind_expr(b, &expr, out);
}

/* acc = share at the first share of a step, acc += share after. */
bool cpu_bind_accumulate(Binding *b, CpuCall *out) {
    Expr expr = unary(b->overwrite ? OP_COPY : OP_ADD);
    if (b->overwrite) {
        expr.instructions[0].operands[0] = ~1;
    } else {
        expr.instructions[0].operands[1] = ~1;
    }
    expr.n_inputs = 2;
    return bind_expr(b, &expr, out);
}

typedef struct FillArgs {
    float *out, value;
} FillArgs;

static bool run_const(const void *args) {
    const FillArgs *a = args;
    *a->out = a->value;
    return true;
}

bool cpu_bind_const(Binding *b, CpuCall *out) {
    FillArgs *args = ARENA_NEW(b->arena, FillArgs);
    *args = (FillArgs){b->out[0], (float)node_float(b->node, ATTR_value, 0)};
    *out = (CpuCall){run_const, args};
    return true;
}

typedef struct LabelShareArgs {
    const StepState *state;
    float *out;
} LabelShareArgs;

static bool run_label_share(const void *args) {
    const LabelShareArgs *a = args;
    *a->out = a->state->label_share;
    return true;
}

bool cpu_bind_label_share(Binding *b, CpuCall *out) {
    LabelShareArgs *args = ARENA_NEW(b->arena, LabelShareArgs);
    *args = (LabelShareArgs){cpu_context(b)->state, b->out[0]};
    *out = (CpuCall){run_label_share, args};
    return true;
}

typedef struct SumArgs {
    int n_inputs;
    int64_t n;
    DType dtype;
    const void **in;
    void *out;
} SumArgs;

/* In f64: the clipping norm adds up thousands of squares. */
static bool run_add_n(const void *args) {
    const SumArgs *a = args;
    for (int64_t i = 0; i < a->n; i++) {
        double sum = 0;
        for (int k = 0; k < a->n_inputs; k++) sum += (double)vec_get(a->in[k], a->dtype, i);
        vec_put(a->out, a->dtype, i, (float)sum);
    }
    return true;
}

bool cpu_bind_add_n(Binding *b, CpuCall *out) {
    SumArgs *args = ARENA_NEW(b->arena, SumArgs);
    *args = (SumArgs){.n_inputs = b->node->n_inputs,
                      .n = type_elements(&b->out_local[0]),
                      .dtype = b->out_local[0].dtype,
                      .in = ARENA_ARRAY(b->arena, const void *, b->node->n_inputs),
                      .out = b->out[0]};
    for (int k = 0; k < args->n_inputs; k++) args->in[k] = b->in[k];
    *out = (CpuCall){run_add_n, args};
    return true;
}
