/* What the kernel tests share: reproducible data, comparison with f64 references, and thread
 * counts.
 */
#ifndef TESTS_UNIT_KERNEL_CHECK_H
#define TESTS_UNIT_KERNEL_CHECK_H

#include "tests/unit/check.h"

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t kc_state = 88172645463325252u;

/* Uniform in [-1, 1). */
static inline float kc_uniform(void) {
    kc_state ^= kc_state << 13;
    kc_state ^= kc_state >> 7;
    kc_state ^= kc_state << 17;
    return (float)(int64_t)(kc_state >> 40) * 0x1p-23f - 1.0f;
}

static inline void *kc_alloc(size_t bytes) {
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p) exit(2);
    return p;
}

static inline float *kc_zeros(int64_t n) {
    return kc_alloc((size_t)n * sizeof(float));
}

static inline double *kc_zeros64(int64_t n) {
    return kc_alloc((size_t)n * sizeof(double));
}

static inline float *kc_random(int64_t n) {
    float *x = kc_zeros(n);
    for (int64_t i = 0; i < n; i++) x[i] = kc_uniform();
    return x;
}

static inline float *kc_copy(const float *x, int64_t n) {
    float *y = kc_zeros(n);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

/* The largest error relative to max(|reference|, floor); infinite where only one side is finite. */
static inline double kc_error(const float *x, const double *reference, int64_t n,
                              double floor_abs) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double scale = fabs(reference[i]) > floor_abs ? fabs(reference[i]) : floor_abs;
        double error = fabs((double)x[i] - reference[i]) / scale;
        if (!(error <= worst)) worst = error;
        if (isnan(error)) return INFINITY;
    }
    return worst;
}

static inline bool kc_same_bits(const float *a, const float *b, int64_t n) {
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

#define CHECK_NEAR(x, reference, n, floor_abs, tolerance, what, ...)                               \
    do {                                                                                           \
        double error_ = kc_error((x), (reference), (n), (floor_abs));                              \
        CHECK(error_ <= (tolerance), "%s of " what ": error %.3g", #x, __VA_ARGS__, error_);       \
    } while (0)

#endif
