/* Numbers of tensors in files, whatever they are kept in; and what they are like, at a glance, for
 * what has gone wrong in a run. */
#ifndef RUNTIME_CHECKPOINT_TENSOR_VALUES_H
#define RUNTIME_CHECKPOINT_TENSOR_VALUES_H

#include "ir/type.h"
#include "runtime/checkpoint/safetensors.h"

enum { TENSOR_BLOCK = 4096 }; /* numbers that are loaded at a time, at most */

/* f32, bf16 or f16. False: other numbers, which the functions below do not take. */
bool tensor_dtype(const SafetensorsInfo *info, DType *out);
/* What files call one of these three. */
SafetensorsDtype tensor_file_dtype(DType dtype);
int64_t tensor_count(const SafetensorsInfo *info);
/* Of an optimizer, not of the model: its name has a slash (adam_m/wte). */
bool tensor_is_state(const SafetensorsInfo *info);
/* Numbers at .. at + n as f32, at most TENSOR_BLOCK; they need not be aligned in the file. */
void tensor_load(const SafetensorsInfo *info, int64_t at, int64_t n, float *out);

typedef struct TensorValues {
    double squares, largest; /* the sum of squares, and the largest absolute value, of the finite */
    int64_t n_finite, n_others;
} TensorValues;

/* Adds a tensor's; false: it has other numbers. Sums do not depend on the number of threads. */
bool tensor_values_add(const SafetensorsInfo *info, TensorValues *values);

#endif
