#include "runtime/cpu/bind.h"

bool cpu_bind(Binding *binding, CpuCall *out) {
    static bool (*const BINDERS[N_OPS])(Binding *, CpuCall *) = {
#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    cpu_bind_##kernel,
#include "ir/ops.def"
#undef OP
    };
    return BINDERS[binding->node->op](binding, out);
}

bool cpu_bind_none(Binding *binding, CpuCall *out) {
    (void)out;
    return bind_fail(binding, "has no CPU kernel");
}
