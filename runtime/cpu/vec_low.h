/* Numbers of 16 bits, bf16 and f16 (ir/dtype.h), and arrays of f32, bf16 or f16 read and written as
 * f32. Both are rounded to nearest, ties to even, but for copies of parameters; a NaN stays one and
 * becomes quiet.
 *
 * Where a function takes a `dtype`, it is a constant in loops whose speed matters: they are written
 * for each, and a switch outside chooses.
 */
#ifndef RUNTIME_CPU_VEC_LOW_H
#define RUNTIME_CPU_VEC_LOW_H

#include "runtime/cpu/vec.h" /* first: it widens the vectors of its includer */

#include "ir/type.h"

/* --- bf16: the upper half of an f32 --- */

VEC_INLINE float vec_bf16_widen(uint16_t x) {
    return vec_from_bits((uint32_t)x << 16);
}

VEC_INLINE uint16_t vec_bf16_round(float x) {
    const uint32_t bits = vec_bits(x);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded >> 16);
}

VEC_INLINE void vec_bf16_load(const uint16_t *from, float *to, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = vec_bf16_widen(from[i]);
}

VEC_INLINE void vec_bf16_store(const float *from, uint16_t *to, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = vec_bf16_round(from[i]);
}

/* --- f16: a sign, 5 bits of exponent (bias 15), 10 of fraction --- */

/* For any machine, and for single numbers in loops that compilers vectorise: no branches. */
VEC_INLINE float vec_f16_widen(uint16_t x) {
    const uint32_t size = x & 0x7fffu, rebias = (uint32_t)(127 - 15) << 23;
    const uint32_t tiny = vec_bits((float)(int32_t)size * 0x1p-24f); /* subnormal: exact */
    uint32_t bits = vec_select(size < 0x0400, tiny, (size << 13) + rebias);
    bits += vec_select(size >= 0x7c00, rebias, 0); /* the largest exponent to the largest */
    bits |= vec_select(size > 0x7c00, 0x00400000, 0);
    return vec_from_bits(bits | (uint32_t)(x & 0x8000) << 16);
}

VEC_INLINE uint16_t vec_f16_round(float x) {
    const uint32_t bits = vec_bits(x), size = bits & 0x7fffffff;
    const uint32_t normal = (size - ((uint32_t)(127 - 15) << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    /* Below 2^-14: neighbours of 0.5f are 2^-24 apart, as f16's subnormals are. */
    const uint32_t tiny = vec_bits(vec_from_bits(size) + 0.5f) - vec_bits(0.5f);
    uint32_t half = vec_select(size < 0x38800000, tiny, normal);
    half = vec_select(size >= 0x477ff000, 0x7c00, half); /* 65,520 and more */
    half = vec_select(size > 0x7f800000, 0x7e00 | (size >> 13 & 0x3ff), half);
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

/* The same bits by the machine's instructions, where it has them. Functions, so that they leave the
 * loops for f32 and bf16 beside them as they are. */
void vec_f16_load(const uint16_t *from, float *to, int64_t n);
void vec_f16_store(const float *from, uint16_t *to, int64_t n);

/* --- either --- */

VEC_INLINE void vec_low_load(DType dtype, const uint16_t *from, float *to, int64_t n) {
    if (dtype == DTYPE_BF16)
        vec_bf16_load(from, to, n);
    else
        vec_f16_load(from, to, n);
}

VEC_INLINE void vec_low_store(DType dtype, const float *from, uint16_t *to, int64_t n) {
    if (dtype == DTYPE_BF16)
        vec_bf16_store(from, to, n);
    else
        vec_f16_store(from, to, n);
}

/* --- parameters in halves (ir/masters.h), and copies in bf16, which are rounded alike --- */

VEC_INLINE uint16_t halves_upper(float x) {
    const uint32_t bits = vec_bits(x);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)(is_nan ? bits >> 16 | 0x40 : (bits + 0x8000) >> 16);
}

VEC_INLINE float halves_whole(uint16_t upper, uint16_t lower) {
    return vec_from_bits(((uint32_t)upper << 16) + (uint32_t)(int16_t)lower);
}

/* n numbers of a parameter, to its two halves and back. */
VEC_INLINE void halves_store(const float *from, uint16_t *upper, uint16_t *lower, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        upper[i] = halves_upper(from[i]);
        lower[i] = (uint16_t)vec_bits(from[i]);
    }
}

VEC_INLINE void halves_load(const uint16_t *upper, const uint16_t *lower, float *to, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = halves_whole(upper[i], lower[i]);
}

/* A copy beside its parameter: f16 is rounded as everywhere. */
VEC_INLINE void copy_store(DType dtype, const float *from, uint16_t *to, int64_t n) {
    if (dtype != DTYPE_BF16) {
        vec_low_store(dtype, from, to, n);
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = halves_upper(from[i]);
}

/* --- arrays of f32, bf16 or f16 --- */

/* An element's bytes. */
VEC_INLINE size_t vec_bytes(DType dtype) {
    return dtype_is_low(dtype) ? sizeof(uint16_t) : sizeof(float);
}

/* Element i. */
VEC_INLINE float vec_get(const void *x, DType dtype, int64_t i) {
    if (!dtype_is_low(dtype)) return ((const float *)x)[i];
    if (dtype == DTYPE_BF16) return vec_bf16_widen(((const uint16_t *)x)[i]);
    return vec_f16_widen(((const uint16_t *)x)[i]);
}

VEC_INLINE void vec_put(void *x, DType dtype, int64_t i, float value) {
    if (!dtype_is_low(dtype))
        ((float *)x)[i] = value;
    else if (dtype == DTYPE_BF16)
        ((uint16_t *)x)[i] = vec_bf16_round(value);
    else
        ((uint16_t *)x)[i] = vec_f16_round(value);
}

VEC_INLINE const void *vec_at(const void *x, DType dtype, int64_t i) {
    return (const char *)x + i * (int64_t)vec_bytes(dtype);
}

/* Elements [first, first + n) as f32: where they are, or widened into `tile`. */
VEC_INLINE const float *vec_tile(const void *x, DType dtype, int64_t first, int64_t n,
                                 float *tile) {
    if (!dtype_is_low(dtype)) return (const float *)x + first;
    vec_low_load(dtype, (const uint16_t *)x + first, tile, n);
    return tile;
}

/* Where the f32 for elements [first, first + n) of an output go: in place, or into `tile`, which
 * vec_close_tile then rounds. */
VEC_INLINE float *vec_out_tile(void *y, DType dtype, int64_t first, float *tile) {
    return dtype_is_low(dtype) ? tile : (float *)y + first;
}

VEC_INLINE void vec_close_tile(void *y, DType dtype, int64_t first, int64_t n, const float *tile) {
    if (dtype_is_low(dtype)) vec_low_store(dtype, tile, (uint16_t *)y + first, n);
}

#endif
