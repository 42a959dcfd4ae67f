#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/gemm_widened.h"

/* As in op_workspace_bytes. */
#define BLOCK_MN 512
#define BLOCK_K  256

/* Else sums are added up in the result itself. */
static bool rounds_sums(const GemmShape *s) {
    return dtype_is_low(s->out_dtype);
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

size_t gemm_widened_workspace_bytes(const GemmShape *s) {
    const int64_t m = smaller(s->m, BLOCK_MN), n = smaller(s->n, BLOCK_MN);
    const int64_t k = smaller(s->k, BLOCK_K);
    return (size_t)(m * k + k * n + (rounds_sums(s) ? m * n : 0)) * sizeof(float);
}

/* out[rows, columns] = the block of x whose rows are `stride` apart. */
static void widen_block(DType dtype, int64_t rows, int64_t columns, const uint16_t *x,
                        int64_t stride, float *out) {
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
    for (int64_t r = 0; r < rows; r++)
        vec_low_load(dtype, x + r * stride, out + r * columns, columns);
}

static void round_block(DType dtype, int64_t rows, int64_t columns, const float *x, uint16_t *out,
                        int64_t stride) {
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
    for (int64_t r = 0; r < rows; r++)
        vec_low_store(dtype, x + r * columns, out + r * stride, columns);
}

/* One block of C: rows [i, i + m), columns [j, j + n) of one of the batch's products. */
static bool multiply_block(const GemmShape *s, const uint16_t *a, const uint16_t *b, void *c,
                           int64_t i, int64_t m, int64_t j, int64_t n, float *workspace) {
    const int64_t most_k = smaller(s->k, BLOCK_K);
    float *wide_a = workspace, *wide_b = wide_a + m * most_k, *wide_c = wide_b + most_k * n;
    float *sums = rounds_sums(s) ? wide_c : (float *)c + i * s->n + j;
    const int64_t ldc = rounds_sums(s) ? n : s->n;
    for (int64_t at = 0; at < s->k; at += BLOCK_K) {
        const int64_t k = smaller(s->k - at, BLOCK_K);
        const float beta = at > 0 || s->accumulate ? 1 : 0;
        if (s->ta)
            widen_block(s->dtype, k, m, a + at * s->m + i, s->m, wide_a);
        else
            widen_block(s->dtype, m, k, a + i * s->k + at, s->k, wide_a);
        if (s->tb)
            widen_block(s->dtype, n, k, b + j * s->k + at, s->k, wide_b);
        else
            widen_block(s->dtype, k, n, b + at * s->n + j, s->n, wide_b);
        if (!gemm_f32(s->ta, s->tb, m, n, k, 1, wide_a, s->ta ? m : k, wide_b, s->tb ? k : n, beta,
                      sums, ldc))
            return false;
    }
    if (rounds_sums(s)) round_block(s->out_dtype, m, n, wide_c, (uint16_t *)c + i * s->n + j, s->n);
    return true;
}

bool gemm_widened(const GemmShape *s, const uint16_t *a, const uint16_t *b, void *c,
                  float *workspace) {
    for (int64_t p = 0; p < s->batch; p++) {
        void *out = (char *)c + p * s->m * s->n * (int64_t)vec_bytes(s->out_dtype);
        for (int64_t i = 0; i < s->m; i += BLOCK_MN)
            for (int64_t j = 0; j < s->n; j += BLOCK_MN)
                if (!multiply_block(s, a + p * s->m * s->k, b + p * s->k * s->n, out, i,
                                    smaller(s->m - i, BLOCK_MN), j, smaller(s->n - j, BLOCK_MN),
                                    workspace))
                    return false;
    }
    return true;
}
