/* What the numbers of a tensor in a file are like, at a glance: for what has gone wrong in a run.
 */
#ifndef RUNTIME_CHECKPOINT_TENSOR_VALUES_H
#define RUNTIME_CHECKPOINT_TENSOR_VALUES_H

#include "runtime/checkpoint/safetensors.h"

typedef struct TensorValues {
    double squares, largest; /* the sum of squares, and the largest absolute value, of the finite */
    int64_t n_finite, n_others;
} TensorValues;

/* Adds a tensor's in f32, bf16 or f16; false: it has other numbers. Sums do not depend on the
 * number of threads. */
bool tensor_values_add(const SafetensorsInfo *info, TensorValues *values);

#endif
