#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/rotary.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define PAIRS 256 /* pairs in a pass over the data: real heads need one pass */

typedef struct RotaryTable {
    float sine[PAIRS], cosine[PAIRS];
} RotaryTable;

/* The fraction of a turn is taken in f64, where position * frequency is exact enough. */
static void fill_table(int n_pairs, const double *turns_per_position, int64_t position,
                       int direction, double scale, RotaryTable *table) {
    float turns[PAIRS];
    for (int i = 0; i < n_pairs; i++) {
        const double t = (double)position * turns_per_position[i];
        turns[i] = (float)(t - floor(t));
    }
    const float by = scale > 0 ? (float)scale : 1.0f, sign = direction < 0 ? -by : by;
    for (int i = 0; i < n_pairs; i++) {
        vmath_sincos_turns(turns[i], &table->sine[i], &table->cosine[i]);
        table->sine[i] *= sign;
        table->cosine[i] *= by;
    }
}

VEC_INLINE void rotate_row(const DType dtype, int n_pairs, int64_t half, const RotaryTable *table,
                           const void *x, void *y) {
#pragma omp simd
    for (int i = 0; i < n_pairs; i++) {
        const float a = vec_get(x, dtype, i), b = vec_get(x, dtype, i + half);
        vec_put(y, dtype, i, a * table->cosine[i] - b * table->sine[i]);
        vec_put(y, dtype, i + half, b * table->cosine[i] + a * table->sine[i]);
    }
}

/* The machine's instructions widen and round f16 faster than that loop would. */
static void rotate_f16_row(int n_pairs, int64_t half, const RotaryTable *table, const uint16_t *x,
                           uint16_t *y) {
    float wide[2 * PAIRS];
    vec_f16_load(x, wide, n_pairs);
    vec_f16_load(x + half, wide + n_pairs, n_pairs);
    rotate_row(DTYPE_F32, n_pairs, n_pairs, table, wide, wide);
    vec_f16_store(wide, y, n_pairs);
    vec_f16_store(wide + n_pairs, y + half, n_pairs);
}

static void fill_turns(int64_t first, int n_pairs, int64_t head, double base,
                       const RotaryScaling *scaling, double *turns_per_position) {
    for (int i = 0; i < n_pairs; i++) {
        double frequency = pow(base, -2.0 * (double)(first + i) / (double)head);
        if (scaling) frequency = rotary_stretch(scaling, first + i, frequency);
        turns_per_position[i] = frequency / 6.283185307179586477;
    }
}

static void rotate(DType dtype, int n_pairs, int64_t half, const RotaryTable *table, const void *x,
                   void *y) {
    if (dtype == DTYPE_BF16)
        rotate_row(DTYPE_BF16, n_pairs, half, table, x, y);
    else if (dtype == DTYPE_F16)
        rotate_f16_row(n_pairs, half, table, x, y);
    else
        rotate_row(DTYPE_F32, n_pairs, half, table, x, y);
}

/* What does not turn, of rows of `stride` numbers. */
static void copy_rest(DType dtype, int64_t rows, int64_t head, int64_t stride, const void *x,
                      void *y) {
    if (stride == head || x == y) return;
    const size_t bytes = (size_t)((stride - head) * dtype_bytes(dtype));
#pragma omp parallel for schedule(static) if (rows * (stride - head) > 16384)
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * stride + head;
        memcpy((void *)(uintptr_t)vec_at(y, dtype, at), vec_at(x, dtype, at), bytes);
    }
}

void rotary_apply_at(DType dtype, int64_t batch, int64_t seq, int64_t inner, int64_t head,
                     int64_t stride, const int32_t *places, double base,
                     const RotaryScaling *scaling, int direction, const void *x, void *y) {
    const int64_t half = head / 2;
    const double scale = scaling ? scaling->scale : 1;
    copy_rest(dtype, batch * seq * inner, head, stride, x, y);
    for (int64_t first = 0; first < half; first += PAIRS) {
        const int n_pairs = half - first < PAIRS ? (int)(half - first) : PAIRS;
        double turns_per_position[PAIRS];
        fill_turns(first, n_pairs, head, base, scaling, turns_per_position);
#pragma omp parallel for schedule(static) if (batch * seq * inner * head > 16384)
        for (int64_t row = 0; row < batch * seq; row++) {
            RotaryTable table;
            fill_table(n_pairs, turns_per_position, places[row], direction, scale, &table);
            for (int64_t j = 0; j < inner; j++) {
                const int64_t at = (row * inner + j) * stride + first;
                rotate(dtype, n_pairs, half, &table, vec_at(x, dtype, at),
                       (void *)(uintptr_t)vec_at(y, dtype, at));
            }
        }
    }
}

void rotary_apply(DType dtype, int64_t batch, int64_t seq, int64_t inner, int64_t head,
                  int64_t stride, const DimSpan *place, double base, const RotaryScaling *scaling,
                  int direction, const void *x, void *y) {
    const int64_t half = head / 2;
    const double scale = scaling ? scaling->scale : 1;
    copy_rest(dtype, batch * seq * inner, head, stride, x, y);
    for (int64_t first = 0; first < half; first += PAIRS) {
        const int n_pairs = half - first < PAIRS ? (int)(half - first) : PAIRS;
        double turns_per_position[PAIRS];
        fill_turns(first, n_pairs, head, base, scaling, turns_per_position);
#pragma omp parallel for schedule(static) if (batch * seq * inner * head > 16384)
        for (int64_t s = 0; s < seq; s++) {
            RotaryTable table;
            fill_table(n_pairs, turns_per_position, span_at(place, s), direction, scale, &table);
            for (int64_t b = 0; b < batch; b++)
                for (int64_t j = 0; j < inner; j++) {
                    const int64_t at = ((b * seq + s) * inner + j) * stride + first;
                    rotate(dtype, n_pairs, half, &table, vec_at(x, dtype, at),
                           (void *)(uintptr_t)vec_at(y, dtype, at));
                }
        }
    }
}
