/* Vec: as many f32 as one register of the target holds, through the compilers' vector extensions.
 *
 * The kernels spell out vectors where the order of a sum must not depend on how a compiler
 * vectorises, or where register tiling decides the speed; everything else is a plain loop.
 */
#ifndef RUNTIME_CPU_VEC_H
#define RUNTIME_CPU_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GCC tunes some 512-bit machines for 256-bit vectors, which halves what the polynomials of vmath.h
 * reach. Included first, this makes the plain loops of a kernel file use the full width too. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)
#pragma GCC target("prefer-vector-width=512")
#endif

#if defined(__AVX512F__)
#define VEC_LANES 16
#elif defined(__AVX__)
#define VEC_LANES 8
#else
#define VEC_LANES 4
#endif

#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float Vec __attribute__((vector_size(VEC_LANES * 4)));
/* The same in memory, at any float's address. */
typedef float VecMem __attribute__((vector_size(VEC_LANES * 4), aligned(4), may_alias));

/* Lanes of a and, from VEC_LANES on, of b, as many as a Vec has. GCC has clang's from 12 on. */
#if defined(__clang__)
#define VEC_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t VecPlaces __attribute__((vector_size(VEC_LANES * 4)));
#define VEC_PICK(a, b, ...) __builtin_shuffle(a, b, (VecPlaces){__VA_ARGS__})
#endif

VEC_INLINE Vec vec_load(const float *p) {
    return *(const VecMem *)p;
}

VEC_INLINE void vec_store(float *p, Vec v) {
    *(VecMem *)p = v;
}

VEC_INLINE Vec vec_splat(float s) {
    return s - (Vec){0}; /* s - 0 keeps a zero's sign, s + 0 would not */
}

VEC_INLINE uint32_t vec_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

VEC_INLINE float vec_from_bits(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

/* Without a branch, which would not vectorise. */
VEC_INLINE uint32_t vec_select(int condition, uint32_t yes, uint32_t no) {
    uint32_t mask = 0u - (uint32_t)(condition != 0);
    return (yes & mask) | (no & ~mask);
}

/* The lanes' sum by halves, a fixed order, within registers. */
VEC_INLINE float vec_lane_sum(Vec v) {
#if VEC_LANES == 16
    v += VEC_PICK(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += VEC_PICK(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += VEC_PICK(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
#elif VEC_LANES == 8
    v += VEC_PICK(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += VEC_PICK(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
#else
    v += VEC_PICK(v, v, 2, 3, 0, 1);
#endif
    return v[0] + v[1];
}

/* Floats summed in f32 before the sum moves to f64: long enough to be fast, short enough to keep
 * about 1e-6 relative error. */
#define VEC_SUM_TILE 2048

/* sum of x[0..n), n <= VEC_SUM_TILE for the stated accuracy. The order depends on n alone. */
VEC_INLINE float vec_sum(const float *x, int64_t n) {
    Vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 * VEC_LANES <= n; i += 4 * VEC_LANES) {
        s0 += vec_load(x + i);
        s1 += vec_load(x + i + VEC_LANES);
        s2 += vec_load(x + i + 2 * VEC_LANES);
        s3 += vec_load(x + i + 3 * VEC_LANES);
    }
    for (; i + VEC_LANES <= n; i += VEC_LANES) s0 += vec_load(x + i);
    float sum = vec_lane_sum((s0 + s1) + (s2 + s3));
    for (; i < n; i++) sum += x[i];
    return sum;
}

/* sum of (x - center)^2 over x[0..n). */
VEC_INLINE float vec_sum_squares(const float *x, float center, int64_t n) {
    Vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    const Vec c = vec_splat(center);
    int64_t i = 0;
    for (; i + 4 * VEC_LANES <= n; i += 4 * VEC_LANES) {
        Vec x0 = vec_load(x + i) - c, x1 = vec_load(x + i + VEC_LANES) - c;
        Vec x2 = vec_load(x + i + 2 * VEC_LANES) - c, x3 = vec_load(x + i + 3 * VEC_LANES) - c;
        s0 += x0 * x0;
        s1 += x1 * x1;
        s2 += x2 * x2;
        s3 += x3 * x3;
    }
    for (; i + VEC_LANES <= n; i += VEC_LANES) {
        Vec x0 = vec_load(x + i) - c;
        s0 += x0 * x0;
    }
    float sum = vec_lane_sum((s0 + s1) + (s2 + s3));
    for (; i < n; i++) sum += (x[i] - center) * (x[i] - center);
    return sum;
}

#endif
