#include "runtime/cpu/vec.h"

#include "runtime/cpu/small_product.h"

/* Of either form: sums of vectors that are kept for one row of C, and multiplications in all. */
enum { MOST_SUMS = 64, MOST_PRODUCTS = 1 << 15 };

bool small_product_does(const SmallProduct *p) {
    bool by_rows = !p->tb && p->m * p->k <= MOST_SUMS;          /* C's rows are sums of B's */
    bool by_dots = p->tb && !p->ta && p->m * p->n <= MOST_SUMS; /* rows of A by rows of B */
    return (by_rows || by_dots) && p->m * p->n * p->k <= MOST_PRODUCTS;
}

static void put(const SmallProduct *p, float *c, float sum) {
    *c = p->alpha * sum + (p->beta == 0 ? 0 : p->beta * *c);
}

static float dot(int64_t k, const float *a, const float *b) {
    Vec sums[2] = {vec_splat(0), vec_splat(0)};
    int64_t l = 0;
    for (; l + 2 * VEC_LANES <= k; l += 2 * VEC_LANES) {
        sums[0] += vec_load(a + l) * vec_load(b + l);
        sums[1] += vec_load(a + l + VEC_LANES) * vec_load(b + l + VEC_LANES);
    }
    float sum = vec_lane_sum(sums[0] + sums[1]);
    for (; l < k; l++) sum += a[l] * b[l];
    return sum;
}

static void multiply_dots(const SmallProduct *p, const float *a, const float *b, float *c) {
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            put(p, c + i * p->ldc + j, dot(p->k, a + i * p->lda, b + j * p->ldb));
        }
    }
}

static void multiply_rows(const SmallProduct *p, const float *a, const float *b, float *c) {
    const int64_t down = p->ta ? 1 : p->lda, along = p->ta ? p->lda : 1;
    for (int64_t i = 0; i < p->m; i++) {
        const float *factors = a + i * down;
        float *row = c + i * p->ldc;
        int64_t j = 0;
        for (; j + VEC_LANES <= p->n; j += VEC_LANES) {
            Vec sum = vec_splat(0);
            for (int64_t l = 0; l < p->k; l++) {
                sum += vec_splat(factors[l * along]) * vec_load(b + l * p->ldb + j);
            }
            sum *= vec_splat(p->alpha);
            if (p->beta != 0) sum += vec_splat(p->beta) * vec_load(row + j);
            vec_store(row + j, sum);
        }
        for (; j < p->n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < p->k; l++) sum += factors[l * along] * b[l * p->ldb + j];
            put(p, row + j, sum);
        }
    }
}

void small_product(const SmallProduct *p, const float *a, const float *b, float *c) {
    if (p->tb) {
        multiply_dots(p, a, b, c);
    } else {
        multiply_rows(p, a, b, c);
    }
}
