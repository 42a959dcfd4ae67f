#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/reduce.h"

#include <math.h>
#include <string.h>

#define PARALLEL_ELEMENTS 16384 /* fewer are done before other threads have woken */
#define COLUMNS           1024  /* outputs summed side by side when the last dimension is kept */
#define COLUMN_TASKS      32    /* their sums are split into parts until there are this many */
#define MAX_CHUNKS        64    /* parts a long sum to a scalar is split into */

/* A sum after merging neighbours: `n_kept` output dimensions (the last, if kept, apart) and
 * `n_reduced` loops of runs that go into each output. */
typedef struct SumShape {
    int n_kept, n_reduced;
    int64_t kept[REDUCE_MAX_DIMS], kept_stride[REDUCE_MAX_DIMS];
    int64_t reduced[REDUCE_MAX_DIMS], reduced_stride[REDUCE_MAX_DIMS];
    bool last_reduced;
    int64_t width;  /* of the last dimension */
    int64_t n_rows; /* product of kept */
    int64_t n_runs; /* product of reduced */
} SumShape;

static SumShape make_sum_shape(int n_dims, const int64_t *dims, const bool *reduced) {
    SumShape s = {.width = 1, .n_rows = 1, .n_runs = 1};
    int64_t size[REDUCE_MAX_DIMS + 1];
    bool flag[REDUCE_MAX_DIMS + 1];
    int n = 0;
    for (int d = 0; d < n_dims; d++) {
        if (dims[d] == 1) continue;
        if (n > 0 && flag[n - 1] == reduced[d]) {
            size[n - 1] *= dims[d];
        } else {
            size[n] = dims[d];
            flag[n++] = reduced[d];
        }
    }
    if (n == 0) return s; /* one element: a kept last dimension of size 1 */
    s.width = size[n - 1];
    s.last_reduced = flag[n - 1];
    int64_t stride = s.width;
    for (int d = n - 2; d >= 0; d--) {
        if (flag[d]) {
            s.reduced[s.n_reduced] = size[d];
            s.reduced_stride[s.n_reduced++] = stride;
            s.n_runs *= size[d];
        } else {
            s.kept[s.n_kept] = size[d];
            s.kept_stride[s.n_kept++] = stride;
            s.n_rows *= size[d];
        }
        stride *= size[d];
    }
    return s;
}

/* Offset of the index `linear` over sizes listed from the fastest. */
static int64_t offset_of(int n, const int64_t *size, const int64_t *stride, int64_t linear) {
    int64_t offset = 0;
    for (int d = 0; d < n; d++) {
        offset += linear % size[d] * stride[d];
        linear /= size[d];
    }
    return offset;
}

/* tile[0..n) += `count` (1 or 4) runs of x from the offsets `at`. Four at a time: the tile is
 * loaded and stored a quarter as often. */
VEC_INLINE void add_runs(const DType dtype, const void *x, const int64_t at[4], int count,
                         int64_t n, float *tile) {
    if (count == 4) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            tile[j] += (vec_get(x, dtype, at[0] + j) + vec_get(x, dtype, at[1] + j)) +
                       (vec_get(x, dtype, at[2] + j) + vec_get(x, dtype, at[3] + j));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) tile[j] += vec_get(x, dtype, at[0] + j);
    }
}

/* The machine's instructions widen f16 faster than those loops would. */
static void add_f16_runs(const uint16_t *x, const int64_t at[4], int count, int64_t n,
                         float *tile) {
    float wide[4 * COLUMNS];
    const int64_t runs[4] = {0, COLUMNS, 2 * COLUMNS, 3 * COLUMNS};
    for (int u = 0; u < count; u++) vec_f16_load(x + at[u], wide + runs[u], n);
    add_runs(DTYPE_F32, wide, runs, count, n, tile);
}

