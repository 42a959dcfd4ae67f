/* B's rows are read in the order in which they lie in memory, a few side by side; everything else
 * stays in the caches of a core. The rows of A take their turns at what has just been read. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/row_product.h"

#include <omp.h>
#include <string.h>

enum {
    ROWS = ROW_PRODUCT_MOST,
    DEEP = 8,       /* rows of B [k, n] read side by side */
    SIDE = 4,       /* of B [n, k] */
    WIDE = 1024,    /* columns of B [k, n] whose sums are made together, at most */
    TILE = 2048,    /* elements of a row of A at once */
    PARALLEL_ELEMENTS = 1 << 15
};

typedef uint16_t VecHalf __attribute__((vector_size(VEC_LANES * 2)));
typedef uint32_t VecBits __attribute__((vector_size(VEC_LANES * 4)));

VEC_INLINE Vec load(const DType dtype, const void *x, int64_t i) {
    if (dtype == DTYPE_F32) return vec_load((const float *)x + i);
    VecHalf half;
    __builtin_memcpy(&half, (const uint16_t *)x + i, sizeof half);
    return (Vec)(__builtin_convertvector(half, VecBits) << 16);
}

static bool is_zero(DType dtype, const void *a, int64_t n) {
    const unsigned char *bytes = a;
    const size_t size = (size_t)n * vec_bytes(dtype);
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Sums of columns [first, first + n) of rows [k0, k0 + depth) of B are added to sums[i]. */
VEC_INLINE void add_deep(const DType dtype, const RowProduct *p, const float (*a)[TILE],
                         const void *b, int64_t k0, int64_t depth, int64_t at, int64_t first,
                         int64_t n, float (*sums)[WIDE]) {
    for (int64_t i = 0; i < p->m; i++) {
        const float *x = a[i] + at;
        int64_t j = 0;
        for (; j + VEC_LANES <= n; j += VEC_LANES) {
            Vec s = vec_load(sums[i] + j);
            if (depth == DEEP) {
#pragma GCC unroll 8
                for (int64_t r = 0; r < DEEP; r++)
                    s += x[r] * load(dtype, b, (k0 + r) * p->n + first + j);
            } else {
                for (int64_t r = 0; r < depth; r++)
                    s += x[r] * load(dtype, b, (k0 + r) * p->n + first + j);
            }
            vec_store(sums[i] + j, s);
        }
        for (; j < n; j++)
            for (int64_t r = 0; r < depth; r++)
                sums[i][j] += x[r] * vec_get(b, dtype, (k0 + r) * p->n + first + j);
    }
}

/* Columns [first, first + n) of C. */
VEC_INLINE void make_columns(const DType dtype, const RowProduct *p, const void *a, const void *b,
                             void *c, int64_t first, int64_t n) {
    float sums[ROWS][WIDE] __attribute__((aligned(64))), wide[ROWS][TILE];
    for (int64_t i = 0; i < p->m; i++) memset(sums[i], 0, (size_t)n * sizeof(float));
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE) {
        const int64_t size = p->k - k0 < TILE ? p->k - k0 : TILE;
        for (int64_t i = 0; i < p->m; i++) {
            const float *row = vec_tile(a, dtype, i * p->k + k0, size, wide[i]);
            if (row != wide[i]) memcpy(wide[i], row, (size_t)size * sizeof(float));
        }
        for (int64_t at = 0; at < size; at += DEEP) {
            const int64_t depth = size - at < DEEP ? size - at : DEEP;
            add_deep(dtype, p, wide, b, k0 + at, depth, at, first, n, sums);
        }
    }
    for (int64_t i = 0; i < p->m; i++) {
        float *to = vec_out_tile(c, p->out_dtype, i * p->n + first, sums[i]);
        if (to != sums[i]) memcpy(to, sums[i], (size_t)n * sizeof(float));
        vec_close_tile(c, p->out_dtype, i * p->n + first, n, sums[i]);
    }
}

