/* norm.c, rotary.c, embedding.c and softmax.c against f64 formulas on sizes that fill no vector. */
#include "runtime/cpu/embedding.h"
#include "runtime/cpu/norm.h"
#include "runtime/cpu/rotary.h"
#include "runtime/cpu/softmax.h"
#include "tests/unit/kernel_check.h"

#define EPS 1e-5

typedef struct NormReference {
    double *y, *mean, *inv, *dx, *dgain, *dbias;
} NormReference;

/* layernorm, or rmsnorm when `center` is false. */
static NormReference reference_norm(bool center, int64_t rows, int64_t n, const float *x,
                                    const float *gain, const float *bias, const float *dy) {
    NormReference r = {kc_zeros64(rows * n), kc_zeros64(rows), kc_zeros64(rows),
                       kc_zeros64(rows * n), kc_zeros64(n),    kc_zeros64(n)};
    for (int64_t i = 0; i < rows; i++) {
        const float *xi = x + i * n, *d = dy + i * n;
        double mean = 0, var = 0, g = 0, gx = 0;
        for (int64_t j = 0; j < n && center; j++) mean += (double)xi[j] / (double)n;
        for (int64_t j = 0; j < n; j++) var += pow((double)xi[j] - mean, 2) / (double)n;
        const double inv = 1 / sqrt(var + (double)(float)EPS);
        for (int64_t j = 0; j < n; j++) {
            const double xhat = ((double)xi[j] - mean) * inv, gd = (double)gain[j] * (double)d[j];
            r.y[i * n + j] = xhat * (double)gain[j] + (center ? (double)bias[j] : 0);
            r.dgain[j] += (double)d[j] * xhat;
            r.dbias[j] += (double)d[j];
            g += center ? gd / (double)n : 0;
            gx += gd * xhat / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            const double xhat = ((double)xi[j] - mean) * inv;
            r.dx[i * n + j] = inv * ((double)gain[j] * (double)d[j] - g - xhat * gx);
        }
        r.mean[i] = mean;
        r.inv[i] = inv;
    }
    return r;
}

static void check_norm(bool center, int64_t rows, int64_t n) {
    float *x = kc_random(rows * n), *gain = kc_random(n), *bias = kc_random(n);
    float *dy = kc_random(rows * n), *y = kc_zeros(rows * n), *mean = kc_zeros(rows);
    float *inv = kc_zeros(rows), *dx = kc_zeros(rows * n), *dgain = kc_random(n);
    float *dbias = kc_random(n), *work = kc_alloc(norm_backward_workspace_bytes(rows, n));
    for (int64_t i = 0; i < rows * n; i++) x[i] = center ? x[i] + 3.0f : x[i];
    NormReference r = reference_norm(center, rows, n, x, gain, bias, dy);
    float *first_dgain = NULL, *first_y = NULL, *first_dx = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        if (center) {
            layernorm_forward(DTYPE_F32, rows, n, x, gain, bias, (float)EPS, y, mean, inv);
            layernorm_backward(DTYPE_F32, rows, n, x, gain, mean, inv, dy, dx, dgain, dbias, work);
        } else {
            rmsnorm_forward(DTYPE_F32, rows, n, x, gain, (float)EPS, y, inv);
            rmsnorm_backward(DTYPE_F32, rows, n, x, gain, inv, dy, dx, dgain, work);
        }
        if (threads == 1) {
            first_dgain = kc_copy(dgain, n);
            first_y = kc_copy(y, rows * n);
            first_dx = kc_copy(dx, rows * n);
        }
        CHECK(kc_same_bits(first_dgain, dgain, n) && kc_same_bits(first_y, y, rows * n) &&
                  kc_same_bits(first_dx, dx, rows * n),
              "%d threads differ from 1 at %dx%d", threads, (int)rows, (int)n);
    }
    omp_set_num_threads(2);
    CHECK_NEAR(y, r.y, rows * n, 1.0, 5e-6, "%dx%d", (int)rows, (int)n);
    CHECK_NEAR(inv, r.inv, rows, 1.0, 5e-6, "%dx%d", (int)rows, (int)n);
    if (center) CHECK_NEAR(mean, r.mean, rows, 1.0, 1e-6, "%dx%d", (int)rows, (int)n);
    CHECK_NEAR(dx, r.dx, rows * n, fmax(1.0, r.inv[0]), 1e-5, "%dx%d", (int)rows, (int)n);
    CHECK_NEAR(dgain, r.dgain, n, sqrt((double)rows), 5e-6, "%dx%d", (int)rows, (int)n);
    if (center) CHECK_NEAR(dbias, r.dbias, n, sqrt((double)rows), 5e-6, "%dx%d", (int)rows, (int)n);
    free(r.y), free(r.mean), free(r.inv), free(r.dx), free(r.dgain), free(r.dbias);
    free(x), free(gain), free(bias), free(dy), free(y), free(mean), free(inv), free(dx);
    free(dgain), free(dbias), free(work), free(first_dgain), free(first_y), free(first_dx);
}

