#include "runtime/data/blend.h"

#include "ir/base/diag.h"

#include <math.h>
#include <string.h>

enum { MOST_DECIMALS = 6 };

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whole numbers in the proportions of the weights; false: they have too long a period. */
static bool exact_parts(Blend *blend, const double *weights) {
    double scale = 1;
    for (int decimals = 0; decimals <= MOST_DECIMALS; decimals++, scale *= 10) {
        int64_t divisor = 0;
        bool whole = true;
        for (int i = 0; whole && i < blend->n_sources; i++) {
            double part = weights[i] * scale;
            whole = part < 0x1p53 && fabs(part - round(part)) <= 1e-9 * part && round(part) >= 1;
            blend->parts[i] = whole ? (int64_t)round(part) : 0;
            divisor = gcd(blend->parts[i], divisor);
        }
        double period = 0;
        for (int i = 0; whole && i < blend->n_sources; i++) {
            blend->parts[i] /= divisor;
            period += (double)blend->parts[i];
        }
        if (whole) return period <= BLEND_MOST_PERIOD;
    }
    return false;
}

/* To the nearest; a rounding's remainder is the largest source's. */
static void rounded_parts(Blend *blend, const double *weights) {
    double largest = 0, sum = 0;
    int64_t left = BLEND_MOST_PERIOD;
    int heaviest = 0;
    for (int i = 0; i < blend->n_sources; i++) {
        if (weights[i] <= largest) continue;
        largest = weights[i];
        heaviest = i;
    }
    for (int i = 0; i < blend->n_sources; i++) sum += weights[i] / largest;
    for (int i = 0; i < blend->n_sources; i++) {
        blend->parts[i] = llround(weights[i] / largest / sum * BLEND_MOST_PERIOD);
        if (blend->parts[i] < 1) blend->parts[i] = 1;
        left -= blend->parts[i];
    }
    blend->parts[heaviest] += left;
}

Blend blend_create(const double *weights, int n) {
    Blend blend = {.n_sources = n};
    if (n < 1 || n > BLEND_MOST_SOURCES) BUG("blend of %d sources", n);
    for (int i = 0; i < n; i++) {
        if (!(weights[i] > 0) || !isfinite(weights[i])) BUG("blend: weight %g", weights[i]);
    }
    if (!exact_parts(&blend, weights)) rounded_parts(&blend, weights);
    for (int i = 0; i < n; i++) blend.period += blend.parts[i];
    return blend;
}

/* Sample k of a source (from 0) may come from sample number floor(k / share) on, and is due before
 * ceil((k + 1) / share). Within a period all numbers are small. */
static int choose(const Blend *blend, int64_t at, int64_t done) {
    int best = -1;
    int64_t best_due = 0;
    for (int i = 0; i < blend->n_sources; i++) {
        int64_t part = blend->parts[i], k = blend->had[i] - done * part;
        if (k * blend->period >= (at + 1) * part) continue; /* it has had its share */
        int64_t due = ((k + 1) * blend->period + part - 1) / part;
        if (best >= 0 && due >= best_due) continue;
        best = i;
        best_due = due;
    }
    return best;
}

static int take_next(Blend *blend) {
    int source = choose(blend, blend->next % blend->period, blend->next / blend->period);
    if (source < 0) BUG("blend: no source for sample %lld", (long long)blend->next);
    blend->had[source]++;
    blend->next++;
    return source;
}

void blend_seek(Blend *blend, int64_t index) {
    int64_t done = index / blend->period;
    if (index < 0) BUG("sample %lld", (long long)index);
    if (blend->next > index || blend->next / blend->period < done) {
        blend->next = done * blend->period;
        for (int i = 0; i < blend->n_sources; i++) blend->had[i] = done * blend->parts[i];
    }
    while (blend->next < index) take_next(blend);
}

int blend_pick(Blend *blend, int64_t index, int64_t *out_sample) {
    blend_seek(blend, index);
    int source = take_next(blend);
    *out_sample = blend->had[source] - 1;
    return source;
}
