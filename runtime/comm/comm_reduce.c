#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/comm/comm_reduce.h"

#include <math.h>
#include <string.h>

enum { BLOCK_FLOATS = 2048 }; /* reduced at a time: 8 KiB of sums stay in the first-level cache */

static void add_to(float *restrict sums, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) sums[i] += x[i];
}

static void max_to(float *restrict tops, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) tops[i] = x[i] > tops[i] || x[i] != x[i] ? x[i] : tops[i];
}

/* log(sum_j exp(x_j)) = m + log(sum_j exp(x_j - m)), m the largest; in f64, since it serves rows,
 * not whole tensors. */
static float join_lse(DType dtype, const void *const *in, int n, size_t at) {
    float top = vec_get(in[0], dtype, (int64_t)at);
    for (int j = 1; j < n; j++) {
        float x = vec_get(in[j], dtype, (int64_t)at);
        top = x > top || x != x ? x : top;
    }
    if (!isfinite(top)) return top; /* all empty, infinite, or not a number */
    double sum = 0;
    for (int j = 0; j < n; j++) {
        sum += exp((double)vec_get(in[j], dtype, (int64_t)at) - (double)top);
    }
    return (float)((double)top + log(sum)); // cppcheck-suppress invalidFunctionArg ; sum >= 1
}

/* Goes through a block of its own because out may be one of the inputs, and to be rounded once. */
void comm_reduce(ReduceKind kind, DType dtype, const void *const *in, int n, size_t count,
                 void *out) {
    float block[BLOCK_FLOATS], wide[BLOCK_FLOATS];
    for (size_t at = 0; at < count; at += BLOCK_FLOATS) {
        const int64_t first = (int64_t)at;
        const size_t length = count - at < BLOCK_FLOATS ? count - at : BLOCK_FLOATS;
        if (kind == REDUCE_LSE) {
            for (size_t i = 0; i < length; i++) block[i] = join_lse(dtype, in, n, at + i);
        } else {
            memcpy(block, vec_tile(in[0], dtype, first, (int64_t)length, wide),
                   length * sizeof(float));
            for (int j = 1; j < n; j++) {
                const float *x = vec_tile(in[j], dtype, first, (int64_t)length, wide);
                if (kind == REDUCE_SUM)
                    add_to(block, x, length);
                else
                    max_to(block, x, length);
            }
        }
        if (dtype_is_low(dtype))
            vec_low_store(dtype, block, (uint16_t *)out + at, (int64_t)length);
        else
            memcpy((float *)out + at, block, length * sizeof(float));
    }
}
