#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/quantize.h"

#define TILE_COLUMNS   256 /* where a block is one column wide: they share a cache line's rows */
#define PARALLEL_COUNT 16384
#define INFINITE_BITS  0x7f800000u

VEC_INLINE float widen(uint8_t x) {
    const uint32_t size = x & 0x7fu;
    const uint32_t tiny = vec_bits((float)(int32_t)size * 0x1p-9f); /* subnormal: exact */
    uint32_t bits = vec_select(size < 8, tiny, (size << 20) + ((uint32_t)(127 - 7) << 23));
    bits = vec_select(size == 0x7f, 0x7fc00000u, bits);
    return vec_from_bits(bits | (uint32_t)(x & 0x80) << 24);
}

/* x is at most 448, infinite or not-a-number. */
VEC_INLINE uint8_t narrow(float x) {
    const uint32_t bits = vec_bits(x), size = bits & 0x7fffffff;
    const uint32_t normal = (size - ((uint32_t)(127 - 7) << 23) + 0x7ffff + (size >> 20 & 1)) >> 20;
    /* Below 2^-6: neighbours of 2^14 are 2^-9 apart, as e4m3's subnormals are. */
    const uint32_t tiny = vec_bits(vec_from_bits(size) + 0x1p14f) - vec_bits(0x1p14f);
    uint32_t code = vec_select(size < 0x3c800000, tiny, normal);
    code = vec_select(size > 0x43e00000, 0x7f, code);
    return (uint8_t)(code | (bits >> 24 & 0x80));
}

float fp8_widen(uint8_t value) {
    return widen(value);
}

/* The exponent, biased as f32's, of the scale for blocks whose largest number has these bits: that
 * of most / 448 = most / (1.75 2^8), rounded up. */
VEC_INLINE int32_t scale_exponent(uint32_t most) {
    const int32_t least = 127 + LEAST_SCALE_EXPONENT;
    int32_t exponent = (int32_t)(most >> 23) - 8 + ((most & 0x7fffff) > 0x600000);
    return exponent < least ? least : exponent;
}

/* Bits of the largest finite size in each column of a tile. */
VEC_INLINE void find_most(DType dtype, int64_t rows, int64_t n, const void *x, int64_t at,
                          int64_t stride, uint32_t *most) {
    float wide[TILE_COLUMNS];
    for (int64_t j = 0; j < n; j++) most[j] = 0;
    for (int64_t i = 0; i < rows; i++) {
        const float *row = vec_tile(x, dtype, at + i * stride, n, wide);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            uint32_t size = vec_bits(row[j]) & 0x7fffffff;
            size = vec_select(size < INFINITE_BITS, size, 0);
            most[j] = vec_select(size > most[j], size, most[j]);
        }
    }
}

VEC_INLINE uint32_t most_of(const uint32_t *sizes, int64_t n) {
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) most = sizes[j] > most ? sizes[j] : most;
    return most;
}

/* The scale for such a block, and what its numbers are multiplied by. */
VEC_INLINE float scale_of(uint32_t most, float *out_inverse) {
    const uint32_t exponent = (uint32_t)scale_exponent(most);
    *out_inverse = vec_from_bits(vec_select(most != 0, (254 - exponent) << 23, 0));
    return vec_from_bits(vec_select(most != 0, exponent << 23, 0));
}

/* Where a row of blocks begins, and how many numbers of it a tile has. */
typedef struct Tile {
    int64_t row, column, n;
} Tile;

/* The scales of a row of blocks one column wide, or of one block, and what numbers are multiplied
 * by. */
VEC_INLINE void put_scales(const BlockLayout *l, const Tile *t, const uint32_t *most,
                           float *inverse, float *scales) {
    float *to = scales + t->row / l->block_rows * l->scale_down +
                t->column / l->block_columns * l->scale_right;
    if (l->block_columns == 1) {
        for (int64_t j = 0; j < t->n; j++) to[j * l->scale_right] = scale_of(most[j], &inverse[j]);
        return;
    }
    to[0] = scale_of(most_of(most, t->n), &inverse[0]);
    for (int64_t j = 1; j < t->n; j++) inverse[j] = inverse[0];
    for (int64_t j = 1; j < SCALE_BLOCK && l->each; j++) to[j] = to[0];
}

