/* Weights in blocks, as products read them, and weights rounded to blocks. */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/blocks.h"
#include "runtime/cpu/round_blocks.h"

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

typedef struct RoundArgs {
    RoundForm form;
    RoundLayout layout;
    const float *from;
    DType dtype;
    void *to;
    int64_t n;
} RoundArgs;

static bool run_round(const void *args) {
    const RoundArgs *a = args;
    round_blocks(a->form, &a->layout, a->from, a->dtype, a->to, a->n);
    return true;
}

bool cpu_bind_round_blocks(Binding *b, CpuCall *out) {
    RoundArgs *args = ARENA_NEW(b->arena, RoundArgs);
    *args = (RoundArgs){.form = round_form_find(node_string(b->node, ATTR_blocks)),
                        .layout = round_layout(b->node, &b->in_local[0]),
                        .from = b->in[0],
                        .dtype = b->out_local[0].dtype,
                        .to = b->out[0],
                        .n = type_elements(&b->out_local[0])};
    *out = (CpuCall){run_round, args};
    return true;
}
