#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/gemm_widened.h"

/* As in op_workspace_bytes. */
#define BLOCK_MN 512
#define BLOCK_K  256

/* Rows of 1 or 2 KiB lie in few sets of a cache: packing columns of them, as of what is transposed,
 * made such products a third slower (seen on AVX2). They are PAD numbers longer, for which blocks
 * of fewer rows of k leave room. */
#define PAD      16
#define PADDED_K (BLOCK_K - PAD)

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

/* One of the two factors, as it is stored; with scales it is fp8. */
typedef struct Factor {
    DType dtype;
    const void *x;
    int64_t stride; /* from a row to the next */
    const BlockLayout *blocks;
    const float *scales;
} Factor;

/* out[rows, columns], from row to row `ld` numbers, = the block of x that begins in (row, column).
 * With scales rows lie close together. */
static void widen_block(const Factor *f, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        float *out, int64_t ld) {
    if (f->scales) {
        dequantize_part(f->blocks, f->x, f->scales, row, rows, column, columns, out);
        return;
    }
    const uint16_t *x = (const uint16_t *)f->x + row * f->stride + column;
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
    for (int64_t r = 0; r < rows; r++)
        vec_low_load(f->dtype, x + r * f->stride, out + r * ld, columns);
}

static void round_block(DType dtype, int64_t rows, int64_t columns, const float *x, uint16_t *out,
                        int64_t stride) {
#pragma omp parallel for schedule(static) if (rows * columns > 16384)
    for (int64_t r = 0; r < rows; r++)
        vec_low_store(dtype, x + r * columns, out + r * stride, columns);
}

/* Of k in a block: where rows are along m or n, parts of one size that leave room for padding. */
static int64_t block_of_k(const GemmShape *s, const Factor *a) {
    if (s->k < BLOCK_K || a->scales || (!s->ta && s->tb)) return smaller(s->k, BLOCK_K);
    const int64_t n_blocks = (s->k + PADDED_K - 1) / PADDED_K;
    return ((s->k + n_blocks - 1) / n_blocks + 7) / 8 * 8;
}

/* From row to row of a block [k, columns]. */
static int64_t padded(int64_t columns, bool roomy) {
    return roomy && columns % (BLOCK_MN / 2) == 0 ? columns + PAD : columns;
}

/* One block of C: rows [i, i + m), columns [j, j + n) of one of the batch's products. */
static bool multiply_block(const GemmShape *s, const Factor *a, const Factor *b, void *c, int64_t i,
                           int64_t m, int64_t j, int64_t n, float *workspace) {
    const int64_t most_k = block_of_k(s, a), reserved_k = smaller(s->k, BLOCK_K);
    const bool roomy = most_k < reserved_k;
    float *wide_a = workspace, *wide_b = wide_a + m * reserved_k, *wide_c = wide_b + reserved_k * n;
    float *sums = rounds_sums(s) ? wide_c : (float *)c + i * s->n + j;
    const Factor added = {.dtype = s->out_dtype, .x = c, .stride = s->n};
    const int64_t ldc = rounds_sums(s) ? n : s->n;
    if (rounds_sums(s) && s->accumulate) widen_block(&added, i, m, j, n, wide_c, n);
    for (int64_t at = 0; at < s->k; at += most_k) {
        const int64_t k = smaller(s->k - at, most_k);
        const int64_t lda = s->ta ? padded(m, roomy) : k;
        const int64_t ldb = s->tb ? k : padded(n, roomy);
        const float beta = at > 0 || s->accumulate ? 1 : 0;
        if (s->ta)
            widen_block(a, at, k, i, m, wide_a, lda);
        else
            widen_block(a, i, m, at, k, wide_a, lda);
        if (s->tb)
            widen_block(b, j, n, at, k, wide_b, ldb);
        else
            widen_block(b, at, k, j, n, wide_b, ldb);
        if (!gemm_f32(s->ta, s->tb, m, n, k, 1, wide_a, lda, wide_b, ldb, beta, sums, ldc))
            return false;
    }
    if (rounds_sums(s)) round_block(s->out_dtype, m, n, wide_c, (uint16_t *)c + i * s->n + j, s->n);
    return true;
}

static bool multiply(const GemmShape *s, const Factor *a, const Factor *b, void *c,
                     float *workspace) {
    for (int64_t i = 0; i < s->m; i += BLOCK_MN)
        for (int64_t j = 0; j < s->n; j += BLOCK_MN)
            if (!multiply_block(s, a, b, c, i, smaller(s->m - i, BLOCK_MN), j,
                                smaller(s->n - j, BLOCK_MN), workspace))
                return false;
    return true;
}

bool gemm_widened(const GemmShape *s, const uint16_t *a, const uint16_t *b, void *c,
                  float *workspace) {
    for (int64_t p = 0; p < s->batch; p++) {
        const Factor left = {
            .dtype = s->dtype, .x = a + p * s->m * s->k, .stride = s->ta ? s->m : s->k};
        const Factor right = {
            .dtype = s->dtype, .x = b + p * s->k * s->n, .stride = s->tb ? s->k : s->n};
        void *out = (char *)c + p * s->m * s->n * (int64_t)vec_bytes(s->out_dtype);
        if (!multiply(s, &left, &right, out, workspace)) return false;
    }
    return true;
}

bool gemm_scaled(const GemmShape *s, const ScaledFactor *a, const ScaledFactor *b, void *c,
                 float *workspace) {
    const Factor left = {.x = a->values, .blocks = &a->blocks, .scales = a->scales};
    const Factor right = {.x = b->values, .blocks = &b->blocks, .scales = b->scales};
    return multiply(s, &left, &right, c, workspace);
}