/* Output columns of one output row, `n` from `row` on, over the runs [first, end). */
VEC_INLINE void sum_columns_of(const DType dtype, const SumShape *s, const void *x, int64_t row,
                               int64_t first, int64_t end, int64_t n, double *sums) {
    float tile[COLUMNS];
    for (int64_t j = 0; j < n; j++) sums[j] = 0;
    while (first < end) {
        const int64_t stop = end - first < 64 ? end : first + 64;
        for (int64_t j = 0; j < n; j++) tile[j] = 0;
        while (first < stop) {
            int64_t at[4] = {row, row, row, row};
            const int count = stop - first < 4 ? 1 : 4;
            for (int u = 0; u < count; u++)
                at[u] += offset_of(s->n_reduced, s->reduced, s->reduced_stride, first + u);
            if (dtype == DTYPE_F16)
                add_f16_runs(x, at, count, n, tile);
            else
                add_runs(dtype, x, at, count, n, tile);
            first += count;
        }
        for (int64_t j = 0; j < n; j++) sums[j] += (double)tile[j];
    }
}

static void sum_columns(const SumShape *s, const void *x, DType dtype, int64_t row, int64_t first,
                        int64_t end, int64_t n, double *sums) {
    if (dtype == DTYPE_BF16)
        sum_columns_of(DTYPE_BF16, s, x, row, first, end, n, sums);
    else if (dtype == DTYPE_F16)
        sum_columns_of(DTYPE_F16, s, x, row, first, end, n, sums);
    else
        sum_columns_of(DTYPE_F32, s, x, row, first, end, n, sums);
}

/* A part of one output's sum: the pieces [first, end), each VEC_SUM_TILE long or a run's rest. */
static double sum_pieces(const SumShape *s, const void *x, DType dtype, int64_t row,
                         int64_t per_run, int64_t first, int64_t end) {
    float wide[VEC_SUM_TILE];
    double sum = 0;
    for (; first < end; first++) {
        const int64_t at = first % per_run * VEC_SUM_TILE;
        const int64_t n = s->width - at < VEC_SUM_TILE ? s->width - at : VEC_SUM_TILE;
        const int64_t from =
            row + offset_of(s->n_reduced, s->reduced, s->reduced_stride, first / per_run) + at;
        sum += (double)vec_sum(vec_tile(x, dtype, from, n, wide), n);
    }
    return sum;
}

/* Where sums go: f32, to which they may be added, bf16 or f16. */
typedef struct SumOut {
    void *at;
    DType dtype;
    bool accumulate;
} SumOut;

/* n <= COLUMNS of them. */
static void put_sums(const SumOut *out, int64_t first, int64_t n, const double *sums) {
    float tile[COLUMNS], *to = vec_out_tile(out->at, out->dtype, first, tile);
    if (out->accumulate)
        for (int64_t j = 0; j < n; j++) to[j] = (float)((double)to[j] + sums[j]);
    else
        for (int64_t j = 0; j < n; j++) to[j] = (float)sums[j];
    vec_close_tile(out->at, out->dtype, first, n, to);
}

static void put_sum(const SumOut *out, int64_t i, double sum) {
    if (out->accumulate) sum += (double)((const float *)out->at)[i];
    vec_put(out->at, out->dtype, i, (float)sum);
}

/* Few outputs: each sum in parts, up to `most` in all, which hold at least `least` each. */
static int64_t choose_chunks(int64_t most, int64_t n_tasks, int64_t length, int64_t least) {
    int64_t chunks = most / n_tasks;
    if (chunks > length / least) chunks = length / least;
    return chunks < 1 ? 1 : chunks;
}

