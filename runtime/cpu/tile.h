/* Small products and transpositions of f32, in registers: what attention and linear attention are
 * made of. Include vec_low.h first: it widens the vectors of the file.
 */
#ifndef RUNTIME_CPU_TILE_H
#define RUNTIME_CPU_TILE_H

#include "runtime/cpu/vec.h"

/* Register tile of tile_multiply: UNROLL_M x PANEL accumulators must leave registers for the
 * operands. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define UNROLL_M 6
#define PANEL    4
#else
#define UNROLL_M 4
#define PANEL    2
#endif

/* C[0..mr)[0..nv vectors) = A B, or C += A B; mr and nv are constants at every call. */
VEC_INLINE void multiply_panel(const int mr, const int nv, bool add, int k, const float *a,
                               int64_t a_m, int64_t a_k, const float *b, int64_t ldb, float *c,
                               int64_t ldc) {
    Vec acc[UNROLL_M][PANEL] = {{{0}}};
    for (int i = 0; i < k; i++, a += a_k, b += ldb) {
        Vec row[PANEL];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) row[v] = vec_load(b + v * VEC_LANES);
#pragma GCC unroll 8
        for (int m = 0; m < mr; m++) {
            Vec s = vec_splat(a[m * a_m]);
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++) acc[m][v] += s * row[v];
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < mr; m++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            float *at = c + m * ldc + v * VEC_LANES;
            vec_store(at, add ? vec_load(at) + acc[m][v] : acc[m][v]);
        }
}

VEC_INLINE void multiply_column(const int nv, bool add, int m, int k, const float *a, int64_t a_m,
                                int64_t a_k, const float *b, int64_t ldb, float *c, int64_t ldc) {
    int i = 0;
    for (; i + UNROLL_M <= m; i += UNROLL_M)
        multiply_panel(UNROLL_M, nv, add, k, a + i * a_m, a_m, a_k, b, ldb, c + i * ldc, ldc);
    for (; i + 2 <= m; i += 2)
        multiply_panel(2, nv, add, k, a + i * a_m, a_m, a_k, b, ldb, c + i * ldc, ldc);
    if (i < m) multiply_panel(1, nv, add, k, a + i * a_m, a_m, a_k, b, ldb, c + i * ldc, ldc);
}

/* C[m][w] (+)= sum over k of A(m, k) B[k][w], with A read by scalars through two strides and B, C
 * by vectors along w. width: a multiple of VEC_LANES. A number's bits depend on its own sum alone.
 */
__attribute__((unused)) static void tile_multiply(bool add, int m, int width, int k, const float *a,
                                                  int64_t a_m, int64_t a_k, const float *b,
                                                  int64_t ldb, float *c, int64_t ldc) {
    int w = 0;
    for (; w + PANEL * VEC_LANES <= width; w += PANEL * VEC_LANES)
        multiply_column(PANEL, add, m, k, a, a_m, a_k, b + w, ldb, c + w, ldc);
    for (; w + 2 * VEC_LANES <= width; w += 2 * VEC_LANES)
        multiply_column(2, add, m, k, a, a_m, a_k, b + w, ldb, c + w, ldc);
    for (; w < width; w += VEC_LANES)
        multiply_column(1, add, m, k, a, a_m, a_k, b + w, ldb, c + w, ldc);
}

/* Lanes of a and b in turn: of their first halves, of their second. */
#if VEC_LANES == 16
#define TILE_FIRST(a, b) VEC_PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TILE_SECOND(a, b)                                                                          \
    VEC_PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif VEC_LANES == 8
#define TILE_FIRST(a, b)  VEC_PICK(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TILE_SECOND(a, b) VEC_PICK(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define TILE_FIRST(a, b)  VEC_PICK(a, b, 0, 4, 1, 5)
#define TILE_SECOND(a, b) VEC_PICK(a, b, 2, 6, 3, 7)
#endif

/* to[j][i] = from[i][j]; rows and columns are multiples of VEC_LANES. A square of vectors is
 * transposed by as many perfect shuffles of its rows as halve their number to one. */
__attribute__((unused)) static void tile_transpose(int rows, int columns, const float *from,
                                                   int64_t ld_from, float *to, int64_t ld_to) {
    for (int i = 0; i < rows; i += VEC_LANES)
        for (int j = 0; j < columns; j += VEC_LANES) {
            Vec x[VEC_LANES], y[VEC_LANES];
#pragma GCC unroll 16
            for (int r = 0; r < VEC_LANES; r++) x[r] = vec_load(from + (i + r) * ld_from + j);
#pragma GCC unroll 4
            for (int step = VEC_LANES; step > 1; step /= 2) {
#pragma GCC unroll 8
                for (int r = 0; r < VEC_LANES / 2; r++) {
                    y[2 * r] = TILE_FIRST(x[r], x[r + VEC_LANES / 2]);
                    y[2 * r + 1] = TILE_SECOND(x[r], x[r + VEC_LANES / 2]);
                }
#pragma GCC unroll 16
                for (int r = 0; r < VEC_LANES; r++) x[r] = y[r];
            }
#pragma GCC unroll 16
            for (int r = 0; r < VEC_LANES; r++) vec_store(to + (j + r) * ld_to + i, x[r]);
        }
}

#endif
