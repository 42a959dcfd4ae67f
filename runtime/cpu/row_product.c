/* B's rows are read in the order in which they lie in memory, a few side by side; everything else
 * stays in the caches of a core. The rows of A take their turns at what has just been read. */
#include "runtime/cpu/vec_wide.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/row_product.h"

#include <omp.h>
#include <string.h>

enum {
    ROWS = ROW_PRODUCT_MOST,
    DEEP = 8,    /* rows of B [k, n] read side by side */
    SIDE = 4,    /* of B [n, k] */
    WIDE = 4096, /* columns of B [k, n] whose sums are made together, at most; 1,024: 0.75 of it */
    PART = 1024, /* and of B [n, k] */
    TILE = 2048, /* elements of a row of A at once */
    PARALLEL_ELEMENTS = 1 << 15
};

static bool is_zero(DType dtype, const void *a, int64_t n) {
    const unsigned char *bytes = a;
    const size_t size = (size_t)n * vec_bytes(dtype);
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Rows of A as f32, and zeros up to `height`, k by k: a[k][i]. */
static void spread_rows(const RowProduct *p, const void *a, int64_t k0, int64_t size, int height,
                        float *out) {
    float wide[TILE];
    for (int64_t i = 0; i < height; i++) {
        const float *row = i < p->m ? vec_tile(a, p->dtype, i * p->k + k0, size, wide) : NULL;
        for (int64_t t = 0; t < size; t++) out[t * height + i] = row ? row[t] : 0;
    }
}

/* Elements [i, i + n) of B and zeros: for what is left of a row, since a compiler may round a sum
 * of single numbers otherwise than one of vectors (with fused multiply-adds, or without). */
VEC_INLINE Vec load_rest(const DType dtype, const void *b, int64_t i, int64_t n) {
    float rest[VEC_LANES] = {0};
    for (int64_t t = 0; t < n; t++) rest[t] = vec_get(b, dtype, i + t);
    return vec_load(rest);
}

/* sums[i] += rows [0, depth) of `a` times those of B, of whose first `at` is an element, in as many
 * columns as a vector has, or (rest > 0) in fewer. The rows that come next are asked for in time,
 * into the second cache: several rows in one page are no stream that the processor sees (768
 * columns of bf16: 12 for 8 GB/s a core). */
VEC_INLINE void add_vector(const DType dtype, const int height, const int depth,
                           const RowProduct *p, const float *a, const void *b, int64_t at,
                           int64_t rest, float *sums) {
    Vec s[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < height; i++) s[i] = vec_load(sums + i * WIDE);
#pragma GCC unroll 8
    for (int r = 0; r < depth; r++) {
        const int64_t here = at + r * p->n;
        const Vec row = rest ? load_rest(dtype, b, here, rest) : vec_load_wide(dtype, b, here);
        __builtin_prefetch(vec_at(b, dtype, here + depth * p->n), 0, 2);
#pragma GCC unroll 8
        for (int i = 0; i < height; i++) s[i] += a[r * height + i] * row;
    }
#pragma GCC unroll 8
    for (int i = 0; i < height; i++) vec_store(sums + i * WIDE, s[i]);
}

/* sums[i][j] of columns [first, first + n) += rows [0, depth) of `a` times those of B from k0 on.
 */
VEC_INLINE void add_deep(const DType dtype, const int height, const int depth, const RowProduct *p,
                         const float *a, const void *b, int64_t k0, int64_t first, int64_t n,
                         float (*sums)[WIDE]) {
    const int64_t at = k0 * p->n + first;
    int64_t j = 0;
    for (; j + VEC_LANES <= n; j += VEC_LANES)
        add_vector(dtype, height, depth, p, a, b, at + j, 0, sums[0] + j);
    if (j < n) add_vector(dtype, height, depth, p, a, b, at + j, n - j, sums[0] + j);
}

/* Columns [first, first + n) of C, of B [k, n]. */
VEC_INLINE void make_columns(const DType dtype, const int height, const RowProduct *p,
                             const void *a, const void *b, void *c, int64_t first, int64_t n) {
    float sums[ROWS][WIDE] __attribute__((aligned(64))), spread[TILE * ROWS];
    const int64_t whole = (n + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    for (int i = 0; i < height; i++) memset(sums[i], 0, (size_t)whole * sizeof(float));
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE) {
        const int64_t size = p->k - k0 < TILE ? p->k - k0 : TILE;
        int64_t at = 0;
        spread_rows(p, a, k0, size, height, spread);
        for (; at + DEEP <= size; at += DEEP)
            add_deep(dtype, height, DEEP, p, spread + at * height, b, k0 + at, first, n, sums);
        for (; at < size; at++)
            add_deep(dtype, height, 1, p, spread + at * height, b, k0 + at, first, n, sums);
    }
    for (int64_t i = 0; i < p->m; i++) {
        float *to = vec_out_tile(c, p->out_dtype, i * p->n + first, sums[i]);
        if (to != sums[i]) memcpy(to, sums[i], (size_t)n * sizeof(float));
        vec_close_tile(c, p->out_dtype, i * p->n + first, n, sums[i]);
    }
}

/* One function for all numbers of rows, so that it rounds alike. */
static __attribute__((noinline)) float sum_rest(const float *a, const void *b, DType dtype,
                                                int64_t at, int64_t n) {
    float sum = 0;
    for (int64_t t = 0; t < n; t++) sum += a[t] * vec_get(b, dtype, at + t);
    return sum;
}

/* sums[r][i] += row i of `a`, [height][TILE], with rows first + r of B [n, k] from k0 on. What
 * comes next is asked for in time: the processor alone is slower (7.8 for 10.4 GB/s a core in
 * bf16). */
VEC_INLINE void add_side(const DType dtype, const int height, const int side, const RowProduct *p,
                         const float (*a)[TILE], const void *b, int64_t k0, int64_t size,
                         int64_t first, float (*sums)[ROWS]) {
    const int64_t at = first * p->k + k0, ahead = side * p->k;
    Vec s[ROWS][SIDE] = {{{0}}};
    int64_t j = 0;
    for (; j + VEC_LANES <= size; j += VEC_LANES) {
        Vec rows[SIDE];
#pragma GCC unroll 4
        for (int r = 0; r < side; r++) {
            rows[r] = vec_load_wide(dtype, b, at + r * p->k + j);
            __builtin_prefetch(vec_at(b, dtype, at + ahead + r * p->k + j));
        }
#pragma GCC unroll 8
        for (int i = 0; i < height; i++) {
            const Vec x = vec_load(a[i] + j);
#pragma GCC unroll 4
            for (int r = 0; r < side; r++) s[i][r] += x * rows[r];
        }
    }
    for (int i = 0; i < height; i++)
        for (int r = 0; r < side; r++) sums[r][i] += vec_lane_sum(s[i][r]);
    for (int i = 0; j < size && i < height; i++)
        for (int r = 0; r < side; r++)
            sums[r][i] += sum_rest(a[i] + j, b, dtype, at + r * p->k + j, size - j);
}

/* Columns [first, first + n) of C, of B [n, k]. */
VEC_INLINE void make_rows(const DType dtype, const int height, const RowProduct *p, const void *a,
                          const void *b, void *c, int64_t first, int64_t n) {
    const int side = height > 4 ? SIDE / 2 : SIDE; /* so that all sums stay in registers */
    float wide[ROWS][TILE], sums[PART][ROWS];
    memset(sums, 0, (size_t)n * sizeof sums[0]);
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE) {
        const int64_t size = p->k - k0 < TILE ? p->k - k0 : TILE;
        for (int i = 0; i < height; i++) {
            const float *x = i < p->m ? vec_tile(a, dtype, i * p->k + k0, size, wide[i]) : NULL;
            if (!x) memset(wide[i], 0, (size_t)size * sizeof(float));
            if (x && x != wide[i]) memcpy(wide[i], x, (size_t)size * sizeof(float));
        }
        int64_t j = 0;
        for (; j + side <= n; j += side)
            add_side(dtype, height, side, p, wide, b, k0, size, first + j, sums + j);
        for (; j < n; j++) add_side(dtype, height, 1, p, wide, b, k0, size, first + j, sums + j);
    }
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < n; j++) vec_put(c, p->out_dtype, i * p->n + first + j, sums[j][i]);
}

