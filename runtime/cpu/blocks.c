#include "runtime/cpu/blocks.h"

#include "ir/blocks.h"
#include "runtime/cpu/vec_low.h"

#include <math.h>
#include <string.h>

enum { NF4_COUNT = 16, INT8_MOST = 127, CODES = WEIGHT_BLOCK };
static const float NF4[NF4_COUNT] = NF4_NUMBERS;

/* Sizes below which a block is zero: a scale of bf16 keeps all its digits above. */
#define LEAST_SIZE 0x1p-100f

static int64_t block_bytes(DType dtype) {
    return dtype_size(dtype, WEIGHT_BLOCK);
}

/* The block's scale as it is kept, bf16; not-a-number where a number is not finite. */
static uint16_t find_scale(DType dtype, const float *x) {
    float most = 0;
    bool finite = true;
    for (int i = 0; i < CODES; i++) {
        const float size = fabsf(x[i]);
        finite &= size < INFINITY;
        most = size > most ? size : most;
    }
    if (!finite) return vec_bf16_round(NAN);
    if (most < LEAST_SIZE) return 0;
    return vec_bf16_round(dtype == DTYPE_NF4 ? most : most / INT8_MOST);
}

/* The number of the nearest, counted as the borders that lie below it. */
static int nf4_code(float x) {
    int code = 0;
    for (int k = 1; k < NF4_COUNT; k++) code += x > 0.5f * (NF4[k - 1] + NF4[k]);
    return code;
}

static int8_t int8_code(float x) {
    const float most = INT8_MOST, nearest = rintf(x);
    return (int8_t)(nearest > most ? most : nearest < -most ? -most : nearest);
}

static void pack_block(DType dtype, const float *x, uint8_t *block) {
    const uint16_t kept = find_scale(dtype, x);
    const float scale = vec_bf16_widen(kept);
    const bool any = scale > 0 && scale < INFINITY;
    float y[CODES];
    for (int i = 0; i < CODES; i++) y[i] = any ? x[i] / scale : 0;
    for (int i = 0; dtype == DTYPE_INT8 && i < CODES; i++) block[i] = (uint8_t)int8_code(y[i]);
    for (int i = 0; dtype == DTYPE_NF4 && i < CODES; i += 2) {
        block[i / 2] = (uint8_t)(nf4_code(y[i]) | nf4_code(y[i + 1]) << 4);
    }
    memcpy(block + block_bytes(dtype) - 2, &kept, sizeof(kept));
}

typedef struct NumberPair {
    float at[2];
} NumberPair;

/* What each byte of two codes is. */
static void fill_pairs(NumberPair pairs[256]) {
    for (int byte = 0; byte < 256; byte++) {
        pairs[byte] = (NumberPair){{NF4[byte % NF4_COUNT], NF4[byte / NF4_COUNT]}};
    }
}

static void unpack_block(DType dtype, const uint8_t *block, const NumberPair *pairs, float *x) {
    uint16_t kept;
    memcpy(&kept, block + block_bytes(dtype) - 2, sizeof(kept));
    const float scale = vec_bf16_widen(kept);
    if (dtype == DTYPE_NF4) {
        for (int i = 0; i < CODES / 2; i++) memcpy(x + 2 * i, &pairs[block[i]], sizeof(*pairs));
    } else {
        for (int i = 0; i < CODES; i++) x[i] = (float)(int8_t)block[i];
    }
    for (int i = 0; i < CODES; i++) x[i] *= scale;
}

void blocks_widen(DType dtype, const void *blocks, DType out_dtype, void *out, int64_t n) {
    const uint8_t *from = blocks;
    NumberPair pairs[256];
    fill_pairs(pairs);
    for (int64_t at = 0; at < n; at += CODES, from += block_bytes(dtype)) {
        float tile[CODES];
        unpack_block(dtype, from, pairs, vec_out_tile(out, out_dtype, at, tile));
        vec_close_tile(out, out_dtype, at, CODES, tile);
    }
}

void weights_load(DType dtype, const void *numbers, int64_t at, float *out, int64_t n) {
    const char *from = (const char *)numbers + dtype_size(dtype, at);
    if (dtype_is_blocked(dtype)) {
        blocks_widen(dtype, from, DTYPE_F32, out, n);
    } else if (dtype_is_low(dtype)) {
        vec_low_load(dtype, (const uint16_t *)(const void *)from, out, n);
    } else {
        memcpy(out, from, (size_t)n * sizeof(float));
    }
}

void weights_store(DType dtype, const float *from, void *numbers, int64_t n) {
    uint8_t *block = numbers;
    if (dtype_is_low(dtype)) {
        vec_low_store(dtype, from, numbers, n);
    } else if (!dtype_is_blocked(dtype)) {
        memcpy(numbers, from, (size_t)n * sizeof(float));
    } else {
        for (int64_t at = 0; at < n; at += CODES, block += block_bytes(dtype)) {
            pack_block(dtype, from + at, block);
        }
    }
}
