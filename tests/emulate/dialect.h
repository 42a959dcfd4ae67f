/* The CUDA C that kernels use, for g++. Included before a kernel's source (-include).
 *
 * With EMULATE_ALONE: for code whose threads share no more than what the first one makes, and that
 * is built into a shared object of its own; threadIdx and the like are then variables of that
 * object, and barriers do nothing. Threads run one after the other: what a block's first one leaves
 * for all is there for them.
 */
#ifndef TESTS_EMULATE_DIALECT_H
#define TESTS_EMULATE_DIALECT_H

#include "tests/emulate/scheduler.h"

/* Half the time of compiling little: <cmath> without Bessel's functions and their kin, which bring
 * half of the standard library along. */
#include <string.h>
#if defined(__has_include) && __has_include(<bits/c++config.h>)
#include <bits/c++config.h>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#endif
#include <math.h>

#define __global__
#define __device__
#define __host__
#define __shared__      static
#define __constant__    static
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

#ifdef EMULATE_ALONE
static EmulateIndex threadIdx, blockIdx, blockDim, gridDim;
#else
#define threadIdx emulate_thread_index
#define blockIdx  emulate_block_index
#define blockDim  emulate_block_size
#define gridDim   emulate_grid_size
#endif
static const int warpSize = 32;

/* Vectors: a misaligned one is found by UndefinedBehaviorSanitizer. */
#define EMULATE_VECTOR(type, element)                                                              \
    struct __align__(2 * sizeof(element)) type##2 {                                                \
        element x, y;                                                                              \
    };                                                                                             \
    struct __align__(4 * sizeof(element)) type##4 {                                                \
        element x, y, z, w;                                                                        \
    };                                                                                             \
    static inline type##2 make_##type##2(element x, element y) {                                   \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline type##4 make_##type##4(element x, element y, element z, element w) {             \
        return {x, y, z, w};                                                                       \
    }
EMULATE_VECTOR(float, float)
EMULATE_VECTOR(int, int)
EMULATE_VECTOR(uint, unsigned)
EMULATE_VECTOR(short, short)
EMULATE_VECTOR(ushort, unsigned short)
struct __align__(16) double2 {
    double x, y;
};
static inline double2 make_double2(double x, double y) {
    return {x, y};
}

/* Bits */
template <typename To, typename From> static inline To emulate_bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "sizes differ");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned x) {
    return emulate_bits<float>(x);
}
static inline unsigned __float_as_uint(float x) {
    return emulate_bits<unsigned>(x);
}
static inline float __int_as_float(int x) {
    return emulate_bits<float>(x);
}
static inline int __float_as_int(float x) {
    return emulate_bits<int>(x);
}
static inline double __longlong_as_double(long long x) {
    return emulate_bits<double>(x);
}
static inline long long __double_as_longlong(double x) {
    return emulate_bits<long long>(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* Arithmetic */
template <typename T> static inline T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b) {
    return a < b ? b : a;
}
/* Macros, since glibc declares functions of these names. */
#define __expf(x)    expf(x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf(x, y)
#define rsqrtf(x)    emulate_rsqrtf(x)
#define rsqrt(x)     emulate_rsqrt(x)
#define EMULATE_UNARY(name, formula)                                                               \
    static inline float name(float x) {                                                            \
        return formula;                                                                            \
    }
EMULATE_UNARY(emulate_rsqrtf, 1 / sqrtf(x))
EMULATE_UNARY(__frcp_rn, 1 / x)
EMULATE_UNARY(__fsqrt_rn, sqrtf(x))
EMULATE_UNARY(__frsqrt_rn, (float)(1 / sqrt((double)x)))
EMULATE_UNARY(__saturatef, x > 0 ? (x < 1 ? x : 1) : 0)
static inline double emulate_rsqrt(double x) {
    return 1 / sqrt(x);
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
/* Never contracted into a fused multiply and add. */
static inline float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}
static inline float __fadd_rn(float a, float b) {
    volatile float sum = a + b;
    return sum;
}
static inline float __fsub_rn(float a, float b) {
    return __fadd_rn(a, -b);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline void sincospif(float x, float *sine, float *cosine) {
    *sine = (float)sin((double)x * 3.14159265358979323846);
    *cosine = (float)cos((double)x * 3.14159265358979323846);
}
static inline void sincospi(double x, double *sine, double *cosine) {
    *sine = sin(x * 3.14159265358979323846);
    *cosine = cos(x * 3.14159265358979323846);
}
static inline int __float2int_rn(float x) {
    return (int)rintf(x);
}
static inline int __float2int_rz(float x) {
    return (int)x;
}

/* Memory: caches are not modelled, and blocks run one after the other. */
template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcs(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcg(const T *p) {
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x) {
    *p = x;
}
template <typename T> static inline void __stcg(T *p, T x) {
    *p = x;
}
static inline void __threadfence(void) {
}
static inline void __threadfence_block(void) {
}

/* Atomics: of integers only; sums of floats would depend on the order of threads. */
#define EMULATE_ATOMICS(type)                                                                      \
    static inline type atomicAdd(type *p, type x) {                                                \
        type old = *p;                                                                             \
        *p = old + x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline type atomicMax(type *p, type x) {                                                \
        type old = *p;                                                                             \
        *p = old < x ? x : old;                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline type atomicMin(type *p, type x) {                                                \
        type old = *p;                                                                             \
        *p = x < old ? x : old;                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline type atomicOr(type *p, type x) {                                                 \
        type old = *p;                                                                             \
        *p = old | x;                                                                              \
        return old;                                                                                \
    }                                                                                              \
    static inline type atomicExch(type *p, type x) {                                               \
        type old = *p;                                                                             \
        *p = x;                                                                                    \
        return old;                                                                                \
    }                                                                                              \
    static inline type atomicCAS(type *p, type expected, type x) {                                 \
        type old = *p;                                                                             \
        if (old == expected) *p = x;                                                               \
        return old;                                                                                \
    }
EMULATE_ATOMICS(int)
EMULATE_ATOMICS(unsigned)
EMULATE_ATOMICS(unsigned long long)

#ifdef EMULATE_ALONE
static inline void __syncwarp(void) {
}
static inline void __syncthreads(void) {
}
#else
#include "tests/emulate/warp.h"
#endif

#endif
