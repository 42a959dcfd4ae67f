/* The arguments of the kernels in kernels.def: plain C structs, the same on host and device. Sizes
 * are counts of elements unless they say bytes. Pointers are device addresses. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_H
#define RUNTIME_CUDA_KERNELS_ARGS_H

#include "runtime/cuda/kernels/args_collective.h"
#include "runtime/cuda/kernels/args_layers.h"
#include "runtime/cuda/kernels/args_layout.h"
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

/* to[i] = i32 of the staged slot at offset_bytes. */
typedef struct CopyInputArgs {
    const DeviceState *state;
    const unsigned char *staging;
    int64_t slot_bytes, offset_bytes, count;
    int32_t *to;
} CopyInputArgs;

/* *word = value, seen by the host: pinned host memory. One thread. */
typedef struct MarkProgressArgs {
    uint32_t *word;
    uint32_t value;
} MarkProgressArgs;

/* *to = learning rate or step of the state. One thread. */
typedef struct CopyScalarArgs {
    const DeviceState *state;
    int32_t is_step;
    float *to;
} CopyScalarArgs;

#endif
