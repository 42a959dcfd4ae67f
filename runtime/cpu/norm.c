#include "runtime/cpu/vec.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/norm.h"

#include <math.h>
#include <string.h>

#define PARALLEL_ELEMENTS 16384 /* fewer are done before other threads have woken */

static double row_sum(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += VEC_SUM_TILE)
        sum += (double)vec_sum(x + i, n - i < VEC_SUM_TILE ? n - i : VEC_SUM_TILE);
    return sum;
}

static double row_sum_squares(const float *x, float center, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += VEC_SUM_TILE)
        sum += (double)vec_sum_squares(x + i, center, n - i < VEC_SUM_TILE ? n - i : VEC_SUM_TILE);
    return sum;
}

void layernorm_forward(int64_t rows, int64_t n, const float *x, const float *gain,
                       const float *bias, float eps, float *y, float *mean, float *inv_std) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        /* Two passes: the row is in L1 for the second, and no E[x^2] - E[x]^2 cancels. */
        const float m = (float)(row_sum(xr, n) / (double)n);
        const double variance = row_sum_squares(xr, m, n) / (double)n;
        const float inv = (float)(1.0 / sqrt(variance + (double)eps));
#pragma omp simd
        for (int64_t i = 0; i < n; i++) yr[i] = (xr[i] - m) * inv * gain[i] + bias[i];
        mean[r] = m;
        inv_std[r] = inv;
    }
}

void rmsnorm_forward(int64_t rows, int64_t n, const float *x, const float *gain, float eps,
                     float *y, float *inv_rms) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        const float inv = (float)(1.0 / sqrt(row_sum_squares(xr, 0, n) / (double)n + (double)eps));
#pragma omp simd
        for (int64_t i = 0; i < n; i++) yr[i] = xr[i] * inv * gain[i];
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

static RowMeans row_means(int64_t n, const float *x, const float *gain, const float *dy, float mean,
                          float inv) {
    double g = 0, gx = 0;
    const Vec center = vec_splat(mean), scale = vec_splat(inv);
    for (int64_t first = 0; first < n; first += VEC_SUM_TILE) {
        const int64_t end = n - first < VEC_SUM_TILE ? n : first + VEC_SUM_TILE;
        Vec sum_g[2] = {{0}}, sum_gx[2] = {{0}};
        int64_t i = first;
        for (; i + 2 * VEC_LANES <= end; i += 2 * VEC_LANES)
#pragma GCC unroll 2
            for (int u = 0; u < 2; u++) {
                const int64_t at = i + u * VEC_LANES;
                const Vec gd = vec_load(gain + at) * vec_load(dy + at);
                sum_g[u] += gd;
                sum_gx[u] += gd * ((vec_load(x + at) - center) * scale);
            }
        float tail_g = 0, tail_gx = 0;
        for (; i < end; i++) {
            tail_g += gain[i] * dy[i];
            tail_gx += gain[i] * dy[i] * ((x[i] - mean) * inv);
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

void layernorm_backward(int64_t rows, int64_t n, const float *x, const float *gain,
                        const float *mean, const float *inv_std, const float *dy, float *dx,
                        float *dgain, float *dbias, float *workspace) {
    const int64_t size = group_rows(rows), groups = (rows + size - 1) / size;
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t g = 0; g < groups; g++) {
        float *pgain = workspace + g * 2 * n, *pbias = pgain + n;
        memset(pgain, 0, (size_t)(2 * n) * sizeof *pgain);
        const int64_t end = (g + 1) * size < rows ? (g + 1) * size : rows;
        for (int64_t r = g * size; r < end; r++) {
            const float *xr = x + r * n, *dyr = dy + r * n;
            float *dxr = dx + r * n;
            const float m = mean[r], inv = inv_std[r];
            const RowMeans means = row_means(n, xr, gain, dyr, m, inv);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                const float xhat = (xr[i] - m) * inv, d = dyr[i];
                pgain[i] += d * xhat;
                pbias[i] += d;
                dxr[i] = inv * (gain[i] * d - means.g - xhat * means.gx);
            }
        }
    }
    sum_groups(groups, n, workspace, 0, dgain);
    sum_groups(groups, n, workspace, 1, dbias);
}

void rmsnorm_backward(int64_t rows, int64_t n, const float *x, const float *gain,
                      const float *inv_rms, const float *dy, float *dx, float *dgain,
                      float *workspace) {
    const int64_t size = group_rows(rows), groups = (rows + size - 1) / size;
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t g = 0; g < groups; g++) {
        float *pgain = workspace + g * 2 * n;
        memset(pgain, 0, (size_t)n * sizeof *pgain);
        const int64_t end = (g + 1) * size < rows ? (g + 1) * size : rows;
        for (int64_t r = g * size; r < end; r++) {
            const float *xr = x + r * n, *dyr = dy + r * n;
            float *dxr = dx + r * n;
            const float inv = inv_rms[r];
            const RowMeans means = row_means(n, xr, gain, dyr, 0, inv);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                const float xhat = xr[i] * inv, d = dyr[i];
                pgain[i] += d * xhat;
                dxr[i] = inv * (gain[i] * d - xhat * means.gx);
            }
        }
    }
    sum_groups(groups, n, workspace, 0, dgain);
}
