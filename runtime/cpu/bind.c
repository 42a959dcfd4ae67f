#include "runtime/cpu/bind.h"

bool cpu_bind(Binding *binding, CpuCall *out) {
    static bool (*const BINDERS[N_OPS])(Binding *, CpuCall *) = {
#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    cpu_bind_##kernel,
#include "ir/ops.def"
#undef OP
    };
    bool low = false;
    for (int i = 0; i < binding->node->n_inputs; i++) {
        low |= binding->in_local[i].dtype == DTYPE_BF16;
    }
    for (int o = 0; o < binding->node->n_outputs; o++) {
        low |= binding->node->types[o].dtype == DTYPE_BF16;
    }
    const OpInfo *op = &OPS[binding->node->op];
    if (low && !(op->flags & ELEMENTWISE_BIT) && binding->node->op != OP_FUSED) {
        return bind_fail(binding, "has no CPU kernel for bf16 yet");
    }
    return BINDERS[binding->node->op](binding, out);
}

bool cpu_bind_none(Binding *binding, CpuCall *out) {
    (void)out;
    return bind_fail(binding, "has no CPU kernel");
}
