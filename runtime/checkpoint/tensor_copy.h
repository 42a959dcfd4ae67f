/* Numbers of a tensor copied into another order of its axes and another dtype.
 *
 * Both sides are arrays with a stride, in elements, for each axis. Elements are f32, bf16 or f16;
 * narrower ones are rounded to nearest, ties to even. Where nothing is rounded bits stay as they
 * are. The source may be unaligned.
 */
#ifndef RUNTIME_CHECKPOINT_TENSOR_COPY_H
#define RUNTIME_CHECKPOINT_TENSOR_COPY_H

#include "ir/type.h"

typedef struct TensorCopy {
    int rank;
    int64_t size[MAX_RANK], from_stride[MAX_RANK], to_stride[MAX_RANK];
    DType from_dtype, to_dtype;
    const void *from; /* of element 0, 0, ... */
    void *to;
} TensorCopy;

/* False: a finite number became infinite, as those above 65,504 do in f16. */
bool tensor_copy(const TensorCopy *copy);

#endif
