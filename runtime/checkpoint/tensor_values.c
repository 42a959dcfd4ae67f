#include "runtime/checkpoint/tensor_values.h"

#include "ir/base/memory.h"
#include "runtime/cpu/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool tensor_dtype(const SafetensorsInfo *info, DType *out) {
    *out = info->dtype == SAFETENSORS_F32    ? DTYPE_F32
           : info->dtype == SAFETENSORS_BF16 ? DTYPE_BF16
                                             : DTYPE_F16;
    return info->dtype == SAFETENSORS_F32 || info->dtype == SAFETENSORS_BF16 ||
           info->dtype == SAFETENSORS_F16;
}

SafetensorsDtype tensor_file_dtype(DType dtype) {
    return dtype == DTYPE_F16    ? SAFETENSORS_F16
           : dtype == DTYPE_BF16 ? SAFETENSORS_BF16
                                 : SAFETENSORS_F32;
}

int64_t tensor_count(const SafetensorsInfo *info) {
    return (int64_t)(info->n_bytes / safetensors_dtype_bytes(info->dtype));
}

bool tensor_is_state(const SafetensorsInfo *info) {
    return strchr(info->name, '/') != NULL;
}

void tensor_load(const SafetensorsInfo *info, int64_t at, int64_t n, float *out) {
    float room[TENSOR_BLOCK];
    DType dtype;
    tensor_dtype(info, &dtype);
    size_t each = (size_t)dtype_bytes(dtype);
    memcpy(room, (const char *)info->data + (size_t)at * each, (size_t)n * each);
    weights_load(dtype, room, 0, out, n);
}

static void add(TensorValues *sum, const TensorValues *more) {
    sum->squares += more->squares;
    if (more->largest > sum->largest) sum->largest = more->largest;
    sum->n_finite += more->n_finite;
    sum->n_others += more->n_others;
}

static TensorValues look(const SafetensorsInfo *info, int64_t at, int64_t n) {
    float numbers[TENSOR_BLOCK];
    TensorValues values = {0};
    tensor_load(info, at, n, numbers);
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
    DType dtype;
    if (!tensor_dtype(info, &dtype)) return false;
    int64_t n = tensor_count(info), n_blocks = (n + TENSOR_BLOCK - 1) / TENSOR_BLOCK;
    TensorValues *parts = memory_zeroed((size_t)n_blocks + 1, sizeof(*parts));
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t left = n - b * TENSOR_BLOCK;
        parts[b] = look(info, b * TENSOR_BLOCK, left < TENSOR_BLOCK ? left : TENSOR_BLOCK);
    }
    for (int64_t b = 0; b < n_blocks; b++) add(values, &parts[b]);
    free(parts);
    return true;
}
