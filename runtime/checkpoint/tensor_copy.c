#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/checkpoint/tensor_copy.h"

#include "ir/base/diag.h"

#include <math.h>
#include <string.h>

/* A transposition reads columns: so many of them, and so many rows, that all lines of the cache
 * that a tile touches stay there until they are used up. */
enum { TILE_ROWS = 32, TILE_COLUMNS = 256 };

/* `n` elements `stride` apart, side by side. */
static void gather(const void *from, int64_t stride, size_t bytes, int64_t n, void *out) {
    const char *at = from;
    if (stride == 1) {
        memcpy(out, at, (size_t)n * bytes);
    } else if (bytes == sizeof(uint32_t)) {
        for (int64_t i = 0; i < n; i++) memcpy((uint32_t *)out + i, at + i * stride * 4, 4);
    } else {
        for (int64_t i = 0; i < n; i++) memcpy((uint16_t *)out + i, at + i * stride * 2, 2);
    }
}

static bool all_finite_stay(const float *wide, const uint16_t *low, DType dtype, int64_t n) {
    const uint16_t infinity = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
    for (int64_t i = 0; i < n; i++) {
        if ((low[i] & 0x7fff) == infinity && isfinite(wide[i])) return false;
    }
    return true;
}

/* At most TILE_COLUMNS elements of the row, which lie side by side in `to`. */
static bool copy_row(const TensorCopy *c, const void *from, int64_t stride, void *to, int64_t n) {
    uint32_t raw[TILE_COLUMNS];
    float wide[TILE_COLUMNS];
    gather(from, stride, (size_t)dtype_bytes(c->from_dtype), n, raw);
    if (c->from_dtype == c->to_dtype) {
        memcpy(to, raw, (size_t)n * (size_t)dtype_bytes(c->to_dtype));
        return true;
    }
    switch (c->from_dtype) {
    case DTYPE_BF16: vec_bf16_load((const uint16_t *)raw, wide, n); break;
    case DTYPE_F16: vec_f16_load((const uint16_t *)raw, wide, n); break;
    default: memcpy(wide, raw, (size_t)n * sizeof(float)); break;
    }
    switch (c->to_dtype) {
    case DTYPE_BF16: vec_bf16_store(wide, to, n); break;
    case DTYPE_F16: vec_f16_store(wide, to, n); break;
    default: memcpy(to, wide, (size_t)n * sizeof(float)); return true;
    }
    return all_finite_stay(wide, to, c->to_dtype, n);
}

/* Axes in the order of `to`, largest stride first; neighbours that both sides step through alike
 * are one, those of one element none. */
static void simplify(TensorCopy *c) {
    int n = 0;
    for (int i = 0; i < c->rank; i++) {
        int64_t size = c->size[i], from = c->from_stride[i], to = c->to_stride[i];
        if (size == 1) continue;
        int k = n++;
        for (; k > 0 && c->to_stride[k - 1] < to; k--) {
            c->size[k] = c->size[k - 1];
            c->from_stride[k] = c->from_stride[k - 1];
            c->to_stride[k] = c->to_stride[k - 1];
        }
        c->size[k] = size, c->from_stride[k] = from, c->to_stride[k] = to;
    }
    c->rank = n;
    for (int i = n - 2; i >= 0; i--) {
        bool joins = c->to_stride[i] == c->to_stride[i + 1] * c->size[i + 1] &&
                     c->from_stride[i] == c->from_stride[i + 1] * c->size[i + 1];
        if (!joins) continue;
        c->size[i] *= c->size[i + 1];
        c->to_stride[i] = c->to_stride[i + 1];
        c->from_stride[i] = c->from_stride[i + 1];
        for (int k = i + 1; k + 1 < c->rank; k++) {
            c->size[k] = c->size[k + 1];
            c->to_stride[k] = c->to_stride[k + 1];
            c->from_stride[k] = c->from_stride[k + 1];
        }
        c->rank--;
    }
    if (c->rank == MAX_RANK || (c->rank && c->to_stride[c->rank - 1] == 1)) return;
    c->size[c->rank] = c->from_stride[c->rank] = c->to_stride[c->rank] = 1; /* rows of one */
    c->rank++;
}

/* The axis `fast` (or none, -1), along which `from` is dense, and the last one, along which `to`
 * is.
 */
static bool copy_plane(const TensorCopy *c, int fast, const char *from, char *to) {
    const int last = c->rank - 1;
    const int64_t from_bytes = dtype_bytes(c->from_dtype), to_bytes = dtype_bytes(c->to_dtype);
    const int64_t rows = fast < 0 ? 1 : c->size[fast], columns = c->size[last];
    const int64_t from_row = fast < 0 ? 0 : c->from_stride[fast] * from_bytes;
    const int64_t to_row = fast < 0 ? 0 : c->to_stride[fast] * to_bytes;
    bool fine = true;
    for (int64_t r = 0; r < rows; r += TILE_ROWS) {
        const int64_t r_end = r + TILE_ROWS < rows ? r + TILE_ROWS : rows;
        for (int64_t k = 0; k < columns; k += TILE_COLUMNS) {
            const int64_t n = k + TILE_COLUMNS < columns ? TILE_COLUMNS : columns - k;
            for (int64_t i = r; i < r_end; i++) {
                fine &= copy_row(c, from + i * from_row + k * c->from_stride[last] * from_bytes,
                                 c->from_stride[last], to + i * to_row + k * to_bytes, n);
            }
        }
    }
    return fine;
}

bool tensor_copy(const TensorCopy *copy) {
    TensorCopy c = *copy;
    for (int i = 0; i < c.rank; i++) {
        if (c.size[i] == 0) return true;
    }
    simplify(&c);
    const int last = c.rank - 1;
    if (c.to_stride[last] != 1) BUG("a tensor is copied to elements that do not lie side by side");
    int fast = -1;
    for (int i = 0; i < last; i++) {
        if (c.from_stride[last] == 1) break;
        if (fast < 0 || c.from_stride[i] < c.from_stride[fast]) fast = i;
    }
    int64_t at[MAX_RANK] = {0};
    bool fine = true;
    for (;;) {
        int64_t from = 0, to = 0;
        for (int i = 0; i < last; i++) {
            from += at[i] * c.from_stride[i];
            to += at[i] * c.to_stride[i];
        }
        fine &= copy_plane(&c, fast, (const char *)c.from + from * dtype_bytes(c.from_dtype),
                           (char *)c.to + to * dtype_bytes(c.to_dtype));
        int i = last - 1;
        for (; i >= 0; i--) {
            if (i == fast) continue;
            if (++at[i] < c.size[i]) break;
            at[i] = 0;
        }
        if (i < 0) return fine;
    }
}
