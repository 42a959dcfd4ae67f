/* gemm.c against sums in f64: every transposition, odd sizes, leading dimensions wider than the
 * rows, alpha and beta, empty sizes, and both ways a product can run (dnnl_sgemm, primitive).
 * row_product.c the same, and its bits beside other rows and on other threads. */
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/row_product.h"
#include "runtime/cpu/vec_low.h"
#include "tests/unit/kernel_check.h"

#include <pthread.h>

typedef struct Case {
    int64_t m, n, k, pad;
    float alpha, beta;
} Case;

static void reference_gemm(bool ta, bool tb, const Case *s, const float *a, int64_t lda,
                           const float *b, int64_t ldb, const float *c, double *out) {
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < s->k; l++)
                sum += (double)(ta ? a[l * lda + i] : a[i * lda + l]) *
                       (double)(tb ? b[j * ldb + l] : b[l * ldb + j]);
            double old = s->beta == 0 ? 0 : (double)s->beta * (double)c[i * (s->n + s->pad) + j];
            out[i * s->n + j] = (double)s->alpha * sum + old;
        }
}

static void check_product(bool ta, bool tb, const Case *s) {
    int64_t lda = (ta ? s->m : s->k) + s->pad, ldb = (tb ? s->k : s->n) + s->pad;
    int64_t ldc = s->n + s->pad;
    if (lda == 0) lda = 1;
    if (ldb == 0) ldb = 1;
    float *a = kc_random((ta ? s->k : s->m) * lda), *b = kc_random((tb ? s->n : s->k) * ldb);
    float *c = kc_random(s->m * ldc), *packed = kc_zeros(s->m * s->n);
    double *want = kc_zeros64(s->m * s->n);
    reference_gemm(ta, tb, s, a, lda, b, ldb, c, want);
    if (s->beta == 0)
        for (int64_t i = 0; i < s->m * ldc; i++) c[i] = NAN; /* must not be read */
    /* Twice with beta 0: the second run replays a prepared primitive. */
    for (int run = 0; run < (s->beta == 0 ? 2 : 1); run++)
        CHECK(gemm_f32(ta, tb, s->m, s->n, s->k, s->alpha, a, lda, b, ldb, s->beta, c, ldc), "%s",
              gemm_status_text());
    for (int64_t i = 0; i < s->m; i++)
        memcpy(packed + i * s->n, c + i * ldc, (size_t)s->n * sizeof *c);
    /* f32 sums of k products: error grows like sqrt(k) 6e-8 of their size. */
    CHECK_NEAR(packed, want, s->m * s->n, 1.0 + sqrt((double)s->k), 2e-6, "ta%d tb%d %dx%dx%d", ta,
               tb, (int)s->m, (int)s->n, (int)s->k);
    free(a), free(b), free(c), free(packed), free(want);
}

static void check_batched(bool ta, bool tb, const Case *s, bool shares_b, int64_t batch) {
    const int64_t m = s->m, n = s->n, k = s->k, step_b = shares_b ? 0 : n * k;
    const int64_t lda = ta ? m : k, ldb = tb ? k : n;
    float *a = kc_random(batch * m * k), *b = kc_random(batch * n * k);
    float *c = kc_random(batch * m * n);
    double *want = kc_zeros64(batch * m * n);
    for (int64_t i = 0; i < batch; i++)
        reference_gemm(ta, tb, s, a + i * m * k, lda, b + i * step_b, ldb, c + i * m * n,
                       want + i * m * n);
    if (s->beta == 0)
        for (int64_t i = 0; i < batch * m * n; i++) c[i] = NAN; /* must not be read */
    CHECK(gemm_f32_batched(ta, tb, m, n, k, s->alpha, a, lda, m * k, b, ldb, step_b, s->beta, c, n,
                           m * n, batch),
          "%s", gemm_status_text());
    CHECK_NEAR(c, want, batch * m * n, 1.0 + sqrt((double)k), 2e-6,
               "ta%d tb%d batch %d of %dx%dx%d", ta, tb, (int)batch, (int)m, (int)n, (int)k);
    free(a), free(b), free(c), free(want);
}

/* `x` in a dtype, which takes its place; f64 of the same numbers is in it afterwards. */
static void *in_dtype(DType dtype, float *x, int64_t n) {
    void *low = kc_zeros(n);
    for (int64_t i = 0; i < n; i++) {
        vec_put(low, dtype, i, x[i]);
        x[i] = vec_get(low, dtype, i);
    }
    return low;
}

