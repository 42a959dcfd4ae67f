#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/route.h"

#include <math.h>
#include <string.h>

#define TILE              512
#define PARALLEL_ELEMENTS 16384

/* Ascending as the numbers are; not-a-number below all, both zeros alike. */
static uint32_t rank_of(float x) {
    const uint32_t bits = vec_bits(x == 0 ? 0.0f : x);
    if (x != x) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* In the order of choices: rank, then the number, the lesser the greater. */
static uint64_t key_of(float score, int64_t number) {
    return (uint64_t)rank_of(score) << 32 | (uint32_t) ~(uint32_t)number;
}

/* The greatest of a group's scores, or its two greatest summed. */
static float score_of_group(const float *scores, int64_t n, int best) {
    float first = scores[0], second = -INFINITY;
    for (int64_t i = 1; i < n; i++) {
        if (rank_of(scores[i]) > rank_of(first)) {
            second = first;
            first = scores[i];
        } else if (i == 1 || rank_of(scores[i]) > rank_of(second)) {
            second = scores[i];
        }
    }
    return best > 1 ? first + second : first;
}

/* A bit for each group that may be chosen from. */
static uint32_t keep_groups(int64_t n, RouteGroups groups, const float *scores) {
    const int64_t each = n / groups.count;
    uint64_t keys[ROUTE_MOST_GROUPS];
    uint32_t kept = 0;
    if (groups.count == 1) return 1;
    for (int g = 0; g < groups.count; g++)
        keys[g] = key_of(score_of_group(scores + g * each, each, groups.best), g);
    for (int g = 0; g < groups.count; g++) {
        int greater = 0;
        for (int other = 0; other < groups.count; other++) greater += keys[other] > keys[g];
        if (greater < groups.kept) kept |= 1u << g;
    }
    return kept;
}

/* Rows are short and choices few: one pass for each choice, past what came before it. */
static void top_of_row(int64_t n, int64_t count, RouteGroups groups, const float *scores,
                       int32_t *chosen) {
    const uint32_t kept = keep_groups(n, groups, scores);
    const int64_t each = n / groups.count;
    uint64_t before = UINT64_MAX;
    for (int64_t j = 0; j < count; j++) {
        uint64_t best = 0;
        for (int64_t g = 0; g < groups.count; g++) {
            if (!(kept >> g & 1)) continue;
            for (int64_t i = g * each; i < (g + 1) * each; i++) {
                const uint64_t key = key_of(scores[i], i);
                if (key < before && key > best) best = key;
            }
        }
        chosen[j] = (int32_t) ~(uint32_t)best;
        before = best;
    }
}

void route_top(int64_t rows, int64_t n, int64_t count, RouteGroups groups, const float *scores,
               int32_t *chosen) {
#pragma omp parallel for schedule(static) if (rows * n * count > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++)
        top_of_row(n, count, groups, scores + r * n, chosen + r * count);
}

void route_take(int64_t rows, int64_t n, int64_t count, const float *x, const int32_t *index,
                float *out) {
#pragma omp parallel for schedule(static) if (rows * count > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = r * count; j < (r + 1) * count; j++) {
            out[j] = index[j] >= 0 && index[j] < n ? x[r * n + index[j]] : 0;
        }
    }
}

void route_put(int64_t rows, int64_t n, int64_t count, const float *y, const int32_t *index,
               float *out) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        memset(out + r * n, 0, (size_t)n * sizeof(*out));
        for (int64_t j = r * count; j < (r + 1) * count; j++) {
            if (index[j] >= 0 && index[j] < n) out[r * n + index[j]] += y[j];
        }
    }
}

/* counts are whole numbers below 2^24, exact in f32, and serve as the next free places. */
static void route_sequence(const RouteShape *s, int64_t b, const int32_t *chosen, int32_t *slots,
                           int32_t *tokens, float *counts) {
    memset(counts, 0, (size_t)s->experts * sizeof(*counts));
    for (int64_t e = 0; e < s->local; e++) {
        int32_t *own = tokens + (e * s->batch + b) * s->slots;
        for (int64_t i = 0; i < s->slots; i++) own[i] = -1;
    }
    for (int64_t i = 0; i < s->seq * s->choices; i++) {
        const int64_t expert = chosen[i], own = expert - s->first;
        slots[i] = -1;
        if (expert < 0 || expert >= s->experts) continue;
        const int64_t place = (int64_t)counts[expert] - s->from;
        counts[expert] += 1;
        if (place < 0 || place >= s->slots) continue;
        slots[i] = (int32_t)(expert * s->slots + place);
        if (own < 0 || own >= s->valid) continue;
        tokens[(own * s->batch + b) * s->slots + place] = (int32_t)i;
    }
}

void route_tables(const RouteShape *s, const int32_t *chosen, int32_t *slots, int32_t *tokens,
                  float *counts) {
    const int64_t n = s->seq * s->choices;
#pragma omp parallel for schedule(static) if (s->batch * n > PARALLEL_ELEMENTS)
    for (int64_t b = 0; b < s->batch; b++) {
        route_sequence(s, b, chosen + b * n, slots + b * n, tokens, counts + b * s->experts);
    }
}

