#include "runtime/checkpoint/tensor_values.h"

#include "ir/base/memory.h"
#include "runtime/cpu/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8192 };

static void add(TensorValues *sum, const TensorValues *more) {
    sum->squares += more->squares;
    if (more->largest > sum->largest) sum->largest = more->largest;
    sum->n_finite += more->n_finite;
    sum->n_others += more->n_others;
}

/* Numbers at .. at + n, which need not be aligned in the file. */
static TensorValues look(const SafetensorsInfo *info, DType dtype, int64_t at, int64_t n) {
    float room[BLOCK], numbers[BLOCK];
    size_t each = (size_t)dtype_bytes(dtype);
    TensorValues values = {0};
    memcpy(room, (const char *)info->data + (size_t)at * each, (size_t)n * each);
    weights_load(dtype, room, 0, numbers, n);
    for (int64_t i = 0; i < n; i++) {
        double x = fabs((double)numbers[i]);
        if (!isfinite(x)) {
            values.n_others++;
            continue;
        }
        values.n_finite++;
        values.squares += x * x;
        if (x > values.largest) values.largest = x;
    }
    return values;
}

bool tensor_values_add(const SafetensorsInfo *info, TensorValues *values) {
    if (info->dtype != SAFETENSORS_F32 && info->dtype != SAFETENSORS_BF16 &&
        info->dtype != SAFETENSORS_F16) {
        return false;
    }
    DType dtype = info->dtype == SAFETENSORS_F32    ? DTYPE_F32
                  : info->dtype == SAFETENSORS_BF16 ? DTYPE_BF16
                                                    : DTYPE_F16;
    int64_t n = (int64_t)(info->n_bytes / (size_t)dtype_bytes(dtype));
    int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
    TensorValues *parts = memory_zeroed((size_t)n_blocks + 1, sizeof(*parts));
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t left = n - b * BLOCK;
        parts[b] = look(info, dtype, b * BLOCK, left < BLOCK ? left : BLOCK);
    }
    for (int64_t b = 0; b < n_blocks; b++) add(values, &parts[b]);
    free(parts);
    return true;
}
