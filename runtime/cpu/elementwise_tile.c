/* Execution: the loop of each op over a tile, and the walk over tiles. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/elementwise_tile.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define PARALLEL_ELEMENTS 16384 /* fewer are done before other threads have woken */

const char *const ELEMENTWISE_NAMES[N_ELEMENTWISE_OPS] = {
#define X(NAME, name, n_args, value) #name,
    ELEMENTWISE_OPS(X)
#undef X
};

const int ELEMENTWISE_N_ARGS[N_ELEMENTWISE_OPS] = {
#define X(NAME, name, n_args, value) n_args,
    ELEMENTWISE_OPS(X)
#undef X
};

/* x > y ? x : y, but NaN if either is. */
VEC_INLINE float vmath_maximum(float x, float y) {
    const float larger = x > y ? x : y; /* y if x is NaN */
    return vec_from_bits(vec_select(x != x, vec_bits(x), vec_bits(larger)));
}

VEC_INLINE float vmath_maximum_slope(float x, float y) {
    return (x > y ? 0.5f : 0.0f) + (x >= y ? 0.5f : 0.0f);
}

typedef void TileLoop(float *dst, const float *a, const float *b, const float *c, int64_t n,
                      float imm);

/* dst may be a, b or c itself, never a part of it shifted: simd is safe. Operands an op does not
 * have are not read. */
#define LOAD_0
#define LOAD_1 const float x = a[i];
#define LOAD_2 LOAD_1 const float y = b[i];
#define LOAD_3 LOAD_2 const float z = c[i];
#define X(NAME, name, n_args, value)                                                               \
    static void loop_##name(float *dst, const float *a, const float *b, const float *c, int64_t n, \
                            float imm) {                                                           \
        (void)a, (void)b, (void)c, (void)imm;                                                      \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                      \
            LOAD_##n_args dst[i] = value;                                                          \
        }                                                                                          \
    }
ELEMENTWISE_OPS(X)
#undef X

static TileLoop *const LOOPS[N_ELEMENTWISE_OPS] = {
#define X(NAME, name, n_args, value) loop_##name,
    ELEMENTWISE_OPS(X)
#undef X
};

VEC_INLINE void load_strided(const DType dtype, const void *from, int64_t step, int64_t n,
                             float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = vec_get(from, dtype, i * step);
}

static void load_integers(const int32_t *from, int64_t step, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)from[i * step];
}

/* `n` elements that lie `step` apart. */
static void load_run(DType dtype, const void *from, int64_t step, int64_t n, float *out) {
    if (dtype == DTYPE_I32)
        load_integers(from, step, n, out);
    else if (step == 1 && dtype_is_low(dtype))
        vec_low_load(dtype, from, out, n);
    else if (step == 1)
        memcpy(out, from, (size_t)n * sizeof *out);
    else if (dtype == DTYPE_BF16)
        load_strided(DTYPE_BF16, from, step, n, out);
    else if (dtype == DTYPE_F16)
        load_strided(DTYPE_F16, from, step, n, out);
    else
        load_strided(DTYPE_F32, from, step, n, out);
}

/* Copies elements [linear, linear + n) of an input into a slot, row piece by row piece. */
static void load_tile(const ElementwiseCall *call, int input, int64_t linear, int64_t n,
                      float *out) {
    const int64_t *stride = call->in_stride[input];
    const int last = call->n_dims - 1;
    while (n > 0) {
        int64_t rest = linear / call->inner, at = linear % call->inner;
        const int64_t run = call->inner - at < n ? call->inner - at : n;
        const int64_t step = stride[last];
        int64_t offset = at * step;
        for (int d = last - 1; d >= 0; d--) {
            offset += rest % call->dims[d] * stride[d];
            rest /= call->dims[d];
        }
        const DType dtype = call->in_dtype[input];
        load_run(dtype, vec_at(call->in[input], dtype, offset), step, run, out);
        out += run;
        linear += run;
        n -= run;
    }
}

