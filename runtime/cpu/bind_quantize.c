/* Numbers to fp8 with scales, and back. */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/quantize.h"

typedef struct QuantizeArgs {
    BlockLayout layout;
    DType dtype;
    const void *x;
    uint8_t *values;
    float *scales;
    uint16_t *wide;
} QuantizeArgs;

static bool run_quantize(const void *args) {
    const QuantizeArgs *a = args;
    quantize(&a->layout, a->dtype, a->x, a->values, a->scales);
    return true;
}

static bool run_dequantize(const void *args) {
    const QuantizeArgs *a = args;
    dequantize(&a->layout, a->values, a->scales, a->wide);
    return true;
}

bool cpu_bind_quantize(Binding *b, CpuCall *out) {
    QuantizeArgs *args = ARENA_NEW(b->arena, QuantizeArgs);
    *args = (QuantizeArgs){
        .dtype = b->in_local[0].dtype, .x = b->in[0], .values = b->out[0], .scales = b->out[1]};
    *out = (CpuCall){run_quantize, args};
    return bind_blocks(b, &args->layout);
}

bool cpu_bind_dequantize(Binding *b, CpuCall *out) {
    QuantizeArgs *args = ARENA_NEW(b->arena, QuantizeArgs);
    *args = (QuantizeArgs){.values = b->in[0], .scales = b->in[1], .wide = b->out[0]};
    *out = (CpuCall){run_dequantize, args};
    return bind_blocks(b, &args->layout);
}