static void check_rotary(int64_t batch, int64_t seq, int64_t inner, int64_t head, int64_t offset) {
    const int64_t n = batch * seq * inner * head;
    float *x = kc_random(n), *y = kc_zeros(n);
    double *want = kc_zeros64(n), *back = kc_zeros64(n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t e = i % head, pair = e % (head / 2), pos = offset + i / head / inner % seq;
        const double angle = (double)pos * pow(10000.0, -2.0 * (double)pair / (double)head);
        const double other = e < head / 2 ? -(double)x[i + head / 2] : (double)x[i - head / 2];
        want[i] = (double)x[i] * cos(angle) + other * sin(angle);
        back[i] = (double)x[i];
    }
    rotary_apply(DTYPE_F32, batch, seq, inner, head, head, &(DimSpan){0, 0, offset}, 10000.0, NULL,
                 1, x, y);
    CHECK_NEAR(y, want, n, 1.0, 5e-7, "head %d from position %d", (int)head, (int)offset);
    rotary_apply(DTYPE_F32, batch, seq, inner, head, head, &(DimSpan){0, 0, offset}, 10000.0, NULL,
                 -1, y, y);
    CHECK_NEAR(y, back, n, 1.0, 5e-7, "and back, head %d in place", (int)head);
    free(x), free(y), free(want), free(back);
}

static void check_embedding(int64_t n, int64_t model, int64_t local, int64_t offset) {
    int32_t *tokens = kc_alloc((size_t)n * sizeof *tokens);
    for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)((kc_uniform() + 1) * 20) - 1;
    float *table = kc_random(local * model), *out = kc_random(n * model);
    float *dy = kc_random(n * model), *dtable = kc_random(local * model);
    double *want = kc_zeros64(n * model), *dwant = kc_zeros64(local * model);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < model; j++) {
            const int64_t row = tokens[i] - offset;
            if (row < 0 || row >= local) continue;
            want[i * model + j] = (double)table[row * model + j];
            dwant[row * model + j] += (double)dy[i * model + j];
        }
    embedding_forward(DTYPE_F32, n, model, local, offset, tokens, table, out);
    CHECK_NEAR(out, want, n * model, 1.0, 0, "%d tokens", (int)n);
    embedding_backward(DTYPE_F32, n, model, local, offset, tokens, dy, false, dtable);
    CHECK_NEAR(dtable, dwant, local * model, 1.0, 2e-6, "%d tokens", (int)n);
    embedding_backward(DTYPE_F32, n, model, local, offset, tokens, dy, true, dtable);
    for (int64_t i = 0; i < local * model; i++) dwant[i] *= 2;
    CHECK_NEAR(dtable, dwant, local * model, 1.0, 2e-6, "accumulated, %d tokens", (int)n);
    free(tokens), free(table), free(out), free(dy), free(dtable), free(want), free(dwant);
}

