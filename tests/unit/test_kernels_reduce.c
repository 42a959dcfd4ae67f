/* reduce.c and optimizer.c against f64: every subset of axes, permutations, thread counts. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/reduce.h"
#include "tests/unit/kernel_check.h"

static void check_sum(int n_dims, const int64_t *dims, unsigned mask) {
    bool reduced[REDUCE_MAX_DIMS];
    int64_t n = 1, n_out = 1;
    for (int d = 0; d < n_dims; d++) {
        reduced[d] = mask >> d & 1;
        n *= dims[d];
        n_out *= reduced[d] ? 1 : dims[d];
    }
    float *x = kc_random(n), *out = kc_random(n_out), *one = kc_zeros(n_out);
    double *want = kc_zeros64(n_out);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, step = 1;
        for (int d = n_dims - 1; d >= 0; d--) {
            if (!reduced[d]) {
                at += rest % dims[d] * step;
                step *= dims[d];
            }
            rest /= dims[d];
        }
        want[at] += (double)x[i];
    }
    omp_set_num_threads(1);
    reduce_sum(n_dims, dims, reduced, x, DTYPE_F32, false, one, DTYPE_F32);
    omp_set_num_threads(3);
    reduce_sum(n_dims, dims, reduced, x, DTYPE_F32, false, out, DTYPE_F32);
    omp_set_num_threads(2);
    CHECK(kc_same_bits(one, out, n_out), "mask %x depends on the number of threads", mask);
    const double size = sqrt((double)n / (double)(n_out ? n_out : 1)) + 1;
    CHECK_NEAR(out, want, n_out, size, 1e-6, "%d dims, mask %x", n_dims, mask);
    reduce_sum(n_dims, dims, reduced, x, DTYPE_F32, true, out, DTYPE_F32);
    for (int64_t i = 0; i < n_out; i++) want[i] *= 2;
    CHECK_NEAR(out, want, n_out, size, 1e-6, "%d dims accumulated, mask %x", n_dims, mask);
    free(x), free(out), free(one), free(want);
}

static void check_permute(int n_dims, const int64_t *dims, const int *perm) {
    int64_t n = 1, stride[REDUCE_MAX_DIMS];
    for (int d = n_dims - 1; d >= 0; d--) {
        stride[d] = n;
        n *= dims[d];
    }
    float *x = kc_random(n), *out = kc_zeros(n);
    reduce_permute(n_dims, dims, perm, DTYPE_F32, x, out);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0;
        for (int d = n_dims - 1; d >= 0; d--) {
            at += rest % dims[perm[d]] * stride[perm[d]];
            rest /= dims[perm[d]];
        }
        CHECK(out[i] == x[at], "%d dims, element %d", n_dims, (int)i);
    }
    free(x), free(out);
}

static void check_permutes(void) {
    const int64_t four[] = {3, 70, 5, 41}, two[] = {129, 67}, eight[] = {2, 3, 1, 2, 3, 2, 2, 5};
    for (int code = 0; code < 256; code++) {
        const int perm[] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        unsigned seen = 0;
        for (int d = 0; d < 4; d++) seen |= 1u << perm[d];
        if (seen == 15) check_permute(4, four, perm);
    }
    check_permute(2, two, (const int[]){1, 0});
    check_permute(8, eight, (const int[]){7, 6, 5, 4, 3, 2, 1, 0});
    check_permute(8, eight, (const int[]){1, 0, 2, 4, 3, 6, 5, 7});
    check_permute(0, NULL, NULL);
    check_permute(2, (const int64_t[]){0, 5}, (const int[]){1, 0});
}

static void check_squares(int64_t n) {
    float *x = kc_random(n), sum[2], low;
    double want = 0, want_low = 0;
    uint16_t *rounded = calloc((size_t)n + 1, sizeof(*rounded));
    for (int64_t i = 0; i < n; i++) want += (double)x[i] * (double)x[i];
    for (int t = 0; t < 2; t++) {
        omp_set_num_threads(1 + 2 * t);
        reduce_sum_squares(x, DTYPE_F32, n, &sum[t]);
    }
    omp_set_num_threads(2);
    CHECK(sum[0] == sum[1], "%d elements: depends on the number of threads", (int)n);
    CHECK(fabs((double)sum[0] - want) <= 1e-6 * want, "%d elements", (int)n);
    for (int64_t i = 0; i < n; i++) {
        rounded[i] = vec_bf16_round(x[i]);
        want_low += pow((double)vec_bf16_widen(rounded[i]), 2);
    }
    reduce_sum_squares(rounded, DTYPE_BF16, n, &low);
    CHECK(fabs((double)low - want_low) <= 1e-6 * want_low, "of bf16, %d elements", (int)n);
    free(rounded);
    CHECK(reduce_first_nonfinite(x, DTYPE_F32, n) == -1, "finite data");
    if (n > 5) {
        x[n - 1] = NAN;
        CHECK(reduce_first_nonfinite(x, DTYPE_F32, n) == n - 1, "NaN at the end");
        x[n / 2] = INFINITY;
        CHECK(reduce_first_nonfinite(x, DTYPE_F32, n) == n / 2, "inf before it");
        x[n / 2 - 1] = -INFINITY;
        CHECK(reduce_first_nonfinite(x, DTYPE_F32, n) == n / 2 - 1, "-inf just before it");
    }
    free(x);
}

static void check_adamw(int64_t n) {
    const AdamwConfig config = {0.9, 0.95, 1e-8, 0.1, 1, DTYPE_F32, DTYPE_F32, DTYPE_F32};
    const float lr = 3e-3f;
    float clip = 0.7f, *g = kc_random(n), *p = kc_random(n), *m = kc_zeros(n), *v = kc_zeros(n);
    double *pw = kc_zeros64(n), *mw = kc_zeros64(n), *vw = kc_zeros64(n);
    for (int64_t i = 0; i < n; i++) pw[i] = (double)p[i];
    for (int step = 1; step <= 5; step++) {
        const float t = (float)step;
        optimizer_adamw(&config, n, &lr, &t, &clip, g, p, m, v, NULL);
        for (int64_t i = 0; i < n; i++) {
            const double gi = (double)g[i] * (double)clip;
            mw[i] = 0.9 * mw[i] + 0.1 * gi;
            vw[i] = 0.95 * vw[i] + 0.05 * gi * gi;
            pw[i] *= 1 - (double)lr * 0.1;
            pw[i] -= (double)lr / (1 - pow(0.9, step)) * mw[i] /
                     (sqrt(vw[i]) / sqrt(1 - pow(0.95, step)) + 1e-8);
        }
        for (int64_t i = 0; i < n; i++) g[i] = kc_uniform();
    }
    CHECK_NEAR(p, pw, n, 1.0, 1e-6, "adamw, n = %d", (int)n);
    CHECK_NEAR(m, mw, n, 0.1, 1e-6, "adamw, n = %d", (int)n);
    CHECK_NEAR(v, vw, n, 0.1, 1e-6, "adamw, n = %d", (int)n);
    float *p_before = kc_copy(p, n), *m_before = kc_copy(m, n), *v_before = kc_copy(v, n);
    const float bad[] = {INFINITY, -INFINITY, NAN}, t = 6;
    for (int i = 0; i < 3; i++) optimizer_adamw(&config, n, &lr, &t, &bad[i], g, p, m, v, NULL);
    CHECK(kc_same_bits(p, p_before, n) && kc_same_bits(m, m_before, n) &&
              kc_same_bits(v, v_before, n),
          "a clip factor that is not finite changed something");
    free(g), free(p), free(m), free(v), free(pw), free(mw), free(vw);
    free(p_before), free(m_before), free(v_before);
}

static void check_sgd(int64_t n, double momentum, bool nesterov) {
    const SgdConfig config = {momentum, 0.01, 1, nesterov, DTYPE_F32, DTYPE_F32, DTYPE_F32};
    const float lr = 0.1f, clip = 0.5f, bad = NAN;
    float *g = kc_random(n), *p = kc_random(n), *buf = kc_zeros(n);
    double *pw = kc_zeros64(n), *bw = kc_zeros64(n);
    for (int64_t i = 0; i < n; i++) pw[i] = (double)p[i];
    for (int step = 0; step < 4; step++) {
        optimizer_sgd(&config, n, &lr, &clip, g, p, buf, NULL);
        optimizer_sgd(&config, n, &lr, &bad, g, p, buf, NULL);
        for (int64_t i = 0; i < n; i++) {
            const double gi = (double)g[i] * 0.5 + 0.01 * pw[i];
            bw[i] = momentum * bw[i] + gi;
            pw[i] -= (double)lr * (nesterov ? gi + momentum * bw[i] : bw[i]);
        }
    }
    CHECK_NEAR(p, pw, n, 1.0, 1e-6, "sgd, momentum %g", momentum);
    free(g), free(p), free(buf), free(pw), free(bw);
}

int main(void) {
    const int64_t small[] = {3, 5, 1, 7}, rows[] = {300, 700}, tall[] = {5000, 12};
    const int64_t wide[] = {3, 40000}, cube[] = {20, 33, 70}, hollow[] = {4, 0, 3};
    check_begin("sums over every subset of axes");
    for (unsigned mask = 0; mask < 16; mask++) check_sum(4, small, mask);
    for (unsigned mask = 0; mask < 4; mask++) {
        check_sum(2, rows, mask);
        check_sum(2, tall, mask);
        check_sum(2, wide, mask);
    }
    for (unsigned mask = 0; mask < 8; mask++) check_sum(3, cube, mask);
    for (unsigned mask = 0; mask < 8; mask++) check_sum(3, hollow, mask);
    check_sum(0, NULL, 0);
    check_begin("permutations");
    check_permutes();
    check_begin("sum of squares, first value that is not finite");
    check_squares(0);
    check_squares(1);
    check_squares(7777);
    check_squares(300001);
    check_begin("adamw");
    check_adamw(1);
    check_adamw(20011);
    check_begin("sgd");
    check_sgd(1003, 0, false);
    check_sgd(1003, 0.9, false);
    check_sgd(9003, 0.9, true);
    return check_report();
}
