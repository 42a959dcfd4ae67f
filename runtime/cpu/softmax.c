#include "runtime/cpu/vec.h" /* first: it widens the vectors of this file */

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

static double sum_exp(const float *x, float shift, int64_t n) {
    float tile[512];
    double sum = 0;
    for (int64_t first = 0; first < n; first += 512) {
        const int64_t width = n - first < 512 ? n - first : 512;
        for (int64_t i = 0; i < width; i++) tile[i] = vmath_exp(x[first + i] - shift);
        sum += (double)vec_sum(tile, width);
    }
    return sum;
}

void softmax_logsumexp(int64_t rows, int64_t n_local, int64_t n_valid, const float *x, float *lse) {
#pragma omp parallel for schedule(static) if (rows * n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * n_local;
        const float top = row_max(xr, n_valid);
        /* -inf - -inf would be NaN: all columns masked, or none, is a sum of zero. An infinite
         * logit leaves +inf. */
        const float shift = isinf(top) ? 0.0f : top;
        lse[r] = (float)((double)shift + log(sum_exp(xr, shift, n_valid)));
    }
}

void softmax_pick(int64_t rows, int64_t n_local, int64_t n_valid, int64_t axis_offset,
                  const float *x, const int32_t *index, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        const int64_t column = index[r] - axis_offset;
        out[r] = column >= 0 && column < n_valid ? x[r * n_local + column] : 0.0f;
    }
}

void softmax_cross_entropy_grad(int64_t rows, int64_t n_local, int64_t n_valid, int64_t axis_offset,
                                const float *logits, const int32_t *labels, const float *lse,
                                const float *dloss, float *dlogits) {
#pragma omp parallel for schedule(static) if (rows * n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const float *from = logits + r * n_local;
        float *to = dlogits + r * n_local;
        const float shift = lse[r], factor = dloss[r];
        const int64_t label = labels[r] - axis_offset;
#pragma omp simd
        for (int64_t i = 0; i < n_valid; i++) to[i] = vmath_exp(from[i] - shift) * factor;
        if (label >= 0 && label < n_valid) to[label] -= factor;
        memset(to + n_valid, 0, (size_t)(n_local - n_valid) * sizeof *to);
    }
}
