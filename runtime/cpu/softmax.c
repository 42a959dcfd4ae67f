#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/softmax.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define PARALLEL_ELEMENTS 16384

/* Passes over NaN: the sum of exponentials meets it anyway. */
static float row_max(const float *x, int64_t n) {
    float lane[4 * VEC_LANES];
    for (int j = 0; j < 4 * VEC_LANES; j++) lane[j] = -INFINITY;
    int64_t i = 0;
    for (; i + 4 * VEC_LANES <= n; i += 4 * VEC_LANES)
        for (int j = 0; j < 4 * VEC_LANES; j++) lane[j] = lane[j] < x[i + j] ? x[i + j] : lane[j];
    float top = -INFINITY;
    for (; i < n; i++) top = top < x[i] ? x[i] : top;
    for (int j = 0; j < 4 * VEC_LANES; j++) top = top < lane[j] ? lane[j] : top;
    return top;
}

#define TILE 512

static float logits_max(const void *x, DType dtype, int64_t at, int64_t n) {
    float wide[TILE], top = -INFINITY;
    if (!dtype_is_low(dtype)) return row_max((const float *)x + at, n);
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t width = n - first < TILE ? n - first : TILE;
        const float piece = row_max(vec_tile(x, dtype, at + first, width, wide), width);
        top = top < piece ? piece : top;
    }
    return top;
}

static double sum_exp(const void *x, DType dtype, int64_t at, float shift, int64_t n) {
    float wide[TILE], tile[TILE];
    double sum = 0;
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t width = n - first < TILE ? n - first : TILE;
        const float *piece = vec_tile(x, dtype, at + first, width, wide);
        for (int64_t i = 0; i < width; i++) tile[i] = vmath_exp(piece[i] - shift);
        sum += (double)vec_sum(tile, width);
    }
    return sum;
}

void softmax_logsumexp(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid, const void *x,
                       float *lse) {
#pragma omp parallel for schedule(static) if (rows * n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const float top = logits_max(x, dtype, r * n_local, n_valid);
        /* -inf - -inf would be NaN: all columns masked, or none, is a sum of zero. An infinite
         * logit leaves +inf. */
        const float shift = isinf(top) ? 0.0f : top;
        lse[r] = (float)((double)shift + log(sum_exp(x, dtype, r * n_local, shift, n_valid)));
    }
}

void softmax_pick(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid, int64_t axis_offset,
                  const void *x, const int32_t *index, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        const int64_t column = index[r] - axis_offset;
        const bool here = column >= 0 && column < n_valid;
        out[r] = here ? vec_get(x, dtype, r * n_local + column) : 0.0f;
    }
}

void softmax_cross_entropy_grad(DType dtype, int64_t rows, int64_t n_local, int64_t n_valid,
                                int64_t axis_offset, const void *logits, const int32_t *labels,
                                const float *lse, const float *dloss, const float *dlse,
                                void *dlogits) {
#pragma omp parallel for schedule(static) if (rows * n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        float wide[TILE], result[TILE];
        const float shift = lse[r], factor = dlse ? dloss[r] + dlse[r] : dloss[r];
        const int64_t label = labels[r] - axis_offset, at = r * n_local;
        for (int64_t first = 0; first < n_valid; first += TILE) {
            const int64_t width = n_valid - first < TILE ? n_valid - first : TILE;
            const float *from = vec_tile(logits, dtype, at + first, width, wide);
            float *to = vec_out_tile(dlogits, dtype, at + first, result);
#pragma omp simd
            for (int64_t i = 0; i < width; i++) to[i] = vmath_exp(from[i] - shift) * factor;
            if (label >= first && label < first + width) to[label - first] -= dloss[r];
            vec_close_tile(dlogits, dtype, at + first, width, to);
        }
        const size_t element = vec_bytes(dtype);
        memset((char *)dlogits + (size_t)(at + n_valid) * element, 0,
               (size_t)(n_local - n_valid) * element);
    }
}
