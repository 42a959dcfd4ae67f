#include "runtime/cpu/blocks.h"

#include "ir/moments.h"
#include "runtime/cpu/moments.h"
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
    uint32_t most_bits = 0; /* sizes in order are bits in order */
#pragma omp simd reduction(max : most_bits)
    for (int i = 0; i < CODES; i++) {
        const uint32_t size = vec_bits(x[i]) & 0x7fffffff;
        most_bits = size > most_bits ? size : most_bits;
    }
    const float most = vec_from_bits(most_bits);
    if (most_bits >= 0x7f800000) return vec_bf16_round(NAN);
    if (most < LEAST_SIZE) return 0;
    return vec_bf16_round(dtype == DTYPE_NF4 ? most : most / INT8_MOST);
}

/* The numbers of the nearest, counted as the borders that lie below. */
static void find_nf4(const float *y, int32_t *codes) {
    for (int i = 0; i < CODES; i++) codes[i] = 0;
    for (int k = 1; k < NF4_COUNT; k++) {
        const float border = 0.5f * (NF4[k - 1] + NF4[k]);
#pragma omp simd
        for (int i = 0; i < CODES; i++) codes[i] += y[i] > border;
    }
}

static void find_int8(const float *y, int32_t *codes) {
    const float most = INT8_MOST;
#pragma omp simd
    for (int i = 0; i < CODES; i++) {
        const float nearest = rintf(y[i]);
        codes[i] = (int32_t)(nearest > most ? most : nearest < -most ? -most : nearest);
    }
}

static void pack_block(DType dtype, const float *x, uint8_t *block) {
    const uint16_t kept = find_scale(dtype, x);
    const float scale = vec_bf16_widen(kept);
    const bool any = scale > 0 && scale < INFINITY;
    float y[CODES] = {0};
    int32_t codes[CODES];
    for (int i = 0; any && i < CODES; i++) y[i] = x[i] / scale;
    if (dtype == DTYPE_NF4) {
        find_nf4(y, codes);
        for (int i = 0; i < CODES / 2; i++) {
            block[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
        }
    } else {
        find_int8(y, codes);
        for (int i = 0; i < CODES; i++) block[i] = (uint8_t)codes[i];
    }
    memcpy(block + block_bytes(dtype) - 2, &kept, sizeof(kept));
}

/* Plain loops, which compilers make gathers and interleaved stores of. */
static void unpack_nf4(const uint8_t *block, float scale, float *x) {
    float even[CODES / 2], odd[CODES / 2];
#pragma omp simd
    for (int i = 0; i < CODES / 2; i++) {
        even[i] = NF4[block[i] & 15] * scale;
        odd[i] = NF4[block[i] >> 4] * scale;
    }
#pragma omp simd
    for (int i = 0; i < CODES / 2; i++) {
        x[2 * i] = even[i];
        x[2 * i + 1] = odd[i];
    }
}

static void unpack_block(DType dtype, const uint8_t *block, float *x) {
    uint16_t kept;
    memcpy(&kept, block + block_bytes(dtype) - 2, sizeof(kept));
    const float scale = vec_bf16_widen(kept);
    if (dtype == DTYPE_NF4) {
        unpack_nf4(block, scale, x);
        return;
    }
#pragma omp simd
    for (int i = 0; i < CODES; i++) x[i] = (float)(int8_t)block[i] * scale;
}

void blocks_widen(DType dtype, const void *blocks, DType out_dtype, void *out, int64_t n) {
    const uint8_t *from = blocks;
    for (int64_t at = 0; at < n; at += CODES, from += block_bytes(dtype)) {
        float tile[CODES];
        unpack_block(dtype, from, vec_out_tile(out, out_dtype, at, tile));
        vec_close_tile(out, out_dtype, at, CODES, tile);
    }
}

void weights_load(DType dtype, const void *numbers, int64_t at, float *out, int64_t n) {
    const char *from = (const char *)numbers + dtype_size(dtype, at);
    if (dtype_is_moment(dtype)) {
        moments_load(dtype, from, 0, out, n);
    } else if (dtype_is_blocked(dtype)) {
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
        enum { RUN = 1 << 20 };
#pragma omp parallel for schedule(static) if (n > RUN)
        for (int64_t at = 0; at < n; at += RUN) {
            int64_t run = n - at < RUN ? n - at : RUN;
            vec_low_store(dtype, from + at, (uint16_t *)numbers + at, run);
        }
    } else if (dtype_is_moment(dtype)) {
        moments_store(dtype, from, numbers, 0, n, NEAREST_THRESHOLD);
    } else if (!dtype_is_blocked(dtype)) {
        memcpy(numbers, from, (size_t)n * sizeof(float));
    } else {
        for (int64_t at = 0; at < n; at += CODES, block += block_bytes(dtype)) {
            pack_block(dtype, from + at, block);
        }
    }
}
