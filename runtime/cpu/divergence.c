#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/divergence.h"
#include "runtime/cpu/vmath.h"

#include <string.h>

#define PARALLEL_ELEMENTS 16384
#define TILE              256

/* A word's probabilities in both, by their logarithms a and b. What has none adds nothing, however
 * unlikely the other has it. */
static inline float term(float p, float log_ratio) {
    return p > 0 ? p * log_ratio : 0;
}

/* log m of m = beta q + (1 - beta) p */
static inline float log_mixture(float p, float q, float beta) {
    return vmath_log(beta * q + (1 - beta) * p);
}

static void add_tile(const Divergence *d, const float *a, const float *b, int64_t n,
                     double sums[2]) {
    float value = 0, needed = 0;
    const float beta = d->beta;
    if (beta == 0) {
#pragma omp simd reduction(+ : value)
        for (int64_t i = 0; i < n; i++) value += term(vmath_exp(b[i]), b[i] - a[i]);
    } else if (beta == 1) {
#pragma omp simd reduction(+ : value)
        for (int64_t i = 0; i < n; i++) value += term(vmath_exp(a[i]), a[i] - b[i]);
        needed = value;
    } else {
        for (int64_t i = 0; i < n; i++) {
            const float p = vmath_exp(a[i]), q = vmath_exp(b[i]), m = log_mixture(p, q, beta);
            const float own = term(p, a[i] - m);
            value += beta * term(q, b[i] - m) + (1 - beta) * own;
            needed += own;
        }
    }
    sums[0] += (double)value;
    sums[1] += (double)needed;
}

/* Logarithms of probabilities. */
static void take_tile(const void *x, DType dtype, int64_t at, float lse, int64_t n, float *out) {
    float wide[TILE];
    const float *from = vec_tile(x, dtype, at, n, wide);
    for (int64_t i = 0; i < n; i++) out[i] = from[i] - lse;
}

void divergence_rows(const Divergence *d, float *value, float *needed) {
#pragma omp parallel for schedule(static) if (d->rows * d->n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < d->rows; r++) {
        float a[TILE], b[TILE];
        double sums[2] = {0, 0};
        for (int64_t first = 0; first < d->n_valid; first += TILE) {
            const int64_t n = d->n_valid - first < TILE ? d->n_valid - first : TILE;
            const int64_t at = r * d->n_local + first;
            take_tile(d->s, d->dtype, at, d->lse_s[r], n, a);
            take_tile(d->t, d->dtype, at, d->lse_t[r], n, b);
            add_tile(d, a, b, n, sums);
        }
        value[r] = (float)sums[0];
        needed[r] = (float)sums[1];
    }
}

static void grad_tile(const Divergence *d, const float *a, const float *b, float needed, float g,
                      int64_t n, float *out) {
    const float beta = d->beta;
    if (beta == 0) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = (vmath_exp(a[i]) - vmath_exp(b[i])) * g;
    } else if (beta == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) out[i] = term(vmath_exp(a[i]), a[i] - b[i] - needed) * g;
    } else {
        for (int64_t i = 0; i < n; i++) {
            const float p = vmath_exp(a[i]), m = log_mixture(p, vmath_exp(b[i]), beta);
            out[i] = term(p, a[i] - m - needed) * g * (1 - beta);
        }
    }
}

void divergence_grad(const Divergence *d, const float *needed, const float *dvalue, void *ds) {
#pragma omp parallel for schedule(static) if (d->rows * d->n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < d->rows; r++) {
        float a[TILE], b[TILE], result[TILE];
        for (int64_t first = 0; first < d->n_valid; first += TILE) {
            const int64_t n = d->n_valid - first < TILE ? d->n_valid - first : TILE;
            const int64_t at = r * d->n_local + first;
            take_tile(d->s, d->dtype, at, d->lse_s[r], n, a);
            take_tile(d->t, d->dtype, at, d->lse_t[r], n, b);
            float *to = vec_out_tile(ds, d->dtype, at, result);
            grad_tile(d, a, b, needed[r], dvalue[r], n, to);
            vec_close_tile(ds, d->dtype, at, n, to);
        }
        const size_t element = vec_bytes(d->dtype);
        memset((char *)ds + (size_t)(r * d->n_local + d->n_valid) * element, 0,
               (size_t)(d->n_local - d->n_valid) * element);
    }
}
