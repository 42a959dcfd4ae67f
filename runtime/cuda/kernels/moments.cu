/* Optimizers whose states are in 8 bits (ir/moments.h), as runtime/cpu/optimizer.h has them.
 *
 * Sixteen threads have a block, four numbers each. All of a warp goes through the same exchanges;
 * past a tensor's end with zeros, which it does not keep. */
#include "runtime/cuda/kernels/update.cuh"

#include "ir/moments.h"

enum { EACH = 4, SHARERS = WEIGHT_BLOCK / EACH, SCALE_AT = WEIGHT_BLOCK / 2 /* of 16 bits */ };

static __device__ __forceinline__ float power_of_two(int exponent) {
    return bits_to_float((uint32_t)(exponent + 127) << 23);
}

/* What a code says. */
template <int N> static __device__ __forceinline__ float curve_at(int code) {
    const uint32_t next = __float_as_uint((float)(code + 1)); /* 2^e m */
    const int e = (int)(next >> 23) - 127;
    const float m = bits_to_float((next & 0x7fffffu) | 0x3f800000u);
    const float says = fmaf(7.0f, m, -6.0f) * power_of_two(MOMENT_STEEPNESS * (e - N));
    return code > 0 ? says : 0.0f;
}

/* How many codes lie below q, 0 to 1, and what share of the next; less than 0 below all. */
template <int N> static __device__ __forceinline__ float place_on_curve(float q) {
    const int halvings = 126 - (int)(__float_as_uint(q) >> 23);
    const int k = min(max(halvings, 0) * 43 >> 7, N - 1); /* by three */
    const float y = q * power_of_two(MOMENT_STEEPNESS * k); /* of the stretch, 1/8 to 1 */
    return fmaf(8.0f / 7, y, 6.0f / 7) * power_of_two(N - 1 - k) - 1.0f;
}

/* Four codes and their scale as they lie in memory: blocks begin at even addresses. */
typedef struct Codes {
    uint32_t pair[2], scale;
} Codes;

static __device__ __forceinline__ uint16_t *block_of(const void *state, int64_t i) {
    return (uint16_t *)state + i / WEIGHT_BLOCK * (SCALE_AT + 1);
}

static __device__ __forceinline__ Codes load_codes(const void *state, int64_t i) {
    const uint16_t *block = block_of(state, i), *own = block + i % WEIGHT_BLOCK / 2;
    Codes codes;
    codes.pair[0] = own[0];
    codes.pair[1] = own[1];
    codes.scale = block[SCALE_AT];
    return codes;
}

template <bool SQUARES>
static __device__ __forceinline__ void widen_codes(const Codes &codes, float *x) {
    const float scale = bits_to_float(codes.scale << 16);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const uint32_t code = codes.pair[j / 2] >> (8 * (j % 2)) & 255u;
        if constexpr (SQUARES) {
            x[j] = curve_at<SQUARE_STRETCHES>((int)code) * scale;
        } else {
            const float size = curve_at<MOMENT_STRETCHES>((int)(code & 127u)) * scale;
            x[j] = code & 128u ? -size : size;
        }
    }
}

/* The largest size of the sixteen threads' numbers; 0 if it is too small. */
static __device__ __forceinline__ float find_most(const float *x) {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) most = max(most, __float_as_uint(x[j]) & 0x7fffffffu);
#pragma unroll
    for (int lanes = SHARERS / 2; lanes > 0; lanes /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    const float size = bits_to_float(min(most, MOMENT_MOST_BITS));
    return size < MOMENT_LEAST_SIZE ? 0.0f : size;
}

template <bool SQUARES>
static __device__ __forceinline__ uint32_t code_of(float x, float most, float part) {
    const uint32_t bits = __float_as_uint(x);
    const float q = bits_to_float(bits & 0x7fffffffu) / most;
    if constexpr (SQUARES) {
        const int code = (int)(place_on_curve<SQUARE_STRETCHES>(q < 1 ? q : 1.0f) + part);
        return (uint32_t)max(code, x > 0 ? 1 : 0);
    } else {
        const int code = (int)(place_on_curve<MOMENT_STRETCHES>(q < 1 ? q : 1.0f) + part);
        return (uint32_t)code | (bits >> 24 & 128u);
    }
}