/* sums[i][r] of row i of A with row first + r of B [n, k]; side is a constant. */
VEC_INLINE void make_side(const DType dtype, const RowProduct *p, const int side, const void *a,
                          const void *b, void *c, int64_t first) {
    float sums[ROWS][SIDE] = {{0}}, wide[TILE];
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE) {
        const int64_t size = p->k - k0 < TILE ? p->k - k0 : TILE;
        for (int64_t i = 0; i < p->m; i++) {
            const float *x = vec_tile(a, dtype, i * p->k + k0, size, wide);
            Vec s[SIDE][2] = {{{0}}};
            int64_t j = 0;
            for (; j + 2 * VEC_LANES <= size; j += 2 * VEC_LANES) {
                const Vec x0 = vec_load(x + j), x1 = vec_load(x + j + VEC_LANES);
#pragma GCC unroll 4
                for (int r = 0; r < side; r++) {
                    const int64_t from = (first + r) * p->k + k0 + j;
                    s[r][0] += x0 * load(dtype, b, from);
                    s[r][1] += x1 * load(dtype, b, from + VEC_LANES);
                }
            }
            for (int r = 0; r < side; r++) {
                float sum = vec_lane_sum(s[r][0] + s[r][1]);
                for (int64_t t = j; t < size; t++)
                    sum += x[t] * vec_get(b, dtype, (first + r) * p->k + k0 + t);
                sums[i][r] += sum;
            }
        }
    }
    for (int64_t i = 0; i < p->m; i++)
        for (int r = 0; r < side; r++) vec_put(c, p->out_dtype, i * p->n + first + r, sums[i][r]);
}

VEC_INLINE void make_rows(const DType dtype, const RowProduct *p, const void *a, const void *b,
                          void *c, int64_t first, int64_t n) {
    int64_t j = 0;
    for (; j + SIDE <= n; j += SIDE) make_side(dtype, p, SIDE, a, b, c, first + j);
    for (; j < n; j++) make_side(dtype, p, 1, a, b, c, first + j);
}

static void make_part(const RowProduct *p, const void *a, const void *b, void *c, int64_t first,
                      int64_t n) {
    if (p->dtype == DTYPE_BF16 && p->tb)
        make_rows(DTYPE_BF16, p, a, b, c, first, n);
    else if (p->dtype == DTYPE_BF16)
        make_columns(DTYPE_BF16, p, a, b, c, first, n);
    else if (p->tb)
        make_rows(DTYPE_F32, p, a, b, c, first, n);
    else
        make_columns(DTYPE_F32, p, a, b, c, first, n);
}

/* Columns of C for one thread at a time: equal shares of whole vectors. */
static int64_t choose_width(const RowProduct *p) {
    const int64_t threads = omp_get_max_threads(), unit = 4 * VEC_LANES;
    int64_t width = (p->n + threads - 1) / threads;
    width = (width + unit - 1) / unit * unit;
    return width < WIDE ? width : WIDE;
}

void row_product(const RowProduct *p, const void *a, const void *b, void *c) {
    const int64_t width = choose_width(p), parts = (p->n + width - 1) / width;
    const int64_t size = p->n * p->k;
#pragma omp parallel for schedule(static) if (p->batch * size > PARALLEL_ELEMENTS)
    for (int64_t task = 0; task < p->batch * parts; task++) {
        const int64_t i = task / parts, first = task % parts * width;
        const int64_t n = p->n - first < width ? p->n - first : width;
        const void *own = vec_at(a, p->dtype, i * p->m * p->k);
        void *to = (void *)(uintptr_t)vec_at(c, p->out_dtype, i * p->m * p->n);
        if (p->batch > 1 && is_zero(p->dtype, own, p->m * p->k)) {
            for (int64_t row = 0; row < p->m; row++)
                memset((char *)to + (size_t)(row * p->n + first) * vec_bytes(p->out_dtype), 0,
                       (size_t)n * vec_bytes(p->out_dtype));
            continue;
        }
        make_part(p, own, vec_at(b, p->dtype, i * size), to, first, n);
    }
}
