/* Parameters rounded to llama.cpp's blocks (runtime/cpu/ggml_blocks.h): the CPU's bits.
 *
 * A thread has a block. Its numbers lie anywhere, so threads that lie next to each other have what
 * does so in memory: rows where a product's sum runs over the outer axes, as in [model, ffn]. */
#include "runtime/cuda/kernels/update.cuh"

enum { N = ROUND_NUMBERS };

static __device__ __forceinline__ float as_half(float x) {
    return to_float(Low<f16_t>::round(x));
}

static __device__ __forceinline__ void put_rounded(const RoundBlocksArgs &a, int64_t at, float x) {
    if (a.dtype == DTYPE_F32) {
        ((float *)a.to)[at] = x;
    } else {
        put_copy<1>(a.dtype, (uint16_t *)a.to + at, &x);
    }
}

/* Halves are rounded away from zero: what is cut off is exact. */
static __device__ __forceinline__ int round_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* The number of the code of x, where the scale's reciprocal is `inverse`. */
static __device__ __forceinline__ int find_code(bool eight, float x, float inverse) {
    const float times = __fmul_rn(x, inverse); /* rounded before the sum */
    if (eight) return round_away(times);
    const int code = (int)(times + 8.5f);
    return (code > 15 ? 15 : code) - 8;
}

KERNEL_FUNCTION __launch_bounds__(ROUND_THREADS) round_blocks(RoundBlocksArgs a) {
    const int64_t i = (int64_t)blockIdx.x * ROUND_THREADS + threadIdx.x;
    if (i >= a.count) return;
    const uint32_t slow = fast_divide(a.each, (uint32_t)i);
    const uint32_t fast = (uint32_t)i - slow * a.each.divisor;
    const uint32_t begin = (a.by_rows ? slow : fast) * N;
    const int64_t row = index_map(a.other, a.by_rows ? fast : slow);
    float x[N], most = 0;
    uint32_t largest = 0; /* bits of sizes are in their order */
#pragma unroll
    for (int j = 0; j < N; j++) {
        x[j] = a.from[row + index_map(a.row, begin + j)];
        const uint32_t size = __float_as_uint(x[j]) & 0x7fffffffu;
        if (size > largest) {
            largest = size;
            most = x[j];
        }
    }
    const float size = bits_to_float(largest);
    const float scale = a.eight ? size / 127.0f : most / -8.0f;
    const float inverse = scale != 0 ? 1.0f / scale : 0;
    const float kept = as_half(scale);
    /* Not finite, or too large for a scale in f16; or so small that the scale is 0. */
    const bool fails = largest >= 0x7f800000u || !(fabsf(kept) <= 65504.0f);
    const bool tiny = !(fabsf(inverse) <= 0x1.fffffep127f);
#pragma unroll
    for (int j = 0; j < N; j++) {
        float y = bits_to_float(0x7fc00000u);
        if (!fails) y = tiny ? 0 : (float)find_code(a.eight, x[j], inverse) * kept;
        put_rounded(a, row + index_map(a.row, begin + j), y);
    }
}

KERNEL_FUNCTION __launch_bounds__(ROUND_THREADS) round_f16(RoundBlocksArgs a) {
    const int64_t i = (int64_t)blockIdx.x * ROUND_THREADS + threadIdx.x;
    if (i < a.count) put_rounded(a, i, as_half(a.from[i]));
}