/* All threads of a warp; those with `keep` write. */
template <bool SQUARES>
static __device__ __forceinline__ void put_codes(void *state, int64_t i, const float *x,
                                                 uint32_t threshold, bool keep) {
    const float most = find_most(x), part = (float)(int)threshold * 0x1p-16f;
    uint16_t *block = block_of(state, i), *own = block + i % WEIGHT_BLOCK / 2;
    if (!keep) return;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint32_t pair = 0;
        if (most > 0) {
            pair = code_of<SQUARES>(x[2 * j], most, part) |
                   code_of<SQUARES>(x[2 * j + 1], most, part) << 8;
        }
        own[j] = (uint16_t)pair;
    }
    if (i % WEIGHT_BLOCK == 0) {
        const uint32_t scale = most > 0 ? (__float_as_uint(most) + threshold) >> 16 : 0;
        block[SCALE_AT] = (uint16_t)scale;
    }
}

/* The numbers of a tensor that a block has. */
typedef struct Span {
    int64_t begin, end;
} Span;
static __device__ __forceinline__ Span span_of(int64_t n, uint32_t number) {
    const int64_t begin = (int64_t)number * UPDATE_CHUNK;
    return {begin, n - begin < UPDATE_CHUNK ? n : begin + UPDATE_CHUNK};
}

template <typename G> struct AdamwBlock {
    float g[EACH], p[EACH];
    Codes m, v;
};

template <typename G>
static __device__ __forceinline__ void adamw_load(const AdamwTensor &t, int64_t i,
                                                  AdamwBlock<G> &out) {
    Elements<EACH>::get((const G *)t.g + i, out.g);
    get_parameter<EACH>(t, i, out.p);
    out.m = load_codes(t.m, i);
    out.v = load_codes(t.v, i);
}

template <typename G>
static __device__ __forceinline__ void adamw_update(const AdamwTensor &t, const AdamwFactors &f,
                                                    int copy_dtype, int64_t i, AdamwBlock<G> &x,
                                                    bool keep) {
    float m[EACH], v[EACH];
    widen_codes<false>(x.m, m);
    widen_codes<true>(x.v, v);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const float gj = __fmul_rn(x.g[j], f.clip);
        m[j] = fmaf(f.take1, gj - m[j], m[j]);
        v[j] = fmaf(f.beta2, v[j], __fmul_rn(__fmul_rn(f.take2, gj), gj));
        const float step = m[j] / fmaf(sqrtf(v[j]), f.unscale, f.eps);
        x.p[j] = fmaf(-f.size, step, __fmul_rn(x.p[j], f.keep));
    }
    put_codes<false>(t.m, i, m, NEAREST_THRESHOLD, keep);
    put_codes<true>(t.v, i, v, f.threshold, keep);
    if (keep) put_parameter<EACH>(t, copy_dtype, i, x.p);
}

/* The next elements are under way while some are updated. */
template <typename G>
static __device__ __forceinline__ void adamw_chunk_of(const AdamwTensor &t, const AdamwScalars &s,
                                                      uint32_t number) {
    const Span span = span_of(t.n, number);
    int64_t i = span.begin + EACH * (int64_t)threadIdx.x;
    AdamwBlock<G> ahead = {};
    if (!is_finite(*s.clip)) return; /* all of the grid */
    if (i < span.end) adamw_load(t, i, ahead);
    const AdamwFactors f = adamw_factors(s, t.weight_decay);
    for (int64_t first = span.begin; first < span.end; first += EACH * UPDATE_THREADS) {
        AdamwBlock<G> block = ahead;
        const int64_t next = i + EACH * UPDATE_THREADS;
        if (next < span.end) adamw_load(t, next, ahead);
        adamw_update(t, f, s.copy_dtype, i, block, i < span.end);
        i = next;
    }
}