static void reduce_to_columns(const SumShape *s, const void *x, DType dtype, const SumOut *out) {
    float partial[COLUMN_TASKS][COLUMNS];
    const int64_t tiles = (s->width + COLUMNS - 1) / COLUMNS, n_tasks = s->n_rows * tiles;
    const int64_t chunks = choose_chunks(COLUMN_TASKS, n_tasks, s->n_runs, 32);
#pragma omp parallel for schedule(static) if (s->n_rows * s->n_runs * s->width > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < n_tasks * chunks; t++) {
        const int64_t task = t / chunks, chunk = t % chunks, column = task % tiles * COLUMNS;
        const int64_t n = s->width - column < COLUMNS ? s->width - column : COLUMNS;
        const int64_t row = offset_of(s->n_kept, s->kept, s->kept_stride, task / tiles) + column;
        double sums[COLUMNS];
        sum_columns(s, x, dtype, row, s->n_runs * chunk / chunks, s->n_runs * (chunk + 1) / chunks,
                    n, sums);
        const int64_t to = task / tiles * s->width + column;
        for (int64_t j = 0; j < n && chunks > 1; j++) partial[t][j] = (float)sums[j];
        if (chunks == 1) put_sums(out, to, n, sums);
    }
    if (chunks == 1) return;
    for (int64_t task = 0; task < n_tasks; task++) {
        const int64_t column = task % tiles * COLUMNS;
        const int64_t n = s->width - column < COLUMNS ? s->width - column : COLUMNS;
        double sums[COLUMNS] = {0};
        for (int64_t c = 0; c < chunks; c++)
            for (int64_t j = 0; j < n; j++) sums[j] += (double)partial[task * chunks + c][j];
        put_sums(out, task / tiles * s->width + column, n, sums);
    }
}

static void reduce_to_scalars(const SumShape *s, const void *x, DType dtype, const SumOut *out) {
    double partial[MAX_CHUNKS];
    const int64_t per_run = (s->width + VEC_SUM_TILE - 1) / VEC_SUM_TILE;
    const int64_t pieces = s->n_runs * per_run;
    const int64_t chunks = choose_chunks(MAX_CHUNKS, s->n_rows, pieces, 4);
#pragma omp parallel for schedule(static) if (s->n_rows * s->n_runs * s->width > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < s->n_rows * chunks; t++) {
        const int64_t chunk = t % chunks;
        const int64_t row = offset_of(s->n_kept, s->kept, s->kept_stride, t / chunks);
        const double sum = sum_pieces(s, x, dtype, row, per_run, pieces * chunk / chunks,
                                      pieces * (chunk + 1) / chunks);
        if (chunks > 1)
            partial[t] = sum;
        else
            put_sum(out, t, sum);
    }
    if (chunks == 1) return;
    for (int64_t r = 0; r < s->n_rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < chunks; c++) sum += partial[r * chunks + c];
        put_sum(out, r, sum);
    }
}

void reduce_sum(int n_dims, const int64_t *dims, const bool *reduced, const void *x, DType x_dtype,
                bool accumulate, void *out, DType out_dtype) {
    int64_t n_out = 1, n_summed = 1;
    for (int d = 0; d < n_dims; d++) *(reduced[d] ? &n_summed : &n_out) *= dims[d];
    if (n_out == 0) return;
    if (n_summed == 0) {
        if (!accumulate) memset(out, 0, (size_t)n_out * vec_bytes(out_dtype));
        return;
    }
    const SumShape s = make_sum_shape(n_dims, dims, reduced);
    const SumOut to = {out, out_dtype, accumulate};
    if (s.last_reduced)
        reduce_to_scalars(&s, x, x_dtype, &to);
    else
        reduce_to_columns(&s, x, x_dtype, &to);
}

void reduce_sum_squares(const void *x, DType dtype, int64_t n, float *out) {
    double partial[MAX_CHUNKS];
    const int64_t tiles = (n + VEC_SUM_TILE - 1) / VEC_SUM_TILE;
    const int64_t chunks = choose_chunks(MAX_CHUNKS, 1, tiles, 4);
#pragma omp parallel for schedule(static) if (n > PARALLEL_ELEMENTS)
    for (int64_t c = 0; c < chunks; c++) {
        double sum = 0;
        for (int64_t t = tiles * c / chunks; t < tiles * (c + 1) / chunks; t++) {
            const int64_t at = t * VEC_SUM_TILE;
            const int64_t count = n - at < VEC_SUM_TILE ? n - at : VEC_SUM_TILE;
            float wide[VEC_SUM_TILE];
            sum += (double)vec_sum_squares(vec_tile(x, dtype, at, count, wide), 0, count);
        }
        partial[c] = sum;
    }
    double sum = 0;
    for (int64_t c = 0; c < chunks; c++) sum += partial[c];
    *out = (float)sum;
}

