#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/convolve.h"

#include <string.h>

enum { CHANNELS = 256, PARALLEL_ELEMENTS = 16384 };

/* Channels [first, first + n). */
typedef struct Channels {
    int64_t first;
    int n;
} Channels;

static Channels channels_at(const ConvolveShape *s, int64_t first) {
    int64_t left = s->channels - first;
    return (Channels){first, (int)(left < CHANNELS ? left : CHANNELS)};
}

/* How many positions before t, which is one of all rows, there are for it, taps - 1 at most. */
static int reach_back(const ConvolveShape *s, int64_t row) {
    int64_t before = row % s->seq, most = s->taps - 1;
    if (s->places && s->places[row] < before) before = s->places[row];
    return (int)(before < 0 ? 0 : before < most ? before : most);
}

/* sum += w x of another row */
static void add_row(const ConvolveShape *s, Channels span, const void *x, int64_t row,
                    const float *w, float *sum) {
    float widened[CHANNELS];
    const float *from = vec_tile(x, s->dtype, row * s->channels + span.first, span.n, widened);
#pragma omp simd
    for (int c = 0; c < span.n; c++) sum[c] += w[span.first + c] * from[c];
}

static void store_row(const ConvolveShape *s, Channels span, const float *sum, int64_t row,
                      void *out) {
    int64_t at = row * s->channels + span.first;
    if (dtype_is_low(s->dtype)) {
        vec_low_store(s->dtype, sum, (uint16_t *)out + at, span.n);
    } else {
        memcpy((float *)out + at, sum, sizeof(float) * (size_t)span.n);
    }
}

void convolve_forward(const ConvolveShape *s, const void *x, const float *w, void *y) {
    const int64_t rows = s->batch * s->seq;
#pragma omp parallel for schedule(static) if (rows * s->channels > PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < rows; row++) {
        const int reach = reach_back(s, row);
        for (int64_t first = 0; first < s->channels; first += CHANNELS) {
            float sum[CHANNELS] = {0};
            Channels span = channels_at(s, first);
            for (int n = 0; n <= reach; n++) {
                add_row(s, span, x, row - n, w + (s->taps - 1 - n) * s->channels, sum);
            }
            store_row(s, span, sum, row, y);
        }
    }
}

/* A row of the batch while it goes on: its last positions and the new ones. */
typedef struct Stream {
    const ConvolveShape *s;
    const void *x;
    int64_t first, kept; /* rows of x, and of the cache, at which they begin */
    const int32_t *positions;
    int64_t n; /* new positions */
} Stream;

/* sum += w x of the position `back` before new position t */
static void add_position(const Stream *of, Channels span, const void *cache, int64_t t, int back,
                         const float *w, float *sum) {
    const int64_t at = t - back, taps = of->s->taps;
    if (at >= 0) {
        add_row(of->s, span, of->x, of->first + at, w, sum);
    } else {
        add_row(of->s, span, cache, of->kept + taps - 1 + at, w, sum);
    }
}

static int cached_reach(const Stream *of, int64_t t) {
    int64_t before = of->positions[t], most = of->s->taps - 1;
    const int32_t *places = of->s->places;
    if (places && places[of->first + t] < before) before = places[of->first + t];
    return (int)(before < 0 ? 0 : before < most ? before : most);
}

/* The cache's rows become the last of those that it had and the new ones. */
static void keep_last(const Stream *of, void *cache) {
    const int64_t taps = of->s->taps, bytes = of->s->channels * (int64_t)vec_bytes(of->s->dtype);
    char *rows = (char *)cache + of->kept * bytes;
    for (int64_t i = 0; i < taps - 1; i++) {
        int64_t at = of->n - (taps - 1) + i;
        const char *from = at >= 0 ? (const char *)of->x + (of->first + at) * bytes
                                   : rows + (at + taps - 1) * bytes;
        if (from != rows + i * bytes) memcpy(rows + i * bytes, from, (size_t)bytes);
    }
}