static __device__ __forceinline__ void adamw_chunk(const AdamwTensor &t, const AdamwScalars &s,
                                                   int at, uint32_t number) {
    if (s.low_gradients >> at & 1) {
        adamw_chunk_of<bf16_t>(t, s, number);
    } else {
        adamw_chunk_of<float>(t, s, number);
    }
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) adamw_moments(AdamwArgs a) {
    adamw_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) adamw_moments_many(AdamwManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    adamw_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

template <typename G>
static __device__ __forceinline__ void sgd_chunk_of(const SgdTensor &t, const SgdScalars &s,
                                                    uint32_t number) {
    const float clip = *s.clip, rate = (float)((double)*s.lr * s.lr_scale);
    const Span span = span_of(t.n, number);
    if (!is_finite(clip)) return;
    int64_t i = span.begin + EACH * (int64_t)threadIdx.x;
    for (int64_t first = span.begin; first < span.end; first += EACH * UPDATE_THREADS) {
        const bool keep = i < span.end;
        float g[EACH] = {0}, p[EACH] = {0}, buf[EACH] = {0};
        if (keep) {
            Elements<EACH>::get((const G *)t.g + i, g);
            get_parameter<EACH>(t, i, p);
        }
        if (keep && s.momentum != 0) widen_codes<false>(load_codes(t.buf, i), buf);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float gj = fmaf(t.weight_decay, p[j], __fmul_rn(g[j], clip));
            buf[j] = s.momentum != 0 ? fmaf(s.momentum, buf[j], gj) : gj;
            p[j] = fmaf(-rate, buf[j], p[j]);
        }
        if (s.momentum != 0) put_codes<false>(t.buf, i, buf, NEAREST_THRESHOLD, keep);
        if (keep) put_parameter<EACH>(t, s.copy_dtype, i, p);
        i += EACH * UPDATE_THREADS;
    }
}

static __device__ __forceinline__ void sgd_chunk(const SgdTensor &t, const SgdScalars &s, int at,
                                                 uint32_t number) {
    if (s.low_gradients >> at & 1) {
        sgd_chunk_of<bf16_t>(t, s, number);
    } else {
        sgd_chunk_of<float>(t, s, number);
    }
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sgd_moments(SgdArgs a) {
    sgd_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) sgd_moments_many(SgdManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    sgd_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}

template <typename G>
static __device__ __forceinline__ void lion_chunk_of(const LionTensor &t, const LionScalars &s,
                                                     uint32_t number) {
    const double rate = (double)*s.lr * s.lr_scale;
    const float clip = *s.clip, size = (float)rate;
    const float take1 = (float)(1.0 - s.beta1), take2 = (float)(1.0 - s.beta2);
    const float decay = (float)fma(-rate, t.weight_decay, 1.0);
    const Span span = span_of(t.n, number);
    if (!is_finite(clip)) return;
    int64_t i = span.begin + EACH * (int64_t)threadIdx.x;
    for (int64_t first = span.begin; first < span.end; first += EACH * UPDATE_THREADS) {
        const bool keep = i < span.end;
        float g[EACH] = {0}, p[EACH] = {0}, m[EACH] = {0};
        if (keep) {
            Elements<EACH>::get((const G *)t.g + i, g);
            get_parameter<EACH>(t, i, p);
        }
        if (keep) widen_codes<false>(load_codes(t.m, i), m);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const float change = __fmul_rn(g[j], clip) - m[j], x = fmaf(take1, change, m[j]);
            const float sign = x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
            p[j] = fmaf(-size, sign, __fmul_rn(p[j], decay));
            m[j] = fmaf(take2, change, m[j]);
        }
        put_codes<false>(t.m, i, m, NEAREST_THRESHOLD, keep);
        if (keep) put_parameter<EACH>(t, s.copy_dtype, i, p);
        i += EACH * UPDATE_THREADS;
    }
}

static __device__ __forceinline__ void lion_chunk(const LionTensor &t, const LionScalars &s, int at,
                                                  uint32_t number) {
    if (s.low_gradients >> at & 1) {
        lion_chunk_of<bf16_t>(t, s, number);
    } else {
        lion_chunk_of<float>(t, s, number);
    }
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lion_moments(LionArgs a) {
    lion_chunk(a.tensor, a.scalars, 0, blockIdx.x);
}

KERNEL_FUNCTION __launch_bounds__(UPDATE_THREADS) lion_moments_many(LionManyArgs a) {
    const int t = find_tensor(a.first_block, a.n_tensors);
    lion_chunk(a.tensor[t], a.scalars, t, blockIdx.x - a.first_block[t]);
}