/* Infinities and NaN have all exponent bits set; bf16's are f32's. */
VEC_INLINE bool tile_is_finite(const DType dtype, const void *x, int64_t first, int64_t end) {
    uint32_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = first; i < end; i++)
        bad |= (vec_bits(vec_get(x, dtype, i)) & 0x7f800000u) == 0x7f800000u;
    return !bad;
}

static bool f16_tile_is_finite(const uint16_t *x, int64_t first, int64_t end) {
    uint16_t bad = 0;
#pragma omp simd reduction(| : bad)
    for (int64_t i = first; i < end; i++) bad |= (x[i] & 0x7c00) == 0x7c00;
    return !bad;
}

static bool is_finite_between(DType dtype, const void *x, int64_t first, int64_t end) {
    if (dtype == DTYPE_BF16) return tile_is_finite(DTYPE_BF16, x, first, end);
    if (dtype == DTYPE_F16) return f16_tile_is_finite(x, first, end);
    return tile_is_finite(DTYPE_F32, x, first, end);
}

int64_t reduce_first_nonfinite(const void *x, DType dtype, int64_t n) {
    int64_t first = n;
#pragma omp parallel for schedule(static) reduction(min : first) if (n > PARALLEL_ELEMENTS)
    for (int64_t tile = 0; tile < n; tile += 4096) {
        if (tile > first) continue; /* this thread's earlier tile has one already */
        const int64_t end = n - tile < 4096 ? n : tile + 4096;
        if (is_finite_between(dtype, x, tile, end)) continue;
        int64_t at = tile;
        while (isfinite(vec_get(x, dtype, at))) at++;
        first = at < first ? at : first;
    }
    return first < n ? first : -1;
}

/* A permutation after merging: out's dimensions, outermost first, with x's strides. */
typedef struct PermuteShape {
    int n_dims;
    int64_t dims[REDUCE_MAX_DIMS], stride[REDUCE_MAX_DIMS];
} PermuteShape;

static PermuteShape make_permute_shape(int n_dims, const int64_t *dims, const int *perm) {
    PermuteShape s = {0};
    int64_t x_stride[REDUCE_MAX_DIMS] = {0}, stride = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        x_stride[d] = stride;
        stride *= dims[d];
    }
    for (int d = 0; d < n_dims; d++) {
        const int64_t size = dims[perm[d]], step = x_stride[perm[d]];
        if (size == 1) continue;
        if (s.n_dims > 0 && s.stride[s.n_dims - 1] == step * size) {
            s.dims[s.n_dims - 1] *= size;
            s.stride[s.n_dims - 1] = step;
        } else {
            s.dims[s.n_dims] = size;
            s.stride[s.n_dims++] = step;
        }
    }
    if (s.n_dims == 0) s = (PermuteShape){.n_dims = 1, .dims = {1}, .stride = {1}};
    return s;
}

#define SQUARE 32 /* side of a transposed tile: its rows in x and out are two cache lines each */

/* out[r][c] = x[r + c stride_c] over [rows, columns]: r runs along x's contiguous dimension. */
#define TRANSPOSE_SQUARE(name, Element)                                                            \
    static void name(const Element *x, int64_t stride_c, Element *out, int64_t out_stride,         \
                     int64_t rows, int64_t columns) {                                              \
        Element tile[SQUARE][SQUARE + 1]; /* + 1: columns fall in different cache sets */          \
        for (int64_t c = 0; c < columns; c++)                                                      \
            for (int64_t r = 0; r < rows; r++) tile[r][c] = x[c * stride_c + r];                   \
        for (int64_t r = 0; r < rows; r++)                                                         \
            memcpy(out + r * out_stride, tile[r], (size_t)columns * sizeof *out);                  \
    }
TRANSPOSE_SQUARE(transpose_square, float)
TRANSPOSE_SQUARE(transpose_low_square, uint16_t)

