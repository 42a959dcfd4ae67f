#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "ir/moments.h"
#include "runtime/cpu/moments.h"

#include <string.h>

static const float ENDS[] = MOMENT_ENDS;

/* Of stretch k of n: the code that it ends with, codes that it has, and how long it is. */
VEC_INLINE float last_code(int n, int k) {
    return (float)((1 << (n - k)) - 1);
}
VEC_INLINE float count_codes(int n, int k) {
    return (float)(1 << (n - 1 - k));
}
VEC_INLINE float stretch_length(int n, int k) {
    return ENDS[k] - (k + 1 < n ? ENDS[k + 1] : 0.0f);
}

/* Constants are chosen rather than looked up, so that compilers keep to vectors. */
VEC_INLINE float curve_at(int n, float code) {
    float end = ENDS[0], last = last_code(n, 0), step = stretch_length(n, 0) / count_codes(n, 0);
#pragma GCC unroll 8
    for (int k = 1; k < n; k++) {
        const bool within = code <= last_code(n, k);
        end = within ? ENDS[k] : end;
        last = within ? last_code(n, k) : last;
        step = within ? stretch_length(n, k) / count_codes(n, k) : step;
    }
    return end - (last - code) * step;
}

/* How many codes lie below q, 0 to 1, and what share of the next. */
VEC_INLINE float place_on_curve(int n, float q) {
    float end = ENDS[0], last = last_code(n, 0), slope = count_codes(n, 0) / stretch_length(n, 0);
#pragma GCC unroll 8
    for (int k = 1; k < n; k++) {
        const bool within = q <= ENDS[k];
        end = within ? ENDS[k] : end;
        last = within ? last_code(n, k) : last;
        slope = within ? count_codes(n, k) / stretch_length(n, k) : slope;
    }
    return last - (end - q) * slope;
}

static void load_moments(const uint8_t *codes, float scale, float *x) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const uint32_t code = codes[i];
        const float size = curve_at(MOMENT_STRETCHES, (float)(int32_t)(code & 127)) * scale;
        x[i] = vec_from_bits(vec_bits(size) | (code & 128) << 24);
    }
}

static void load_squares(const uint8_t *codes, float scale, float *x) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++)
        x[i] = curve_at(SQUARE_STRETCHES, (float)(int32_t)codes[i]) * scale;
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
        const float q = vec_from_bits(vec_bits(x[i]) & 0x7fffffff) / most;
        const float place = place_on_curve(MOMENT_STRETCHES, q < 1 ? q : 1);
        codes[i] = (uint8_t)((uint32_t)(int32_t)(place + 0.5f) | (vec_bits(x[i]) >> 24 & 128));
    }
}

static void store_squares(const float *x, float most, float part, uint8_t *codes) {
#pragma omp simd
    for (int i = 0; i < WEIGHT_BLOCK; i++) {
        const float q = x[i] / most;
        const int32_t code = (int32_t)(place_on_curve(SQUARE_STRETCHES, q < 1 ? q : 1) + part);
        const int32_t least = x[i] > 0;
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
