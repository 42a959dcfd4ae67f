#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/norm.h"

#include <math.h>
#include <string.h>

#define PARALLEL_ELEMENTS 16384 /* fewer are done before other threads have woken */

/* A piece of one row: f32 as it is, 16 bits widened. */
#define FOR_TILES(first, width, n)                                                                 \
    for (int64_t first = 0, width;                                                                 \
         width = (n)-first < VEC_SUM_TILE ? (n)-first : VEC_SUM_TILE, first < (n);                 \
         first += VEC_SUM_TILE)

static double row_sum(const void *x, DType dtype, int64_t at, int64_t n) {
    float tile[VEC_SUM_TILE];
    double sum = 0;
    FOR_TILES(first, width, n) {
        sum += (double)vec_sum(vec_tile(x, dtype, at + first, width, tile), width);
    }
    return sum;
}

static double row_sum_squares(const void *x, DType dtype, int64_t at, float center, int64_t n) {
    float tile[VEC_SUM_TILE];
    double sum = 0;
    FOR_TILES(first, width, n) {
        const float *piece = vec_tile(x, dtype, at + first, width, tile);
        sum += (double)vec_sum_squares(piece, center, width);
    }
    return sum;
}

void layernorm_forward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                       const float *bias, float eps, void *y, float *mean, float *inv_std) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        float wide[VEC_SUM_TILE], result[VEC_SUM_TILE];
        const int64_t at = r * n;
        /* Two passes: the row is in L1 for the second, and no E[x^2] - E[x]^2 cancels. */
        const float m = (float)(row_sum(x, dtype, at, n) / (double)n);
        const double variance = row_sum_squares(x, dtype, at, m, n) / (double)n;
        const float inv = (float)(1.0 / sqrt(variance + (double)eps));
        FOR_TILES(first, width, n) {
            const float *xt = vec_tile(x, dtype, at + first, width, wide);
            float *yt = vec_out_tile(y, dtype, at + first, result);
#pragma omp simd
            for (int64_t i = 0; i < width; i++)
                yt[i] = (xt[i] - m) * inv * gain[first + i] + bias[first + i];
            vec_close_tile(y, dtype, at + first, width, yt);
        }
        mean[r] = m;
        inv_std[r] = inv;
    }
}

void rmsnorm_forward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                     float eps, void *y, float *inv_rms) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        float wide[VEC_SUM_TILE], result[VEC_SUM_TILE];
        const int64_t at = r * n;
        const double squares = row_sum_squares(x, dtype, at, 0, n) / (double)n;
        const float inv = (float)(1.0 / sqrt(squares + (double)eps));
        FOR_TILES(first, width, n) {
            const float *xt = vec_tile(x, dtype, at + first, width, wide);
            float *yt = vec_out_tile(y, dtype, at + first, result);
#pragma omp simd
            for (int64_t i = 0; i < width; i++) yt[i] = xt[i] * inv * gain[first + i];
            vec_close_tile(y, dtype, at + first, width, yt);
        }
        inv_rms[r] = inv;
    }
}

/* Rows are grouped the same way whatever the number of threads; 64 groups feed 64 threads. */
#define MAX_GROUPS     64
#define MIN_GROUP_ROWS 16

static int64_t group_rows(int64_t rows) {
    int64_t size = (rows + MAX_GROUPS - 1) / MAX_GROUPS;
    return size < MIN_GROUP_ROWS ? MIN_GROUP_ROWS : size;
}

size_t norm_backward_workspace_bytes(int64_t rows, int64_t n) {
    const int64_t groups = (rows + group_rows(rows) - 1) / group_rows(rows);
    return (size_t)(groups * 2 * n) * sizeof(float);
}

typedef struct RowMeans {
    float g, gx; /* means over n of gain dy and of gain dy xhat */
} RowMeans;

