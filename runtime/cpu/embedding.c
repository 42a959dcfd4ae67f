#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/embedding.h"

#include <string.h>

#define SLICE 128 /* columns that one thread sums for all tokens: 8 cache lines of a row */

void embedding_forward(DType dtype, int64_t n, int64_t model, int64_t vocab_local,
                       int64_t vocab_offset, const int32_t *tokens, const void *table, void *out) {
    const size_t row_bytes = (size_t)model * vec_bytes(dtype);
#pragma omp parallel for schedule(static) if (n * model > 16384)
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = tokens[i] - vocab_offset;
        if (row >= 0 && row < vocab_local)
            memcpy((char *)out + (size_t)i * row_bytes,
                   (const char *)table + (size_t)row * row_bytes, row_bytes);
        else
            memset((char *)out + (size_t)i * row_bytes, 0, row_bytes);
    }
}

/* One thread's columns of dtable: `width` of `model` from `first` on. */
VEC_INLINE void add_rows(const DType dtype, int64_t n, int64_t model, int64_t vocab_local,
                         int64_t vocab_offset, const int32_t *tokens, const void *dy, int64_t first,
                         int64_t width, float *dtable) {
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = tokens[i] - vocab_offset;
        if (row < 0 || row >= vocab_local) continue;
        float *to = dtable + row * model + first;
        float wide[SLICE];
        const float *from = vec_tile(dy, dtype, i * model + first, width, wide);
#pragma omp simd
        for (int64_t j = 0; j < width; j++) to[j] += from[j];
    }
}

/* Threads share the columns, not the tokens: rows that several tokens hit need no locks, and each
 * sum runs in token order however many threads there are. */
void embedding_backward(DType dtype, int64_t n, int64_t model, int64_t vocab_local,
                        int64_t vocab_offset, const int32_t *tokens, const void *dy,
                        bool accumulate, float *dtable) {
    if (!accumulate) {
#pragma omp parallel for schedule(static)
        for (int64_t row = 0; row < vocab_local; row++)
            memset(dtable + row * model, 0, (size_t)model * sizeof *dtable);
    }
#pragma omp parallel for schedule(static) if (n * model > 16384)
    for (int64_t first = 0; first < model; first += SLICE) {
        const int64_t width = model - first < SLICE ? model - first : SLICE;
        if (dtype == DTYPE_BF16)
            add_rows(DTYPE_BF16, n, model, vocab_local, vocab_offset, tokens, dy, first, width,
                     dtable);
        else if (dtype == DTYPE_F16)
            add_rows(DTYPE_F16, n, model, vocab_local, vocab_offset, tokens, dy, first, width,
                     dtable);
        else
            add_rows(DTYPE_F32, n, model, vocab_local, vocab_offset, tokens, dy, first, width,
                     dtable);
    }
}
