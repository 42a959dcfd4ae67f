/* Floating point in 16 bits, bf16 and f16 (ir/dtype.h), and its conversions: for the kernels built
 * by nvcc and, as text, for generated ones. On the host, for tests, without the instructions.
 */
#ifndef RUNTIME_CUDA_KERNELS_LOW_CUH
#define RUNTIME_CUDA_KERNELS_LOW_CUH

#include "runtime/cuda/kernels/state.h"

typedef unsigned short bf16_t; /* bits of a bfloat16 */
struct f16_t {                 /* of a binary16: a type of its own, for overloads */
    unsigned short bits;
};

/* unpack: two elements as f32, `low` being the lower half. pack, round: from f32, to nearest even,
 * too large an f16 to infinity, not-a-number to 0x7fff: as the instructions have it. */
template <typename T> struct Low;

template <> struct Low<bf16_t> {
    static __device__ __forceinline__ void unpack(uint32_t pair, float &low, float &high) {
        low = __uint_as_float(pair << 16);
        high = __uint_as_float(pair & 0xffff0000u);
    }
#ifdef __CUDACC__
    static __device__ __forceinline__ bf16_t round(float x) {
        bf16_t rounded;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
        return rounded;
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
#else
    static bf16_t round(float x) {
        const uint32_t bits = __float_as_uint(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
        return (bf16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    static uint32_t pack(float low, float high) {
        return (uint32_t)round(low) | (uint32_t)round(high) << 16;
    }
#endif
};

template <> struct Low<f16_t> {
#ifdef __CUDACC__
    static __device__ __forceinline__ float widen(f16_t x) {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
        return wide;
    }
    static __device__ __forceinline__ void unpack(uint32_t pair, float &low, float &high) {
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(low), "=f"(high)
            : "r"(pair));
    }
    static __device__ __forceinline__ f16_t round(float x) {
        f16_t rounded;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
        return rounded;
    }
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
#else
    /* An f32's fields with too small an exponent, which 2^112 makes right, of subnormals too. */
    static float widen(f16_t x) {
        const uint32_t sign = (x.bits & 0x8000u) << 16, rest = (x.bits & 0x7fffu) << 13;
        if (rest >= 0x7c00u << 13) return __uint_as_float(sign | 0x7f800000u | rest);
        return __uint_as_float(sign | __float_as_uint(__uint_as_float(rest) * 0x1p112f));
    }
    static void unpack(uint32_t pair, float &low, float &high) {
        low = widen({(unsigned short)pair});
        high = widen({(unsigned short)(pair >> 16)});
    }
    /* Below 2^-14 by adding 0.5, whose last bit is worth 2^-24, as that of an f16 is there. */
    static f16_t round(float x) {
        const uint32_t sign = __float_as_uint(x) >> 16 & 0x8000u;
        const uint32_t rest = __float_as_uint(x) & 0x7fffffffu;
        if (rest > 0x7f800000u) return {0x7fffu};
        if (rest >= 0x47800000u) return {(unsigned short)(sign | 0x7c00u)};
        if (rest < 0x38800000u) {
            const uint32_t sum = __float_as_uint(__uint_as_float(rest) + 0.5f);
            return {(unsigned short)(sign | (sum - 0x3f000000u))};
        }
        const uint32_t rounded = rest + 0xfffu + (rest >> 13 & 1u);
        return {(unsigned short)(sign | (rounded - 0x38000000u) >> 13)};
    }
    static uint32_t pack(float low, float high) {
        return (uint32_t)round(low).bits | (uint32_t)round(high).bits << 16;
    }
#endif
};

static __device__ __forceinline__ float to_float(float x) {
    return x;
}
static __device__ __forceinline__ float to_float(int32_t x) {
    return (float)x;
}
static __device__ __forceinline__ float to_float(bf16_t x) {
    return __uint_as_float((uint32_t)x << 16);
}
static __device__ __forceinline__ float to_float(f16_t x) {
    return Low<f16_t>::widen(x);
}

#endif
