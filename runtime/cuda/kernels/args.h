/* The arguments of the kernels in kernels.def: plain C structs, the same on host and device. Sizes
 * are counts of elements unless they say bytes. Pointers are device addresses. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_H
#define RUNTIME_CUDA_KERNELS_ARGS_H

#include "runtime/cuda/kernels/args_attention.h"
#include "runtime/cuda/kernels/args_cache.h"
#include "runtime/cuda/kernels/args_collective.h"
#include "runtime/cuda/kernels/args_layers.h"
#include "runtime/cuda/kernels/args_layout.h"
#include "runtime/cuda/kernels/args_product.h"
#include "runtime/cuda/kernels/args_recurrent.h"
#include "runtime/cuda/kernels/args_route.h"
#include "runtime/cuda/kernels/args_update.h"
#include "runtime/cuda/kernels/state.h"

/* step.cu */

/* Counts the launch and takes over the staged state of its slot. staging: pinned host memory,
 * STAGING_SLOTS slots of slot_bytes, each beginning with a DeviceState. One thread. */
typedef struct BeginStepArgs {
    DeviceState *state;
    const unsigned char *staging;
    int64_t slot_bytes;
} BeginStepArgs;

/* to[row to_pitch + i] = i32 of the staged slot at offset_bytes, element row pitch + i. */
typedef struct CopyInputArgs {
    const DeviceState *state;
    const unsigned char *staging;
    int64_t slot_bytes, offset_bytes, count; /* of all rows */
    int64_t width, pitch, to_pitch;          /* elements of a row, and from one to the next */
    int32_t *to;
} CopyInputArgs;

/* *word = value, seen by the host: pinned host memory. One thread. */
typedef struct MarkProgressArgs {
    uint32_t *word;
    uint32_t value;
} MarkProgressArgs;

/* *to = learning rate or step of the state. One thread. */
typedef enum StepScalar {
    SCALAR_LEARNING_RATE,
    SCALAR_STEP,
    SCALAR_LABEL_SHARE,
    SCALAR_MOST_NORM
} StepScalar;

typedef struct CopyScalarArgs {
    const DeviceState *state;
    int32_t which; /* a StepScalar */
    float *to;
} CopyScalarArgs;

#endif
