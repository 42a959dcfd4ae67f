#include "runtime/cpu/ggml_blocks.h"

#include "runtime/cpu/vec_low.h"

#include <math.h>
#include <string.h>

enum { BLOCK = GGML_BLOCK, HALF_BLOCK = BLOCK / 2 };

float ggml_half(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof(half));
    return vec_f16_widen(half);
}

bool ggml_put_half(float number, unsigned char *out) {
    const uint16_t half = vec_f16_round(number);
    memcpy(out, &half, sizeof(half));
    return isfinite(vec_f16_widen(half));
}

void ggml_widen_q4_0(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += GGML_Q4_0_BYTES, out += BLOCK) {
        const float scale = ggml_half(at);
#pragma omp simd
        for (int i = 0; i < HALF_BLOCK; i++) {
            out[i] = (float)((at[2 + i] & 15) - 8) * scale;
            out[i + HALF_BLOCK] = (float)((at[2 + i] >> 4) - 8) * scale;
        }
    }
}

void ggml_widen_q8_0(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += GGML_Q8_0_BYTES, out += BLOCK) {
        const float scale = ggml_half(at);
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) out[i] = (float)(int8_t)at[2 + i] * scale;
    }
}

/* Bits of sizes are in their order, those of what is not finite above all others. */
static uint32_t largest_size(const float *numbers) {
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t size = vec_bits(numbers[i]) & 0x7fffffff;
        most = size > most ? size : most;
    }
    return most;
}

/* Halves are rounded away from zero, as roundf does: what is cut off is exact. */
static inline int round_away(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5F) - (rest <= -0.5F);
}

bool ggml_narrow_q8_0(const float *numbers, int64_t n_blocks, unsigned char *out) {
    for (; n_blocks > 0; n_blocks--, numbers += BLOCK, out += GGML_Q8_0_BYTES) {
        const float most = vec_from_bits(largest_size(numbers));
        const float scale = most / 127, inverse = scale != 0 ? 1 / scale : 0;
        if (!isfinite(most) || !isfinite(inverse) || !ggml_put_half(scale, out)) return false;
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) {
            out[2 + i] = (unsigned char)(int8_t)round_away(numbers[i] * inverse);
        }
    }
    return true;
}

/* The number that is greatest in magnitude, of equal ones the first, is -8 times the scale. */
bool ggml_narrow_q4_0(const float *numbers, int64_t n_blocks, unsigned char *out) {
    for (; n_blocks > 0; n_blocks--, numbers += BLOCK, out += GGML_Q4_0_BYTES) {
        const uint32_t size = largest_size(numbers);
        int first = 0;
        while ((vec_bits(numbers[first]) & 0x7fffffff) != size) first++;
        const float most = size ? numbers[first] : 0; /* not -0 */
        const float scale = most / -8, inverse = scale != 0 ? 1 / scale : 0;
        if (!isfinite(most) || !isfinite(inverse) || !ggml_put_half(scale, out)) return false;
        float times[BLOCK];
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) times[i] = numbers[i] * inverse;
        __asm__ volatile("" : "+m"(times)); /* rounded before the sum */
        int codes[BLOCK];
#pragma omp simd
        for (int i = 0; i < BLOCK; i++) {
            const int code = (int)(times[i] + 8.5F);
            codes[i] = code > 15 ? 15 : code;
        }
        for (int i = 0; i < HALF_BLOCK; i++) {
            out[2 + i] = (unsigned char)(codes[i] | codes[i + HALF_BLOCK] << 4);
        }
    }
    return true;
}

static void fail_block(float *block) {
    const bool finite = largest_size(block) < 0x7f800000;
    const bool tiny = vec_from_bits(largest_size(block)) < 1;
    for (int i = 0; i < BLOCK; i++) block[i] = finite && tiny ? 0 : NAN;
}

void ggml_round_q4_0(float *block) {
    unsigned char codes[GGML_Q4_0_BYTES];
    if (ggml_narrow_q4_0(block, 1, codes)) {
        ggml_widen_q4_0(codes, 1, block);
    } else {
        fail_block(block);
    }
}

void ggml_round_q8_0(float *block) {
    unsigned char codes[GGML_Q8_0_BYTES];
    if (ggml_narrow_q8_0(block, 1, codes)) {
        ggml_widen_q8_0(codes, 1, block);
    } else {
        fail_block(block);
    }
}