static RowMeans row_means(DType dtype, int64_t row, int64_t n, const void *x, const float *gain,
                          const void *dy, float mean, float inv) {
    float wide_x[VEC_SUM_TILE], wide_d[VEC_SUM_TILE];
    double g = 0, gx = 0;
    const Vec center = vec_splat(mean), scale = vec_splat(inv);
    FOR_TILES(first, width, n) {
        const float *xt = vec_tile(x, dtype, row * n + first, width, wide_x);
        const float *dt = vec_tile(dy, dtype, row * n + first, width, wide_d), *gt = gain + first;
        Vec sum_g[2] = {{0}}, sum_gx[2] = {{0}};
        int64_t i = 0;
        for (; i + 2 * VEC_LANES <= width; i += 2 * VEC_LANES)
#pragma GCC unroll 2
            for (int u = 0; u < 2; u++) {
                const int64_t at = i + u * VEC_LANES;
                const Vec gd = vec_load(gt + at) * vec_load(dt + at);
                sum_g[u] += gd;
                sum_gx[u] += gd * ((vec_load(xt + at) - center) * scale);
            }
        float tail_g = 0, tail_gx = 0;
        for (; i < width; i++) {
            tail_g += gt[i] * dt[i];
            tail_gx += gt[i] * dt[i] * ((xt[i] - mean) * inv);
        }
        g += (double)(vec_lane_sum(sum_g[0] + sum_g[1]) + tail_g);
        gx += (double)(vec_lane_sum(sum_gx[0] + sum_gx[1]) + tail_gx);
    }
    return (RowMeans){(float)(g / (double)n), (float)(gx / (double)n)};
}

/* out[i] = sum over groups of partial[group][which][i], in f64 and in order. */
static void sum_groups(int64_t groups, int64_t n, const float *partial, int which, float *out) {
    for (int64_t first = 0; first < n; first += 256) {
        const int64_t width = n - first < 256 ? n - first : 256;
        double sum[256] = {0};
        for (int64_t g = 0; g < groups; g++) {
            const float *from = partial + (g * 2 + which) * n + first;
            for (int64_t i = 0; i < width; i++) sum[i] += (double)from[i];
        }
        for (int64_t i = 0; i < width; i++) out[first + i] = (float)sum[i];
    }
}

/* One row's gradient, and what it adds to those of gain and (NULL: there is none) bias. Without a
 * bias the mean of g stays in dx (RMSNorm does not centre). */
static void row_backward(DType dtype, int64_t row, int64_t n, const void *x, const float *gain,
                         float mean, float inv, const void *dy, void *dx, float *pgain,
                         float *pbias) {
    float wide_x[VEC_SUM_TILE], wide_d[VEC_SUM_TILE], result[VEC_SUM_TILE];
    const RowMeans means = row_means(dtype, row, n, x, gain, dy, mean, inv);
    const float mean_g = pbias ? means.g : 0;
    FOR_TILES(first, width, n) {
        const int64_t at = row * n + first;
        const float *xt = vec_tile(x, dtype, at, width, wide_x), *gt = gain + first;
        const float *dt = vec_tile(dy, dtype, at, width, wide_d);
        float *out = vec_out_tile(dx, dtype, at, result), *sums = pgain + first;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            const float xhat = (xt[i] - mean) * inv, d = dt[i];
            sums[i] += d * xhat;
            if (pbias) pbias[first + i] += d;
            out[i] = inv * (gt[i] * d - mean_g - xhat * means.gx);
        }
        vec_close_tile(dx, dtype, at, width, out);
    }
}

void layernorm_backward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                        const float *mean, const float *inv_std, const void *dy, void *dx,
                        float *dgain, float *dbias, float *workspace) {
    const int64_t size = group_rows(rows), groups = (rows + size - 1) / size;
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t g = 0; g < groups; g++) {
        float *pgain = workspace + g * 2 * n, *pbias = pgain + n;
        memset(pgain, 0, (size_t)(2 * n) * sizeof *pgain);
        const int64_t end = (g + 1) * size < rows ? (g + 1) * size : rows;
        for (int64_t r = g * size; r < end; r++)
            row_backward(dtype, r, n, x, gain, mean[r], inv_std[r], dy, dx, pgain, pbias);
    }
    sum_groups(groups, n, workspace, 0, dgain);
    sum_groups(groups, n, workspace, 1, dbias);
}

void rmsnorm_backward(DType dtype, int64_t rows, int64_t n, const void *x, const float *gain,
                      const float *inv_rms, const void *dy, void *dx, float *dgain,
                      float *workspace) {
    const int64_t size = group_rows(rows), groups = (rows + size - 1) / size;
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t g = 0; g < groups; g++) {
        float *pgain = workspace + g * 2 * n;
        memset(pgain, 0, (size_t)n * sizeof *pgain);
        const int64_t end = (g + 1) * size < rows ? (g + 1) * size : rows;
        for (int64_t r = g * size; r < end; r++)
            row_backward(dtype, r, n, x, gain, 0, inv_rms[r], dy, dx, pgain, NULL);
    }
    sum_groups(groups, n, workspace, 0, dgain);
}