/* The tile [rows, n] of values that are stored [columns, rows]. */
static void put_turned(const BlockLayout *l, const Tile *t, const uint8_t *tile, uint8_t *values) {
    for (int64_t j = 0; j < t->n; j++) {
        uint8_t *to = values + (t->column + j) * l->rows + t->row;
        for (int64_t i = 0; i < l->block_rows; i++) to[i] = tile[i * t->n + j];
    }
}

VEC_INLINE void quantize_tile(DType dtype, const BlockLayout *l, const Tile *t, const void *x,
                              uint8_t *values, float *scales) {
    uint32_t most[TILE_COLUMNS];
    float wide[TILE_COLUMNS], inverse[TILE_COLUMNS];
    uint8_t turned[SCALE_BLOCK * TILE_COLUMNS];
    const int64_t at = t->row * l->columns + t->column;
    find_most(dtype, l->block_rows, t->n, x, at, l->columns, most);
    put_scales(l, t, most, inverse, scales);
    for (int64_t i = 0; i < l->block_rows; i++) {
        const int64_t first = at + i * l->columns;
        const float *row = vec_tile(x, dtype, first, t->n, wide);
        uint8_t *to = l->turned ? turned + i * t->n : values + first;
#pragma omp simd
        for (int64_t j = 0; j < t->n; j++) to[j] = narrow(row[j] * inverse[j]);
    }
    if (l->turned) put_turned(l, t, turned, values);
}

VEC_INLINE void quantize_of(DType dtype, const BlockLayout *l, const void *x, uint8_t *values,
                            float *scales) {
    const int64_t width = l->block_columns > 1 ? l->block_columns : TILE_COLUMNS;
    const int64_t strips = l->rows / l->block_rows, across = (l->columns + width - 1) / width;
#pragma omp parallel for schedule(static) if (l->rows * l->columns > PARALLEL_COUNT)
    for (int64_t tile = 0; tile < strips * across; tile++) {
        const int64_t column = tile % across * width, left = l->columns - column;
        const int64_t n = left < width ? left : width;
        const Tile t = {tile / across * l->block_rows, column,
                        l->block_columns > 1 ? SCALE_BLOCK : n};
        quantize_tile(dtype, l, &t, x, values, scales);
    }
}

void quantize(const BlockLayout *layout, DType dtype, const void *x, uint8_t *values,
              float *scales) {
    if (dtype == DTYPE_BF16)
        quantize_of(DTYPE_BF16, layout, x, values, scales);
    else if (dtype == DTYPE_F16)
        quantize_of(DTYPE_F16, layout, x, values, scales);
    else
        quantize_of(DTYPE_F32, layout, x, values, scales);
}

/* n numbers that have one scale, or one each. */
VEC_INLINE void widen_run(const uint8_t *values, const float *scales, int64_t step, int64_t n,
                          uint16_t *out) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = (uint16_t)(vec_bits(widen(values[j]) * scales[j * step]) >> 16);
}

/* The scale of number (i, j), and how far it is to that of the next 128 columns, or the next one.
 */
static const float *scale_at(const BlockLayout *l, const float *scales, int64_t i, int64_t j) {
    return scales + i / l->block_rows * l->scale_down + j / l->block_columns * l->scale_right;
}

void dequantize(const BlockLayout *l, const uint8_t *values, const float *scales, uint16_t *out) {
#pragma omp parallel for schedule(static) if (l->rows * l->columns > PARALLEL_COUNT)
    for (int64_t i = 0; i < l->rows; i++) {
        const uint8_t *row = values + i * l->columns;
        uint16_t *to = out + i * l->columns;
        if (l->block_columns == 1) {
            widen_run(row, scale_at(l, scales, i, 0), l->scale_right, l->columns, to);
            continue;
        }
        for (int64_t j = 0; j < l->columns; j += SCALE_BLOCK)
            widen_run(row + j, scale_at(l, scales, i, j), 0, SCALE_BLOCK, to + j);
    }
}

void dequantize_part(const BlockLayout *l, const uint8_t *values, const float *scales, int64_t row,
                     int64_t rows, int64_t column, int64_t columns, float *out) {
#pragma omp parallel for schedule(static) if (rows * columns > PARALLEL_COUNT)
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j += SCALE_BLOCK) {
            const uint8_t *from = values + (row + i) * l->columns + column + j;
            const float scale = *scale_at(l, scales, row + i, column + j);
            float *to = out + i * columns + j;
#pragma omp simd
            for (int64_t k = 0; k < SCALE_BLOCK; k++) to[k] = widen(from[k]) * scale;
        }
    }
}
