/* What generated kernels are made of (codegen.h): access to operands, one op_* function for each
 * elementwise op of ir/ops.def, and dropout's random numbers. Its text comes after that of
 * fused_args.h, low.cuh, threshold.cuh and philox.cuh at the beginning of every generated source, which
 * includes nothing.
 *
 * Arithmetic is f32; sources are compiled without contraction into fused multiply and add, so that
 * + - * / sqrt round as on the CPU (runtime/cpu/vmath.h has the formulas and where they are from).
 */
#ifndef RUNTIME_CUDA_KERNELS_FUSED_CUH
#define RUNTIME_CUDA_KERNELS_FUSED_CUH

#include "runtime/cuda/kernels/fused_args.h"
#include "runtime/cuda/kernels/low.cuh"
#include "runtime/cuda/kernels/philox.cuh"
#include "runtime/cuda/kernels/threshold.cuh"

#define INLINE static __device__ __forceinline__

/* --- operands: N consecutive elements, aligned to N elements or 16 bytes --- */

template <int N> INLINE void load(const float *p, float (&x)[N]) {
    if constexpr (N >= 4) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 four = *(const float4 *)(p + i);
            x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
        }
    } else if constexpr (N == 2) {
        float2 two = *(const float2 *)p;
        x[0] = two.x, x[1] = two.y;
    } else {
        x[0] = *p;
    }
}

template <int N> INLINE void load(const int32_t *p, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = (float)p[i];
}

template <int N, typename T> INLINE void load(const T *p, float (&x)[N]) {
    if constexpr (N == 8) {
        uint4 four = *(const uint4 *)p;
        Low<T>::unpack(four.x, x[0], x[1]);
        Low<T>::unpack(four.y, x[2], x[3]);
        Low<T>::unpack(four.z, x[4], x[5]);
        Low<T>::unpack(four.w, x[6], x[7]);
    } else if constexpr (N == 4) {
        uint2 two = *(const uint2 *)p;
        Low<T>::unpack(two.x, x[0], x[1]);
        Low<T>::unpack(two.y, x[2], x[3]);
    } else if constexpr (N == 2) {
        Low<T>::unpack(*(const uint32_t *)p, x[0], x[1]);
    } else {
        x[0] = to_float(*p);
    }
}

template <int N> INLINE void store(float *p, const float (&x)[N]) {
    if constexpr (N >= 4) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 four = {x[i], x[i + 1], x[i + 2], x[i + 3]};
            *(float4 *)(p + i) = four;
        }
    } else if constexpr (N == 2) {
        float2 two = {x[0], x[1]};
        *(float2 *)p = two;
    } else {
        *p = x[0];
    }
}

template <int N, typename T> INLINE void store(T *p, const float (&x)[N]) {
    if constexpr (N == 8) {
        uint4 four = {Low<T>::pack(x[0], x[1]), Low<T>::pack(x[2], x[3]), Low<T>::pack(x[4], x[5]),
                      Low<T>::pack(x[6], x[7])};
        *(uint4 *)p = four;
    } else if constexpr (N == 4) {
        uint2 two = {Low<T>::pack(x[0], x[1]), Low<T>::pack(x[2], x[3])};
        *(uint2 *)p = two;
    } else if constexpr (N == 2) {
        *(uint32_t *)p = Low<T>::pack(x[0], x[1]);
    } else {
        *p = Low<T>::round(x[0]);
    }
}

/* Numbers of at least 0, rounded up where what is cut off exceeds the threshold. */
template <int N> INLINE void store_above(bf16_t *p, const float (&x)[N], uint32_t threshold) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        y[i] = __uint_as_float((__float_as_uint(x[i]) + threshold) & 0xffff0000u);
    }
    store(p, y);
}

/* Elements `stride` apart: an operand whose axes lie in another order. */
template <typename T, int N, typename I>
INLINE void gather(const T *p, I offset, I stride, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = to_float(p[offset + (I)i * stride]);
}

INLINE uint32_t divide(uint32_t n, uint32_t multiplier, uint32_t shift) {
    return (uint32_t)((uint64_t)n * multiplier >> shift);
}

/* --- dropout --- */

/* [0, 1) of elements first, first + stride, ... With BLOCKS first is a multiple of 4 and stride 1:
 * each block of random numbers is used up. */
template <bool BLOCKS, int N>
INLINE void draw(uint64_t seed, uint32_t step, uint32_t key, uint64_t first, uint64_t stride,
                 float (&uniform)[N]) {
    constexpr int TAKE = BLOCKS ? 4 : 1;
#pragma unroll
    for (int i = 0; i < N; i += TAKE) {
        uint64_t element = first + (BLOCKS ? (uint64_t)i : (uint64_t)i * stride);
        uint64_t block = element / 4;
        uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), key, step};
        philox(c, seed);
        if constexpr (BLOCKS) {
#pragma unroll
            for (int j = 0; j < 4; j++) uniform[i + j] = (float)(int32_t)(c[j] >> 8) * 0x1p-24f;
        } else {
            uint32_t lane = (uint32_t)(element % 4);
            uint32_t low = lane & 1 ? c[1] : c[0], high = lane & 1 ? c[3] : c[2];
            uniform[i] = (float)(int32_t)((lane & 2 ? high : low) >> 8) * 0x1p-24f;
        }
    }
}