void convolve_cached(const ConvolveShape *s, const void *x, const float *w, int64_t sequences,
                     const int32_t *rows, const int32_t *positions, void *cache, void *y) {
    for (int64_t b = 0; b < s->batch; b++) {
        Stream of = {.s = s,
                     .x = x,
                     .first = b * s->seq,
                     .kept = rows[b] * (int64_t)(s->taps - 1),
                     .positions = positions + b * s->seq};
        const bool known = rows[b] >= 0 && rows[b] < sequences;
        while (known && of.n < s->seq && of.positions[of.n] >= 0) of.n++;
        for (int64_t t = 0; t < s->seq; t++) {
            const int reach = t < of.n ? cached_reach(&of, t) : -1;
            for (int64_t first = 0; first < s->channels; first += CHANNELS) {
                float sum[CHANNELS] = {0};
                Channels span = channels_at(s, first);
                for (int n = 0; n <= reach; n++) {
                    add_position(&of, span, cache, t, n, w + (s->taps - 1 - n) * s->channels, sum);
                }
                store_row(s, span, sum, of.first + t, y);
            }
        }
        if (known) keep_last(&of, cache);
    }
}

/* What later positions read of a row. */
static void spread_back(const ConvolveShape *s, Channels span, int64_t row, const float *w,
                        const void *dy, void *dx) {
    float sum[CHANNELS] = {0};
    for (int n = 0; n < s->taps && row % s->seq + n < s->seq; n++) {
        if (reach_back(s, row + n) < n) continue;
        add_row(s, span, dy, row + n, w + (s->taps - 1 - n) * s->channels, sum);
    }
    store_row(s, span, sum, row, dx);
}

typedef struct WeightSums {
    double all[CONVOLVE_MAX_TAPS][CHANNELS];
    float some[CONVOLVE_MAX_TAPS][CHANNELS];
} WeightSums;

static void flush(const ConvolveShape *s, Channels span, WeightSums *sums) {
    for (int n = 0; n < s->taps; n++) {
        for (int c = 0; c < span.n; c++) sums->all[n][c] += (double)sums->some[n][c];
    }
    memset(sums->some, 0, sizeof(sums->some));
}

static void sum_weights(const ConvolveShape *s, Channels span, const void *x, const void *dy,
                        float *dw) {
    WeightSums sums = {0};
    float wide_dy[CHANNELS], wide_x[CHANNELS];
    for (int64_t row = 0; row < s->batch * s->seq; row++) {
        const int reach = reach_back(s, row);
        const int64_t at = row * s->channels + span.first;
        const float *gradient = vec_tile(dy, s->dtype, at, span.n, wide_dy);
        for (int n = 0; n <= reach; n++) {
            const float *from = vec_tile(x, s->dtype, at - n * s->channels, span.n, wide_x);
            float *sum = sums.some[s->taps - 1 - n];
#pragma omp simd
            for (int c = 0; c < span.n; c++) sum[c] += gradient[c] * from[c];
        }
        if (row % CONVOLVE_ROWS == CONVOLVE_ROWS - 1) flush(s, span, &sums);
    }
    flush(s, span, &sums);
    for (int n = 0; n < s->taps; n++) {
        for (int c = 0; c < span.n; c++) {
            dw[n * s->channels + span.first + c] = (float)sums.all[n][c];
        }
    }
}

void convolve_backward(const ConvolveShape *s, const void *x, const float *w, const void *dy,
                       void *dx, float *dw) {
    const int64_t rows = s->batch * s->seq, spans = (s->channels + CHANNELS - 1) / CHANNELS;
#pragma omp parallel if (rows * s->channels > PARALLEL_ELEMENTS)
    {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t first = 0; first < s->channels; first += CHANNELS) {
                spread_back(s, channels_at(s, first), row, w, dy, dx);
            }
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < spans; i++) sum_weights(s, channels_at(s, i * CHANNELS), x, dy, dw);
    }
}