/* Out's last dimension strides in x, and x's contiguous dimension is `along` in out: squares of
 * those two, for every index of the other dimensions. */
static void permute_squares(const PermuteShape *s, int along, int64_t total, DType dtype,
                            const void *x, void *out) {
    const int last = s->n_dims - 1;
    int64_t out_stride[REDUCE_MAX_DIMS], step = 1;
    for (int d = last; d >= 0; d--) {
        out_stride[d] = step;
        step *= s->dims[d];
    }
    const int64_t rows = s->dims[along], columns = s->dims[last];
    const int64_t row_tiles = (rows + SQUARE - 1) / SQUARE;
    const int64_t column_tiles = (columns + SQUARE - 1) / SQUARE;
    const int64_t n_tasks = total / (rows * columns) * row_tiles * column_tiles;
#pragma omp parallel for schedule(static) if (total > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < n_tasks; t++) {
        const int64_t c = t % column_tiles * SQUARE;
        const int64_t r = t / column_tiles % row_tiles * SQUARE;
        int64_t rest = t / column_tiles / row_tiles;
        int64_t from = r + c * s->stride[last], to = r * out_stride[along] + c;
        for (int d = last - 1; d >= 0; d--) {
            if (d == along) continue;
            from += rest % s->dims[d] * s->stride[d];
            to += rest % s->dims[d] * out_stride[d];
            rest /= s->dims[d];
        }
        const int64_t n_rows = rows - r < SQUARE ? rows - r : SQUARE;
        const int64_t n_columns = columns - c < SQUARE ? columns - c : SQUARE;
        if (dtype_is_low(dtype))
            transpose_low_square((const uint16_t *)x + from, s->stride[last], (uint16_t *)out + to,
                                 out_stride[along], n_rows, n_columns);
        else
            transpose_square((const float *)x + from, s->stride[last], (float *)out + to,
                             out_stride[along], n_rows, n_columns);
    }
}

/* Out's last dimension is contiguous in x: rows are copied. */
static void permute_rows(const PermuteShape *s, int64_t total, DType dtype, const void *x,
                         void *out) {
    const int last = s->n_dims - 1;
    const int64_t width = s->dims[last], piece = width < 16384 ? width : 16384;
    const int64_t per_row = (width + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (total > PARALLEL_ELEMENTS)
    for (int64_t t = 0; t < total / width * per_row; t++) {
        const int64_t row = t / per_row, at = t % per_row * piece;
        int64_t rest = row, from = at;
        for (int d = last - 1; d >= 0; d--) {
            from += rest % s->dims[d] * s->stride[d];
            rest /= s->dims[d];
        }
        const int64_t n = width - at < piece ? width - at : piece;
        memcpy((char *)out + (size_t)(row * width + at) * vec_bytes(dtype), vec_at(x, dtype, from),
               (size_t)n * vec_bytes(dtype));
    }
}

void reduce_permute(int n_dims, const int64_t *dims, const int *perm, DType dtype, const void *x,
                    void *out) {
    int64_t total = 1;
    for (int d = 0; d < n_dims; d++) total *= dims[d];
    if (total == 0) return;
    const PermuteShape s = make_permute_shape(n_dims, dims, perm);
    int along = s.n_dims - 1;
    while (s.stride[along] != 1) along--;
    if (along == s.n_dims - 1)
        permute_rows(&s, total, dtype, x, out);
    else
        permute_squares(&s, along, total, dtype, x, out);
}

void reduce_largest(int64_t n_rows, int64_t width, const float *x, bool accumulate, float *out) {
    if (n_rows == 0 || width == 0) return;
    if (!accumulate) memcpy(out, x, (size_t)width * sizeof *out);
    for (int64_t i = accumulate ? 0 : 1; i < n_rows; i++) {
        const float *row = x + i * width;
#pragma omp simd
        for (int64_t j = 0; j < width; j++) {
            const bool kept = row[j] <= out[j] || out[j] != out[j];
            out[j] = kept ? out[j] : row[j];
        }
    }
}
