/* Elementwise and fused nodes, broadcasts and accumulation: one generated kernel each. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"

/* The iteration space of result 0: its local shape, each operand's strides by axis name, and, if
 * they are numbered, where the elements lie in the tensor of the whole global batch. */
static bool fill_space(const Binding *b, bool numbered, FusedSpec *spec) {
    const Type *whole = &b->node->types[0], *local = &b->out_local[0];
    int batch = axis_find(&b->graph->axes, "batch", 5);
    uint64_t stride = 1;
    for (int i = 0; i < local->rank; i++) {
        stride *= (uint64_t)(whole->dims[i] * (local->axes[i] == batch ? b->n_micro : 1));
    }
    for (int k = 0; k < b->node->n_inputs; k++) {
        spec->in[k] = b->in[k];
        spec->in_dtype[k] = b->in_local[k].dtype;
    }
    for (int i = 0; i < local->rank; i++) {
        bool is_batch = local->axes[i] == batch;
        DimSpan span = bind_span(b, whole, &b->node->shardings[0], i);
        SpanDims runs;
        int n = numbered ? span_dims(&span, local->dims[i], &runs) : 1;
        if (!numbered) runs = (SpanDims){{local->dims[i], 1}, {1, 1}, 0};
        stride /= (uint64_t)(whole->dims[i] * (is_batch ? b->n_micro : 1));
        for (int r = 0; r < n; r++, spec->n_dims++) {
            int at = spec->n_dims;
            int64_t offset = runs.offset + (is_batch ? b->micro * whole->dims[i] : 0);
            if (at == MAX_RANK) return bind_fail(b, "has too many axes for dropout under c");
            spec->dims[at] = runs.dims[r];
            spec->global_stride[at] = stride * (uint64_t)runs.step[r];
            spec->global_offset[at] = r < n - 1 ? 0 : (uint64_t)offset;
            for (int k = 0; k < b->node->n_inputs; k++) {
                int in = type_find_axis(&b->in_local[k], local->axes[i]);
                int64_t in_stride = in < 0 ? 0 : bind_stride(&b->in_local[k], in);
                spec->in_stride[k][at] = in_stride * (r < n - 1 ? runs.dims[1] : 1);
            }
        }
    }
    for (int o = 0; o < b->node->n_outputs; o++) {
        spec->out[o] = b->out[o];
        spec->out_dtype[o] = b->out_local[o].dtype;
    }
    spec->state = cuda_emitter(b)->state;
    return true;
}

/* Dropout goes by the elements' numbers. */
static bool is_numbered(const Expr *expr) {
    bool found = false;
    for (int n = 0; n < expr->n_instructions; n++) {
        found |= expr->instructions[n].op == OP_DROPOUT;
    }
    return found;
}

static bool bind_expr(Binding *b, const Expr *expr) {
    FusedSpec spec = {.expr = expr};
    if (!fill_space(b, is_numbered(expr), &spec)) return false;
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
