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

bool bind_fail(Binding *binding, const char *why) {
    diag_error(binding->diag, binding->node->loc, "%s: %s", OPS[binding->node->op].name, why);
    return false;
}

int64_t bind_offset(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    int mesh = sharding->mesh[i];
    if (mesh < 0) return 0;
    Type local = type_local(type, sharding, &binding->graph->mesh);
    return binding->coord.at[mesh] * local.dims[i];
}

int64_t bind_valid(const Binding *binding, const Type *type, const Sharding *sharding, int i) {
    Type local = type_local(type, sharding, &binding->graph->mesh);
    int64_t left = type->dims[i] - bind_offset(binding, type, sharding, i);
    if (left < 0) return 0;
    return left < local.dims[i] ? left : local.dims[i];
}

int64_t bind_rows(const Type *local) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < local->rank; i++) rows *= local->dims[i];
    return rows;
}
