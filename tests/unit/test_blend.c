/* Blends: which source a sample comes from. Would catch: a source that runs ahead of its share or
 * behind, a place that is another one when it is reached directly, shares that are not the
 * weights', a sample of a source that is passed over or comes twice.
 */
#include "runtime/data/blend.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 12345;

static double uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

/* From sample `first` on: each source has floor or ceil of its share, and its samples in order. */
static void check_shares(const double *weights, int n, int64_t first, int64_t count) {
    Blend blend = blend_create(weights, n);
    int64_t had[BLEND_MOST_SOURCES], sample;
    blend_seek(&blend, first);
    memcpy(had, blend.had, sizeof(had));
    bool good = true;
    for (int64_t at = first; good && at < first + count; at++) {
        int source = blend_pick(&blend, at, &sample);
        good = source >= 0 && source < n && sample == had[source]++;
        for (int i = 0; good && i < n; i++) {
            double exact = (double)(at + 1) * blend_share(&blend, i);
            good = fabs((double)had[i] - exact) < 1 - 1e-12 || (double)had[i] == exact;
        }
        CHECK(good, "n=%d weight %g: sample %lld of source %d", n, weights[0], (long long)at,
              source);
    }
}

static void test_shares(void) {
    check_begin("blend: every source has its share within one sample, at every sample");
    static const double CASES[][4] = {{1}, {0.7, 0.3}, {1, 1, 1}, {0.5, 0.3, 0.2}, {1e-3, 1, 7, 2}};
    static const int COUNTS[] = {1, 2, 3, 3, 4};
    for (int c = 0; c < 5; c++) check_shares(CASES[c], COUNTS[c], 0, 3000);
    for (int round = 0; round < 60; round++) {
        double weights[BLEND_MOST_SOURCES];
        int n = 1 + (int)(uniform() * 9);
        if (round % 20 == 19) n = BLEND_MOST_SOURCES;
        for (int i = 0; i < n; i++) {
            weights[i] = round % 2 ? exp(8 * uniform() - 4) : (double)(1 + (int)(uniform() * 9));
        }
        int64_t first = round % 3 ? (int64_t)(uniform() * 1e12) : 0;
        check_shares(weights, n, first, 2000);
    }
}

static void test_weights(void) {
    check_begin("blend: decimal weights are exact, however they add up; others to 2^-20");
    Blend blend = blend_create((double[]){0.7, 0.3}, 2);
    CHECK(blend.period == 10 && blend.parts[0] == 7, "period %lld", (long long)blend.period);
    blend = blend_create((double[]){30, 10, 20}, 3);
    CHECK(blend.period == 6 && blend.parts[1] == 1, "period %lld", (long long)blend.period);
    blend = blend_create((double[]){0.123456, 1}, 2);
    CHECK(blend.period == 1123456 / 64, "period %lld", (long long)blend.period);
    blend = blend_create((double[]){M_PI, M_E}, 2);
    CHECK(blend.period == BLEND_MOST_PERIOD &&
              fabs(blend_share(&blend, 0) - M_PI / (M_PI + M_E)) < 1e-6,
          "share %g", blend_share(&blend, 0));
    blend = blend_create((double[]){1e300, 1e-300, 1e300}, 3);
    CHECK(blend.parts[1] == 1 && blend.period == BLEND_MOST_PERIOD, "%lld",
          (long long)blend.parts[1]);
}

static void test_places(void) {
    check_begin("blend: any place is the same, gone to or reached");
    double weights[] = {0.45, 0.25, M_LN2, 0.3};
    Blend blend = blend_create(weights, 4), other = blend;
    enum { N = 5000 };
    static int sources[N];
    static int64_t samples[N];
    for (int i = 0; i < N; i++) sources[i] = blend_pick(&blend, i, &samples[i]);
    for (int round = 0; round < 400; round++) {
        int64_t at = (int64_t)(uniform() * N), sample;
        int source = blend_pick(&other, at, &sample);
        CHECK(source == sources[at] && sample == samples[at], "sample %lld", (long long)at);
    }
    /* Beyond the first period, too. */
    Blend third = blend_create((double[]){3, 2, 4}, 3);
    for (int64_t i = 0; i < 900; i++) {
        Blend fresh = blend_create((double[]){3, 2, 4}, 3);
        int64_t a, b;
        int from = blend_pick(&third, i, &a), to = blend_pick(&fresh, i, &b);
        CHECK(from == to && a == b, "sample %lld", (long long)i);
    }
}

int main(void) {
    test_shares();
    test_weights();
    test_places();
    return check_report();
}