static void check_cross_entropy(int64_t rows, int64_t n_local, int64_t n_valid, int64_t offset,
                                bool has_dlse) {
    const int64_t n = rows * n_local;
    float *x = kc_random(n), *lse = kc_zeros(rows), *picked = kc_zeros(rows);
    float *dloss = kc_random(rows), *dlse = has_dlse ? kc_random(rows) : NULL;
    int32_t *labels = kc_alloc((size_t)rows * sizeof *labels);
    double *want_lse = kc_zeros64(rows), *want_pick = kc_zeros64(rows), *want = kc_zeros64(n);
    for (int64_t r = 0; r < rows; r++) {
        labels[r] =
            (int32_t)(offset - 1 + r % (n_local + 2)); /* some outside, some in the padding */
        const int64_t column = labels[r] - offset;
        double sum = 0;
        for (int64_t i = 0; i < n_valid; i++) sum += exp((double)(x[r * n_local + i] *= 20.0f));
        for (int64_t i = n_valid; i < n_local; i++) x[r * n_local + i] = NAN;
        want_lse[r] = log(sum);
        if (column >= 0 && column < n_valid) want_pick[r] = (double)x[r * n_local + column];
        for (int64_t i = 0; i < n_valid; i++)
            want[r * n_local + i] = exp((double)x[r * n_local + i] - want_lse[r]) *
                                        ((double)dloss[r] + (dlse ? (double)dlse[r] : 0)) -
                                    (i == column) * (double)dloss[r];
    }
    softmax_logsumexp(DTYPE_F32, rows, n_local, n_valid, x, lse);
    CHECK_NEAR(lse, want_lse, rows, 1.0, 1e-6, "%dx%d", (int)rows, (int)n_valid);
    softmax_pick(DTYPE_F32, rows, n_local, n_valid, offset, x, labels, picked);
    CHECK_NEAR(picked, want_pick, rows, 1.0, 0, "%dx%d", (int)rows, (int)n_valid);
    softmax_cross_entropy_grad(DTYPE_F32, rows, n_local, n_valid, offset, x, labels, lse, dloss,
                               dlse, x);
    /* The rounding of a logit of size 20 or so, minus lse, is 2e-6 of the probability. */
    CHECK_NEAR(x, want, n, 1.0, 4e-6, "%dx%d in place", (int)rows, (int)n_valid);
    free(x), free(lse), free(picked), free(dloss), free(dlse), free(labels);
    free(want_lse), free(want_pick), free(want);
}

int main(void) {
    check_begin("layernorm and its gradient");
    check_norm(true, 1, 1 + 4);
    check_norm(true, 37, 100);
    check_norm(true, 130, 768);
    check_norm(true, 2, 5001);
    check_begin("rmsnorm and its gradient");
    check_norm(false, 3, 7);
    check_norm(false, 77, 130);
    check_norm(false, 1100, 33);
    check_begin("rotary: forward, and back in place");
    check_rotary(2, 5, 3, 64, 0);
    check_rotary(1, 70, 1, 6, 100000);
    check_rotary(1, 40, 2, 600, 7);
    check_begin("embedding: shards, repeats, accumulation");
    check_embedding(50, 33, 40, 0);
    check_embedding(300, 130, 11, 7);
    check_embedding(0, 8, 4, 0);
    check_begin("cross-entropy's pieces: shards and padding");
    check_cross_entropy(1, 1, 1, 0, false);
    check_cross_entropy(23, 17, 13, 5, true);
    check_cross_entropy(40, 1111, 1100, 0, false);
    check_begin("logsumexp of no columns, of -inf, of +inf, of NaN");
    const float odd[] = {-INFINITY, -INFINITY, INFINITY, 1, NAN, 1, 1000, 1000};
    float lse[4];
    softmax_logsumexp(DTYPE_F32, 1, 2, 0, odd, lse);
    CHECK(lse[0] == -INFINITY, "no columns: %g", (double)lse[0]);
    softmax_logsumexp(DTYPE_F32, 4, 2, 2, odd, lse);
    CHECK(lse[0] == -INFINITY, "-inf only: %g", (double)lse[0]);
    CHECK(lse[1] == INFINITY, "+inf: %g", (double)lse[1]);
    CHECK(isnan(lse[2]), "NaN: %g", (double)lse[2]);
    CHECK(fabsf(lse[3] - 1000.6931f) < 1e-3f, "large: %g", (double)lse[3]);
    return check_report();
}