VEC_INLINE void scale_row(const DType dtype, int64_t n, const void *x, int64_t from, float gate,
                          void *out, int64_t to) {
    float wide[TILE], tile[TILE];
    for (int64_t first = 0; first < n; first += TILE) {
        const int64_t width = n - first < TILE ? n - first : TILE;
        const float *piece = vec_tile(x, dtype, from + first, width, wide);
        float *scaled = vec_out_tile(out, dtype, to + first, tile);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) scaled[i] = gate * piece[i];
        vec_close_tile(out, dtype, to + first, width, scaled);
    }
}

static void dispatch_row(const RouteShape *s, const void *x, int64_t from, const float *gate,
                         void *out, int64_t to) {
    const size_t bytes = vec_bytes(s->dtype);
    char *row = (char *)out + (size_t)to * bytes;
    if (from < 0) {
        memset(row, 0, (size_t)s->model * bytes);
    } else if (!gate) {
        memcpy(row, vec_at(x, s->dtype, from), (size_t)s->model * bytes);
    } else if (s->dtype == DTYPE_BF16) {
        scale_row(DTYPE_BF16, s->model, x, from, *gate, out, to);
    } else if (s->dtype == DTYPE_F16) {
        scale_row(DTYPE_F16, s->model, x, from, *gate, out, to);
    } else {
        scale_row(DTYPE_F32, s->model, x, from, *gate, out, to);
    }
}

void route_dispatch(const RouteShape *s, const void *x, const int32_t *tokens, const float *gates,
                    void *out) {
    const int64_t rows = s->local * s->batch * s->slots, n = s->seq * s->choices;
#pragma omp parallel for schedule(static) if (rows * s->model > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t b = r / s->slots % s->batch, i = tokens[r];
        const bool has_token = i >= 0 && i < n;
        const int64_t from = (b * s->seq + i / s->choices) * s->model;
        dispatch_row(s, x, has_token ? from : -1, gates && has_token ? gates + b * n + i : NULL,
                     out, r * s->model);
    }
}

/* Where the row of choice number `at` of all begins in h, or -1. */
static int64_t row_of_choice(const RouteShape *s, int64_t at, const int32_t *slots) {
    const int64_t b = at / (s->seq * s->choices), slot = slots[at];
    const int64_t expert = slot / s->slots - s->first;
    if (slot < 0 || expert < 0 || expert >= s->valid) return -1;
    return ((expert * s->batch + b) * s->slots + slot % s->slots) * s->model;
}

VEC_INLINE void combine_row(const DType dtype, const RouteShape *s, const void *h, int64_t token,
                            const int32_t *slots, const float *gates, void *out) {
    float wide[TILE], sums[TILE];
    for (int64_t first = 0; first < s->model; first += TILE) {
        const int64_t width = s->model - first < TILE ? s->model - first : TILE;
        float *sum = vec_out_tile(out, dtype, token * s->model + first, sums);
        memset(sum, 0, (size_t)width * sizeof(*sum));
        for (int64_t at = token * s->choices; at < (token + 1) * s->choices; at++) {
            const int64_t row = row_of_choice(s, at, slots);
            const float gate = gates ? gates[at] : 1;
            if (row < 0) continue;
            const float *piece = vec_tile(h, dtype, row + first, width, wide);
#pragma omp simd
            for (int64_t i = 0; i < width; i++) sum[i] += gate * piece[i];
        }
        vec_close_tile(out, dtype, token * s->model + first, width, sum);
    }
}

void route_combine(const RouteShape *s, const void *h, const int32_t *slots, const float *gates,
                   void *out) {
    const int64_t tokens = s->batch * s->seq;
#pragma omp parallel for schedule(static) if (tokens * s->model > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < tokens; t++) {
        if (s->dtype == DTYPE_BF16)
            combine_row(DTYPE_BF16, s, h, t, slots, gates, out);
        else if (s->dtype == DTYPE_F16)
            combine_row(DTYPE_F16, s, h, t, slots, gates, out);
        else
            combine_row(DTYPE_F32, s, h, t, slots, gates, out);
    }
}

static float dot_rows(const RouteShape *s, const void *h, int64_t row, const void *y, int64_t at) {
    float wide_h[TILE], wide_y[TILE], products[TILE], sum = 0;
    for (int64_t first = 0; first < s->model; first += TILE) {
        const int64_t width = s->model - first < TILE ? s->model - first : TILE;
        const float *a = vec_tile(h, s->dtype, row + first, width, wide_h);
        const float *b = vec_tile(y, s->dtype, at + first, width, wide_y);
#pragma omp simd
        for (int64_t i = 0; i < width; i++) products[i] = a[i] * b[i];
        sum += vec_sum(products, width);
    }
    return sum;
}

void route_slot_dot(const RouteShape *s, const void *h, const int32_t *slots, const void *y,
                    float *out) {
    const int64_t n = s->batch * s->seq * s->choices;
#pragma omp parallel for schedule(static) if (n * s->model > PARALLEL_ELEMENTS)
    for (int64_t at = 0; at < n; at++) {
        const int64_t row = row_of_choice(s, at, slots);
        out[at] = row < 0 ? 0 : dot_rows(s, h, row, y, at / s->choices * s->model);
    }
}
