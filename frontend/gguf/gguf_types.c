#include "frontend/gguf/gguf_types.h"

#include "frontend/hf/hf_packed.h"
#include "runtime/cpu/ggml_blocks.h"
#include "runtime/cpu/vec_low.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { BLOCK = 32, HALF_BLOCK = BLOCK / 2 };

/* --- numbers by themselves --- */

static void widen_f32(const unsigned char *blocks, int64_t n_blocks, float *out) {
    memcpy(out, blocks, (size_t)n_blocks * sizeof(*out));
}

static void widen_f16(const unsigned char *blocks, int64_t n_blocks, float *out) {
    for (int64_t i = 0; i < n_blocks; i++) out[i] = ggml_half(blocks + 2 * i);
}

static void widen_bf16(const unsigned char *blocks, int64_t n_blocks, float *out) {
    uint16_t half;
    for (int64_t i = 0; i < n_blocks; i++) {
        memcpy(&half, blocks + 2 * i, sizeof(half));
        out[i] = vec_bf16_widen(half);
    }
}

static bool narrow_f32(const float *numbers, int64_t n_blocks, unsigned char *out) {
    memcpy(out, numbers, (size_t)n_blocks * sizeof(*numbers));
    return true;
}

static bool narrow_f16(const float *numbers, int64_t n_blocks, unsigned char *out) {
    bool fine = true;
    for (int64_t i = 0; i < n_blocks; i++) fine = ggml_put_half(numbers[i], out + 2 * i) && fine;
    return fine;
}

static bool narrow_bf16(const float *numbers, int64_t n_blocks, unsigned char *out) {
    bool fine = true;
    for (int64_t i = 0; i < n_blocks; i++) {
        const uint16_t half = vec_bf16_round(numbers[i]);
        memcpy(out + 2 * i, &half, sizeof(half));
        fine = fine && isfinite(vec_bf16_widen(half));
    }
    return fine;
}

/* --- blocks of 32: a scale, perhaps an offset, fifth bits, then codes of which byte i has number i
 * in the lower half and number i + 16 in the upper one --- */

static unsigned nibble(const unsigned char *codes, int i) {
    return codes[i % HALF_BLOCK] >> (i / HALF_BLOCK * 4) & 15U;
}

static unsigned fifth_bit(const unsigned char *bits, int i) {
    return (bits[i / 8] >> (i % 8) & 1U) << 4;
}

static void widen_q4_1(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += 4 + HALF_BLOCK) {
        const float scale = ggml_half(at), least = ggml_half(at + 2);
        for (int i = 0; i < BLOCK; i++) *out++ = (float)nibble(at + 4, i) * scale + least;
    }
}

static void widen_q5_0(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += 6 + HALF_BLOCK) {
        const float scale = ggml_half(at);
        for (int i = 0; i < BLOCK; i++) {
            *out++ = (float)((int)(nibble(at + 6, i) | fifth_bit(at + 2, i)) - 16) * scale;
        }
    }
}

static void widen_q5_1(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += 8 + HALF_BLOCK) {
        const float scale = ggml_half(at), least = ggml_half(at + 2);
        for (int i = 0; i < BLOCK; i++) {
            *out++ = (float)(nibble(at + 8, i) | fifth_bit(at + 4, i)) * scale + least;
        }
    }
}

const int8_t GGUF_IQ4_NUMBERS[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static void widen_iq4_nl(const unsigned char *at, int64_t n_blocks, float *out) {
    for (; n_blocks > 0; n_blocks--, at += 2 + HALF_BLOCK) {
        const float scale = ggml_half(at);
        for (int i = 0; i < BLOCK; i++) {
            *out++ = scale * (float)GGUF_IQ4_NUMBERS[nibble(at + 2, i)];
        }
    }
}

/* A power of two, 2^(byte - 127), for numbers of 4 bits (e2m1). */
static void widen_mxfp4(const unsigned char *at, int64_t n_blocks, float *out) {
    enum { BIAS = 127 };
    for (; n_blocks > 0; n_blocks--, at += 1 + HALF_BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            const float number = hf_e2m1(nibble(at + 1, i)) + 0.0F; /* no -0 there */
            *out++ = ldexpf(number, at[0] - BIAS);
        }
    }
}

/* clang-format off */
const GgufType GGUF_TYPES[] = {
    {GGUF_TYPE_F32, "f32", 1, 4, widen_f32, narrow_f32, 0},
    {GGUF_TYPE_F16, "f16", 1, 2, widen_f16, narrow_f16, 1},
    {GGUF_TYPE_Q4_0, "q4_0", 32, 18, ggml_widen_q4_0, ggml_narrow_q4_0, 2},
    {3, "q4_1", 32, 20, widen_q4_1, NULL, -1},
    {6, "q5_0", 32, 22, widen_q5_0, NULL, -1},
    {7, "q5_1", 32, 24, widen_q5_1, NULL, -1},
    {GGUF_TYPE_Q8_0, "q8_0", 32, 34, ggml_widen_q8_0, ggml_narrow_q8_0, 7},
    {9, "q8_1", 32, 40, NULL, NULL, -1},
    {10, "q2_K", 256, 84, gguf_widen_q2_k, NULL, -1},
    {11, "q3_K", 256, 110, gguf_widen_q3_k, NULL, -1},
    {12, "q4_K", 256, 144, gguf_widen_q4_k, gguf_narrow_q4_k, 14},
    {13, "q5_K", 256, 176, gguf_widen_q5_k, gguf_narrow_q5_k, 16},
    {GGUF_TYPE_Q6_K, "q6_K", 256, 210, gguf_widen_q6_k, gguf_narrow_q6_k, 18},
    {15, "q8_K", 256, 292, NULL, NULL, -1},
    {16, "iq2_xxs", 256, 66, NULL, NULL, -1},
    {17, "iq2_xs", 256, 74, NULL, NULL, -1},
    {18, "iq3_xxs", 256, 98, NULL, NULL, -1},
    {19, "iq1_s", 256, 50, NULL, NULL, -1},
    {20, "iq4_nl", 32, 18, widen_iq4_nl, NULL, -1},
    {21, "iq3_s", 256, 110, NULL, NULL, -1},
    {22, "iq2_s", 256, 82, NULL, NULL, -1},
    {23, "iq4_xs", 256, 136, gguf_widen_iq4_xs, NULL, -1},
    {24, "i8", 1, 1, NULL, NULL, -1},
    {25, "i16", 1, 2, NULL, NULL, -1},
    {26, "i32", 1, 4, NULL, NULL, -1},
    {27, "i64", 1, 8, NULL, NULL, -1},
    {28, "f64", 1, 8, NULL, NULL, -1},
    {29, "iq1_m", 256, 56, NULL, NULL, -1},
    {GGUF_TYPE_BF16, "bf16", 1, 2, widen_bf16, narrow_bf16, 32},
    {34, "tq1_0", 256, 54, NULL, NULL, -1},
    {35, "tq2_0", 256, 66, NULL, NULL, -1},
    {39, "mxfp4", 32, 17, widen_mxfp4, NULL, -1},
    {0, NULL, 0, 0, NULL, NULL, -1}};
/* clang-format on */

const GgufType *gguf_type_find(uint32_t number) {
    for (const GgufType *type = GGUF_TYPES; type->name; type++) {
        if (type->number == number) return type;
    }
    return NULL;
}

const GgufType *gguf_type_named(const char *name) {
    for (const GgufType *type = GGUF_TYPES; type->name; type++) {
        if (type->narrow && strcasecmp(type->name, name) == 0) return type;
    }
    return NULL;
}
