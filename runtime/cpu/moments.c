#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "ir/moments.h"
#include "runtime/cpu/moments.h"

#include <string.h>

VEC_INLINE float power_of_two(int32_t exponent) {
    return vec_from_bits((uint32_t)(exponent + 127) << 23);
}

/* What a code says. */
VEC_INLINE float curve_at(int n, int32_t code) {
    const float next = (float)(code + 1); /* 2^e m */
    const int32_t e = (int32_t)(vec_bits(next) >> 23) - 127;
    const float m = vec_from_bits((vec_bits(next) & 0x7fffff) | 0x3f800000);
    const float says = (7 * m - 6) * power_of_two(MOMENT_STEEPNESS * (e - n));
    return vec_from_bits(vec_select(code > 0, vec_bits(says), 0));
}

/* Positive numbers in order are bits in order; not-a-number is beyond all. */
VEC_INLINE float at_most_one(float q) {
    const uint32_t bits = vec_bits(q) & 0x7fffffff, one = vec_bits(1.0f);
    return vec_from_bits(bits < one ? bits : one);
}

/* How many codes lie below q, 0 to 1, and what share of the next; less than 0 below all. */
VEC_INLINE float place_on_curve(int n, float q) {
    const int32_t halvings = 126 - (int32_t)(vec_bits(q) >> 23);
    const int32_t from_last = (halvings > 0 ? halvings : 0) * 43 >> 7; /* by three */
    const int32_t k = from_last < n ? from_last : n - 1;
    const float y = q * power_of_two(MOMENT_STEEPNESS * k); /* of the stretch, 1/8 to 1 */
    return (6.0f / 7 + 8.0f / 7 * y) * power_of_two(n - 1 - k) - 1;
}

static void load_moments(const uint8_t *codes, float scale, float *x) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const uint32_t code = codes[i];
        const float size = curve_at(MOMENT_STRETCHES, (int32_t)(code & 127)) * scale;
        x[i] = vec_from_bits(vec_bits(size) | (code & 128) << 24);
    }
}

static void load_squares(const uint8_t *codes, float scale, float *x) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) x[i] = curve_at(SQUARE_STRETCHES, codes[i]) * scale;
}

void moments_load(DType dtype, const void *blocks, int64_t first, float *out, int64_t n) {
    const uint8_t *block = (const uint8_t *)blocks + dtype_size(dtype, first);
    for (int64_t at = 0; at < n; at += WEIGHT_BLOCK, block += MOMENT_BLOCK_BYTES) {
        uint16_t kept;
        memcpy(&kept, block + WEIGHT_BLOCK, sizeof(kept));
        if (dtype == DTYPE_DYN8) {
            load_moments(block, vec_bf16_widen(kept), out + at);
        } else {
            load_squares(block, vec_bf16_widen(kept), out + at);
        }
    }
}

/* The largest size, 0 if it is too small. */
static float find_most(const float *x) {
    uint32_t most = 0; /* sizes in order are bits in order */
#pragma omp simd reduction(max : most)
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const uint32_t size = vec_bits(x[i]) & 0x7fffffff;
        most = size > most ? size : most;
    }
    const float size = vec_from_bits(most < MOMENT_MOST_BITS ? most : MOMENT_MOST_BITS);
    return size < MOMENT_LEAST_SIZE ? 0 : size;
}

static void store_moments(const float *x, float most, uint8_t *codes) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const float place = place_on_curve(MOMENT_STRETCHES, at_most_one(x[i] / most));
        codes[i] = (uint8_t)((uint32_t)(int32_t)(place + 0.5f) | (vec_bits(x[i]) >> 24 & 128));
    }
}

static void store_squares(const float *x, float most, float part, uint8_t *codes) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const float place = place_on_curve(SQUARE_STRETCHES, at_most_one(x[i] / most));
        const int32_t code = (int32_t)(place + part), least = vec_bits(x[i]) > 0;
        codes[i] = (uint8_t)(code > least ? code : least);
    }
}

void moments_store(DType dtype, const float *from, void *blocks, int64_t first, int64_t n,
                   uint32_t threshold) {
    uint8_t *block = (uint8_t *)blocks + dtype_size(dtype, first);
    const float part = (float)threshold * 0x1p-16f;
    for (int64_t at = 0; at < n; at += WEIGHT_BLOCK, block += MOMENT_BLOCK_BYTES) {
        const float most = find_most(from + at);
        const uint16_t scale = (uint16_t)((vec_bits(most) + threshold) >> 16);
        if (most == 0) {
            memset(block, 0, MOMENT_BLOCK_BYTES);
            continue;
        }
        if (dtype == DTYPE_DYN8) {
            store_moments(from + at, most, block);
        } else {
            store_squares(from + at, most, part, block);
        }
        memcpy(block + WEIGHT_BLOCK, &scale, sizeof(scale));
    }
}
