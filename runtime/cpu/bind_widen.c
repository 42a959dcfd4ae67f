/* Weights in blocks, as products read them. */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/blocks.h"

typedef struct WidenArgs {
    DType from_dtype, to_dtype;
    const void *from;
    void *to;
    int64_t n;
} WidenArgs;

static bool run_widen(const void *args) {
    const WidenArgs *a = args;
    blocks_widen(a->from_dtype, a->from, a->to_dtype, a->to, a->n);
    return true;
}

bool cpu_bind_widen(Binding *b, CpuCall *out) {
    WidenArgs *args = ARENA_NEW(b->arena, WidenArgs);
    *args = (WidenArgs){.from_dtype = b->in_local[0].dtype,
                        .to_dtype = b->out_local[0].dtype,
                        .from = b->in[0],
                        .to = b->out[0],
                        .n = type_elements(&b->out_local[0])};
    *out = (CpuCall){run_widen, args};
    return true;
}