static void run_dropout(const ElementwiseCall *call, const ElementwiseStep *step, int64_t linear,
                        int64_t n, const float *a, float *dst) {
    if (!call->train || !*call->train) {
        if (dst != a) memcpy(dst, a, (size_t)n * sizeof *dst);
        return;
    }
    const PhiloxStream stream = {.seed = *call->seed, .step = *call->step, .key = step->key};
    const float p = step->imm, factor = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
    float uniform[512];
    while (n > 0) {
        int64_t run;
        uint64_t stride;
        const uint64_t index = philox_space_locate(&call->space, linear, &run, &stride);
        if (run > n) run = n;
        if (run > 512) run = 512;
        philox_uniform_run(&stream, index, stride, run, uniform);
#pragma omp simd
        for (int64_t i = 0; i < run; i++) dst[i] = uniform[i] >= p ? a[i] * factor : 0.0f;
        dst += run;
        a += run;
        linear += run;
        n -= run;
    }
}

/* In bf16, rounded up where what is cut off exceeds the threshold (optimizer.c's close_squares). */
static void store_above(uint16_t *out, uint32_t threshold, int64_t n, const float *from) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)((vec_bits(from[i]) + threshold) >> 16);
}

static void store_tile(const ElementwiseCall *call, int output, int64_t linear, int64_t n,
                       const float *from) {
    const DType dtype = call->out_dtype[output];
    if (call->out_above[output])
        store_above((uint16_t *)call->out[output] + linear, call->threshold, n, from);
    else if (dtype_is_low(dtype))
        vec_low_store(dtype, from, (uint16_t *)call->out[output] + linear, n);
    else
        memcpy((float *)call->out[output] + linear, from, (size_t)n * sizeof *from);
}

static int64_t input_offset(const ElementwiseCall *call, int input, int64_t linear) {
    int64_t offset = 0;
    for (int d = call->n_dims - 1; d >= 0; d--) {
        offset += linear % call->dims[d] * call->in_stride[input][d];
        linear /= call->dims[d];
    }
    return offset;
}

static void run_tile(const ElementwiseCall *call, int64_t linear, int64_t n) {
    float buffer[TILE_BUFFER] __attribute__((aligned(64)));
    float *place[ELEMENTWISE_MAX_REGISTERS];
    for (int r = 0; r < call->n_registers; r++) {
        const int slot = call->slot[r];
        if (slot == TILE_UNPLACED)
            place[r] = NULL; /* an input that nothing reads */
        else if (slot < 0)
            place[r] = (float *)(uintptr_t)call->in[r] + input_offset(call, r, linear);
        else if (slot >= TILE_OUT_PLACE)
            place[r] = (float *)call->out[slot - TILE_OUT_PLACE] + linear;
        else
            place[r] = buffer + slot * call->tile;
    }
    for (int i = 0; i < call->n_steps; i++) {
        const ElementwiseStep *s = &call->steps[i];
        if (s->kind == TILE_LOAD)
            load_tile(call, s->dst, linear, n, place[s->dst]);
        else if (s->kind == TILE_STORE)
            store_tile(call, s->dst, linear, n, place[s->arg[0]]);
        else if (s->op == EW_DROPOUT)
            run_dropout(call, s, linear, n, place[s->arg[0]], place[s->dst]);
        else
            LOOPS[s->op](place[s->dst], place[s->arg[0]], place[s->arg[1]], place[s->arg[2]], n,
                         s->imm);
    }
}

void elementwise_run(const ElementwiseCall *call) {
#pragma omp parallel for schedule(static) if (call->total > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < call->n_tiles; t++) {
        int64_t first = t * call->tile, end = call->total;
        if (call->tiles_per_row > 0) {
            const int64_t row = t / call->tiles_per_row;
            first = row * call->inner + t % call->tiles_per_row * call->tile;
            end = (row + 1) * call->inner;
        }
        run_tile(call, first, end - first < call->tile ? end - first : call->tile);
    }
}
