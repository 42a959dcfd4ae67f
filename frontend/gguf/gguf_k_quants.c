/* Blocks of 256 numbers: k-quants, with a scale of few bits for each 16 or 32 numbers, and iq4_xs
 * (dequantize_row_q2_K and on in ggml-quants.c of llama.cpp). */
#include "frontend/gguf/gguf_types.h"

#include "runtime/cpu/ggml_blocks.h"

enum { BLOCK = 256, SCALES = BLOCK / 16, K_SCALE_BYTES = 12 };

/* Number i's code: bytes of 32 numbers each have 2 bits of four runs of 32 in a row of 128. */
static unsigned two_bits(const unsigned char *codes, int i) {
    return codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3U;
}

/* Scales of 4 bits, offsets of 4 bits, for each 16; 2 bits; a scale of scales, and of offsets. */
void gguf_widen_q2_k(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { CODES = SCALES, SCALE = CODES + BLOCK / 4, BYTES = SCALE + 4 };
    for (; n_blocks > 0; n_blocks--, at += BYTES) {
        const float scale = ggml_half(at + SCALE), offset = ggml_half(at + SCALE + 2);
        for (int i = 0; i < BLOCK; i++) {
            const unsigned byte = at[i / 16];
            const float each = scale * (float)(byte & 15U), less = offset * (float)(byte >> 4);
            *out++ = each * (float)two_bits(at + CODES, i) - less;
        }
    }
}

/* A third bit, which takes away 4 where it is 0; scales of 6 bits less 32. */
void gguf_widen_q3_k(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { CODES = BLOCK / 8, PACKED = CODES + BLOCK / 4, SCALE = PACKED + 12, BYTES = SCALE + 2 };
    for (; n_blocks > 0; n_blocks--, at += BYTES) {
        const unsigned char *packed = at + PACKED;
        const float scale = ggml_half(at + SCALE);
        for (int i = 0; i < BLOCK; i++) {
            const int k = i / 16;
            const unsigned low = packed[k % 8] >> (k / 8 * 4) & 15U;
            const unsigned high = packed[8 + k % 4] >> (k / 4 * 2) & 3U;
            const float each = scale * (float)((int)(low | high << 4) - 32);
            const bool third = at[i % 32] >> (i / 32) & 1U;
            *out++ = each * (float)((int)two_bits(at + CODES, i) - (third ? 0 : 4));
        }
    }
}

/* Scale and offset k of 8, of 6 bits each, in 12 bytes. */
static void scale_and_offset(const unsigned char *packed, int k, unsigned *scale,
                             unsigned *offset) {
    if (k < 4) {
        *scale = packed[k] & 63U;
        *offset = packed[k + 4] & 63U;
        return;
    }
    *scale = (packed[k + 4] & 15U) | (packed[k - 4] >> 6 << 4);
    *offset = (packed[k + 4] >> 4) | (packed[k] >> 6 << 4);
}

/* Of q4_K and q5_K: codes of 4 bits, the lower halves of 32 bytes first, then the upper ones; and
 * perhaps a fifth bit each, the bits of a byte for runs of 32. */
static void widen_four(const unsigned char *at, const unsigned char *fifth,
                       const unsigned char *codes, float *out) {
    const float scale = ggml_half(at), offset = ggml_half(at + 2);
    for (int k = 0; k < BLOCK / 32; k++) {
        unsigned a, b;
        scale_and_offset(at + 4, k, &a, &b);
        const float each = scale * (float)a, less = offset * (float)b;
        for (int i = 0; i < 32; i++) {
            unsigned code = codes[k / 2 * 32 + i] >> (k % 2 * 4) & 15U;
            if (fifth) code |= (fifth[i] >> k & 1U) << 4;
            *out++ = each * (float)code - less;
        }
    }
}

void gguf_widen_q4_k(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { CODES = 4 + K_SCALE_BYTES, BYTES = CODES + BLOCK / 2 };
    for (; n_blocks > 0; n_blocks--, at += BYTES, out += BLOCK) {
        widen_four(at, NULL, at + CODES, out);
    }
}

void gguf_widen_q5_k(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { FIFTH = 4 + K_SCALE_BYTES, CODES = FIFTH + BLOCK / 8, BYTES = CODES + BLOCK / 2 };
    for (; n_blocks > 0; n_blocks--, at += BYTES, out += BLOCK) {
        widen_four(at, at + FIFTH, at + CODES, out);
    }
}

/* Four bits in runs of 64 bytes, two more in runs of 32; scales of 8 bits. */
void gguf_widen_q6_k(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { HIGH = BLOCK / 2, EACH = HIGH + BLOCK / 4, SCALE = EACH + SCALES, BYTES = SCALE + 2 };
    for (; n_blocks > 0; n_blocks--, at += BYTES) {
        const float scale = ggml_half(at + SCALE);
        for (int i = 0; i < BLOCK; i++) {
            const unsigned low = at[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15U;
            const int code = (int)(low | two_bits(at + HIGH, i) << 4) - 32;
            *out++ = scale * (float)(int8_t)at[EACH + i / 16] * (float)code;
        }
    }
}

/* iq4_nl's numbers; scales of 6 bits less 32 for each 32: two upper bits of all in 16 bits, then
 * lower halves. */
void gguf_widen_iq4_xs(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { LOW = 4, CODES = LOW + BLOCK / 64, BYTES = CODES + BLOCK / 2 };
    for (; n_blocks > 0; n_blocks--, at += BYTES) {
        const float scale = ggml_half(at);
        const unsigned upper = at[2] | (unsigned)at[3] << 8;
        for (int i = 0; i < BLOCK; i++) {
            const int k = i / 32;
            const unsigned low = at[LOW + k / 2] >> (k % 2 * 4) & 15U;
            const float each = scale * (float)((int)(low | (upper >> (2 * k) & 3U) << 4) - 32);
            const unsigned code = at[CODES + k * 16 + i % 16] >> (i % 32 / 16 * 4) & 15U;
            *out++ = each * (float)GGUF_IQ4_NUMBERS[code];
        }
    }
}