/* Each row alone and on one thread must have the bits that it has beside others on three. */
static void check_rows(const RowProduct *p) {
    const Case s = {.m = p->m, .n = p->n, .k = p->k, .alpha = 1};
    float *a = kc_random(p->m * p->k), *b = kc_random(p->k * p->n);
    float *c = kc_zeros(p->m * p->n), *alone = kc_zeros(p->n);
    double *want = kc_zeros64(p->m * p->n);
    void *own_a = in_dtype(p->dtype, a, p->m * p->k), *own_b = in_dtype(p->dtype, b, p->k * p->n);
    const int threads = omp_get_max_threads();
    RowProduct one = *p;
    one.m = 1;
    reference_gemm(false, p->tb, &s, a, p->k, b, p->tb ? p->k : p->n, NULL, want);
    omp_set_num_threads(3);
    row_product(p, own_a, own_b, c);
    omp_set_num_threads(1);
    /* One running sum for a column: partial sums are rounded k times, not by blocks as above. */
    CHECK_NEAR(c, want, p->m * p->n, 1.0 + sqrt((double)p->k), 4e-6, "%s%s %dx%dx%d",
               dtype_name(p->dtype), p->tb ? " tb" : "", (int)p->m, (int)p->n, (int)p->k);
    for (int64_t i = 0; i < p->m; i++) {
        row_product(&one, vec_at(own_a, p->dtype, i * p->k), own_b, alone);
        CHECK(memcmp(alone, c + i * p->n, (size_t)p->n * sizeof *c) == 0, "%s%s: row %d of %d",
              dtype_name(p->dtype), p->tb ? " tb" : "", (int)i, (int)p->m);
    }
    omp_set_num_threads(threads);
    free(a), free(b), free(c), free(alone), free(want), free(own_a), free(own_b);
}

static void *multiply_repeatedly(void *unused) {
    (void)unused;
    omp_set_num_threads(1);
    const Case s = {.m = 32, .n = 40, .k = 640, .alpha = 1};
    for (int i = 0; i < 3; i++) check_product(false, true, &s);
    return NULL;
}

int main(void) {
    const Case cases[] = {{1, 1, 1, 0, 1, 0},        {3, 5, 7, 0, 1, 0},
                          {17, 31, 33, 3, 1, 1},     {64, 48, 768, 0, 1, 0},
                          {33, 65, 600, 5, 1, 1},    {20, 36, 514, 0, 0.5f, 0},
                          {129, 100, 130, 1, 2, -1}, {1, 300, 700, 0, 1, 0}};
    check_begin("products equal sums in f64");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 0; t < 4; t++) check_product(t & 1, t >> 1, &cases[i]);

    check_begin("empty sizes: nothing written, or beta C");
    const Case empty[] = {
        {0, 3, 4, 0, 1, 0}, {3, 0, 4, 0, 1, 0}, {3, 4, 0, 0, 1, 0}, {3, 4, 0, 0, 1, 0.5f}};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        for (int t = 0; t < 4; t++) check_product(t & 1, t >> 1, &empty[i]);

    check_begin("wrong sizes are refused, not run");
    float x[4] = {0};
    CHECK(!gemm_f32(false, false, 2, 2, 2, 1, x, 1, x, 2, 0, x, 2), "lda 1 < k 2 accepted");
    CHECK(!gemm_f32(false, false, -1, 2, 2, 1, x, 2, x, 2, 0, x, 2), "m = -1 accepted");
    CHECK(strlen(gemm_status_text()) > 0, "no reason given");

    check_begin("batches, with a shared operand");
    check_batched(false, true, &(Case){3, 7, 5, 0, 1, 0}, true, 1);
    check_batched(false, true, &(Case){4, 7, 5, 0, 1, 0}, true, 6);
    check_batched(false, true, &(Case){1, 7, 5, 0, 1, 0}, true, 33);

    /* Rows by rows, sums of a few rows with a tail, one number each; and what is none of these. */
    check_begin("many small products, as many as threads share");
    const Case small[] = {{1, 1, 1000, 0, 1, 0}, {4, 4, 259, 0, 0.5f, 1}, {4, 77, 4, 0, 1, 0},
                          {1, 200, 4, 0, 2, -1}, {1, 1, 1, 0, 1, 0},      {64, 3, 1, 0, 1, 1},
                          {300, 1, 4, 0, 1, 0},  {5, 1, 70, 0, 1, 1},     {9, 9, 9, 0, 1, 0.5f},
                          {4, 5000, 2, 0, 1, 0}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        for (int t = 0; t < 4; t++) check_batched(t & 1, t >> 1, &small[i], i % 2, 67);

    /* Beyond what is summed together (4,096 columns, 2,048 of k), with odd ends. */
    check_begin("products of few rows equal sums in f64, and do not depend on what is beside them");
    const DType dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (int i = 0; i < 6; i++) {
        RowProduct p = {.batch = 1,
                        .m = 5,
                        .n = 4173,
                        .k = 29,
                        .tb = i > 2,
                        .dtype = dtypes[i % 3],
                        .out_dtype = DTYPE_F32};
        check_rows(&p);
        p.m = 3, p.n = 77, p.k = 2061;
        check_rows(&p);
        p.m = 2;
        check_rows(&p);
    }

    /* Two threads want the same prepared product: each must get its own memory objects. */
    check_begin("threads multiply at once");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, multiply_repeatedly, NULL) == 0, "no thread");
    pthread_join(other, NULL);
    char version[32];
    gemm_library_version(version, sizeof version);
    CHECK(strncmp(version, "oneDNN ", 7) == 0, "version is '%s'", version);
    gemm_release_cache();
    return check_report();
}