VEC_INLINE void make_dtype(const DType dtype, const int height, const RowProduct *p, const void *a,
                           const void *b, void *c, int64_t first, int64_t n) {
    if (p->tb)
        make_rows(dtype, height, p, a, b, c, first, n);
    else
        make_columns(dtype, height, p, a, b, c, first, n);
}

/* For a number of rows that the compiler knows: those of A, rounded up. */
VEC_INLINE void make_height(const int height, const RowProduct *p, const void *a, const void *b,
                            void *c, int64_t first, int64_t n) {
    if (p->dtype == DTYPE_BF16)
        make_dtype(DTYPE_BF16, height, p, a, b, c, first, n);
    else if (p->dtype == DTYPE_F16)
        make_dtype(DTYPE_F16, height, p, a, b, c, first, n);
    else
        make_dtype(DTYPE_F32, height, p, a, b, c, first, n);
}

static void make_part(const RowProduct *p, const void *a, const void *b, void *c, int64_t first,
                      int64_t n) {
    if (p->m == 1)
        make_height(1, p, a, b, c, first, n);
    else if (p->m == 2)
        make_height(2, p, a, b, c, first, n);
    else if (p->m <= 4)
        make_height(4, p, a, b, c, first, n);
    else
        make_height(8, p, a, b, c, first, n);
}

/* Columns of C for one thread at a time: equal shares of whole vectors. */
static int64_t choose_width(const RowProduct *p) {
    const int64_t threads = omp_get_max_threads(), unit = 4 * VEC_LANES;
    int64_t width = (p->n + threads - 1) / threads;
    const int64_t most = p->tb ? PART : WIDE;
    width = (width + unit - 1) / unit * unit;
    return width < most ? width : most;
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