INLINE float keep_factor(float p) {
    return p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
}

/* p and uniform are 0 where nothing is dropped. */
INLINE float op_dropout(float x, float uniform, float p, float factor) {
    return uniform >= p ? x * factor : 0.0f;
}

/* --- ops. Quotients that follow an exponential are __fdividef: 2 ulp, and 0 instead of what is
 * below 2^-126. --- */

INLINE float op_const(float value) {
    return value;
}
INLINE float op_add(float x, float y) {
    return x + y;
}
INLINE float op_sub(float x, float y) {
    return x - y;
}
INLINE float op_mul(float x, float y) {
    return x * y;
}
INLINE float op_div(float x, float y) {
    return x / y;
}
INLINE float op_neg(float x) {
    return -x;
}
INLINE float op_scale(float x, float value) {
    return x * value;
}
INLINE float op_offset(float x, float value) {
    return x + value;
}
INLINE float op_copy(float x) {
    return x;
}
/* Registers are f32: rounding happens where a result is stored. */
INLINE float op_to_f16(float x) {
    return x;
}
INLINE float op_to_bf16(float x) {
    return x;
}
INLINE float op_to_f32(float x) {
    return x;
}
/* But for this one's, which so is exact when it is stored in bf16. */
INLINE float op_to_upper(float x) {
    const uint32_t bits = __float_as_uint(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? x : __uint_as_float((bits + 0x8000u) & 0xffff0000u);
}
INLINE float op_square(float x) {
    return x * x;
}
INLINE float op_sqrt(float x) {
    return sqrtf(x);
}
INLINE float op_rsqrt(float x) {
    return rsqrtf(x);
}
INLINE float op_reciprocal(float x) {
    return 1.0f / x;
}
INLINE float op_exp(float x) {
    return expf(x);
}
INLINE float op_log(float x) {
    return logf(x);
}
INLINE float op_tanh(float x) {
    return tanhf(x);
}
INLINE float op_sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as x sigmoid(2u). */
#define GELU_2A 1.59576912160573f
#define GELU_B  0.044715f

INLINE float op_gelu(float x) {
    float u2 = GELU_2A * x * (1.0f + GELU_B * x * x);
    return __fdividef(x, 1.0f + expf(-u2));
}
/* Far out slopes are 0 or 1; clamping keeps 0 * inf out. */
INLINE float op_gelu_grad(float x, float dy) {
    float y = x > 20.0f ? 20.0f : x;
    y = y < -20.0f ? -20.0f : y;
    float s = op_sigmoid(GELU_2A * y * (1.0f + GELU_B * y * y));
    return (s + y * s * (1.0f - s) * GELU_2A * (1.0f + 3.0f * GELU_B * y * y)) * dy;
}
INLINE float op_gelu_erf(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
INLINE float op_gelu_erf_grad(float x, float dy) {
    float y = x > 20.0f ? 20.0f : x;
    y = y < -20.0f ? -20.0f : y;
    float density = 0.39894228040143268f * expf(-0.5f * y * y);
    return (0.5f * (1.0f + erff(y * 0.70710678118654752f)) + y * density) * dy;
}
INLINE float op_softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}
INLINE float op_silu(float x) {
    return __fdividef(x, 1.0f + expf(-x));
}
INLINE float op_silu_grad(float x, float dy) {
    float y = x > 80.0f ? 80.0f : x;
    y = y < -80.0f ? -80.0f : y;
    float s = op_sigmoid(y);
    return (s + y * s * (1.0f - s)) * dy;
}
INLINE float op_relu(float x) {
    return x < 0.0f ? 0.0f : x;
}
INLINE float op_relu_grad(float x, float dy) {
    return x > 0.0f ? dy : 0.0f;
}
INLINE float op_maximum(float x, float y) {
    return x != x ? x : x > y ? x : y;
}
INLINE float op_maximum_grad(float x, float y, float dy) {
    return dy * ((x > y ? 0.5f : 0.0f) + (x >= y ? 0.5f : 0.0f));
}
INLINE float op_minimum(float x, float y) {
    return x != x ? x : x < y ? x : y;
}
INLINE float op_abs(float x) {
    return fabsf(x);
}
INLINE float op_sign(float x) {
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x;
}
INLINE float op_round(float x) {
    return rintf(x);
}
INLINE float op_less(float x, float y) {
    return x < y ? 1.0f : 0.0f;
}
INLINE float op_equal(float x, float y) {
    return x == y ? 1.0f : 0.0f;
}
INLINE float op_stop_gradient(float x) {
    return x;
}
INLINE float op_number(float x) {
    return x;
}

#endif
