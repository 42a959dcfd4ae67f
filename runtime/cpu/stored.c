#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/stored.h"
#include "runtime/cpu/vmath.h"

#include <string.h>

#define PARALLEL_ELEMENTS 16384
/* Columns that are looked at together: a row's words are gone through for each, so many enough. */
#define TILE 4096

/* A run of columns of row r, from `first` on: a, the logarithms of their probabilities. */
typedef struct Tile {
    int64_t r, first, n;
    float a[TILE];
} Tile;

static void take_tile(const Stored *d, Tile *t, int64_t r, int64_t first) {
    const int64_t n = d->n_valid - first < TILE ? d->n_valid - first : TILE;
    const float *from = vec_tile(d->s, d->dtype, r * d->n_local + first, n, t->a);
    const float lse = d->lse[r];
    t->r = r;
    t->first = first;
    t->n = n;
    for (int64_t i = 0; i < n; i++) t->a[i] = from[i] - lse;
}

/* Where in the tile the row's word k is; -1: elsewhere. */
static inline int64_t place_of(const Stored *d, const Tile *t, int64_t k) {
    const int64_t at = d->words[t->r * d->n_words + k] - d->offset - t->first;
    return at >= 0 && at < t->n ? at : -1;
}

static void add_tile(const Stored *d, const Tile *t, float *p, double sums[3]) {
    const float *logprobs = d->logprobs + t->r * d->n_words;
    float tail = 0;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++) p[i] = vmath_exp(t->a[i]);
    for (int64_t k = 0; k < d->n_words; k++) {
        const int64_t at = place_of(d, t, k);
        if (at < 0) continue;
        const float q = vmath_exp(logprobs[k]);
        if (q > 0) sums[0] += (double)(q * (logprobs[k] - t->a[at]));
        sums[2] += (double)q;
        p[at] = 0;
    }
#pragma omp simd reduction(+ : tail)
    for (int64_t i = 0; i < t->n; i++) tail += p[i];
    sums[1] += (double)tail;
}

void stored_rows(const Stored *d, float *sum, float *tail, float *known) {
#pragma omp parallel for schedule(static) if (d->rows * d->n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < d->rows; r++) {
        Tile tile;
        float p[TILE];
        double sums[3] = {0, 0, 0};
        for (int64_t first = 0; first < d->n_valid; first += TILE) {
            take_tile(d, &tile, r, first);
            add_tile(d, &tile, p, sums);
        }
        sum[r] = (float)sums[0];
        tail[r] = (float)sums[1];
        known[r] = (float)sums[2];
    }
}

static void grad_tile(const Stored *d, const Tile *t, float on, float off, float g, float *out) {
    const float *logprobs = d->logprobs + t->r * d->n_words;
#pragma omp simd
    for (int64_t i = 0; i < t->n; i++) out[i] = vmath_exp(t->a[i]) * off * g;
    for (int64_t k = 0; k < d->n_words; k++) {
        const int64_t at = place_of(d, t, k);
        if (at >= 0) out[at] = vmath_exp(t->a[at]) * on * g;
    }
    for (int64_t k = 0; k < d->n_words; k++) {
        const int64_t at = place_of(d, t, k);
        if (at >= 0) out[at] -= vmath_exp(logprobs[k]) * g;
    }
}

void stored_grad(const Stored *d, const float *on, const float *off, const float *dvalue,
                 void *ds) {
#pragma omp parallel for schedule(static) if (d->rows * d->n_valid > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < d->rows; r++) {
        Tile tile;
        float result[TILE];
        for (int64_t first = 0; first < d->n_valid; first += TILE) {
            const int64_t at = r * d->n_local + first;
            take_tile(d, &tile, r, first);
            float *to = vec_out_tile(ds, d->dtype, at, result);
            grad_tile(d, &tile, on[r], off[r], dvalue[r], to);
            vec_close_tile(ds, d->dtype, at, tile.n, to);
        }
        const size_t element = vec_bytes(d->dtype);
        memset((char *)ds + (size_t)(r * d->n_local + d->n_valid) * element, 0,
               (size_t)(d->n_local - d->n_valid) * element);
    }
}
