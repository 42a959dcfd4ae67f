/* Elementwise and fused nodes, broadcasts and accumulation: one generated kernel each. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"

static bool fill_space(const Binding *b, FusedSpec *spec) {
    ElementSpace space;
    if (!bind_space(b, spec->expr, &space)) return false;
    spec->n_dims = space.n_dims;
    for (int d = 0, n_long = 0; d < space.n_dims; d++) {
        n_long += space.dims[d] != 1;
        if (n_long > FUSED_MAX_DIMS) return bind_fail(b, "has too many axes for dropout under c");
        spec->dims[d] = space.dims[d];
        spec->global_stride[d] = space.stride[d];
        spec->global_offset[d] = (uint64_t)space.offset[d];
        for (int k = 0; k < b->node->n_inputs; k++) spec->in_stride[k][d] = space.in_stride[k][d];
    }
    for (int k = 0; k < b->node->n_inputs; k++) {
        spec->in[k] = b->in[k];
        spec->in_dtype[k] = b->in_local[k].dtype;
    }
    for (int o = 0; o < b->node->n_outputs; o++) {
        spec->out[o] = b->out[o];
        spec->out_dtype[o] = b->out_local[o].dtype;
    }
    spec->state = cuda_emitter(b)->state;
    return true;
}

static bool bind_expr(Binding *b, const Expr *expr) {
    FusedSpec spec = {.expr = expr};
    if (!fill_space(b, &spec)) return false;
    for (int n = 0; n < expr->n_instructions; n++) {
        spec.key[n] = bind_random_key(b->block, expr->instructions[n].key);
    }
    FusedLaunch launch = codegen_fused(cuda_emitter(b)->generated, &spec);
    return cuda_push_generated(b, launch.kernel, launch.grid, launch.threads, &launch.args,
                               sizeof(launch.args));
}

bool cuda_bind_elementwise(Binding *b) {
    Expr expr = expr_of_node(b->node);
    return bind_expr(b, &expr);
}

bool cuda_bind_fused(Binding *b) {
    Expr expr;
    const char *error;
    if (!expr_parse(node_string(b->node, ATTR_program), b->node->n_inputs, &expr, &error)) {
        return bind_fail(b, error);
    }
    return bind_expr(b, &expr);
}

static Expr unary(OpKind op) {
    return (Expr){.n_inputs = 1,
                  .n_instructions = 1,
                  .n_outputs = 1,
                  .instructions = {{.op = op, .operands = {~0, ~0, ~0}}}};
}

bool cuda_bind_broadcast(Binding *b) {
    Expr expr = unary(OP_COPY);
    return bind_expr(b, &expr);
}

/* acc = share at the first share of a step, acc += share after. */
bool cuda_bind_accumulate(Binding *b) {
    Expr expr = unary(b->overwrite ? OP_COPY : OP_ADD);
    expr.instructions[0].operands[b->overwrite ? 0 : 1] = ~1;
    expr.n_inputs = 2;
    return bind_expr(b, &expr);
}
