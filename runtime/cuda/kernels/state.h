/* What changes from step to step, in device memory, so that a captured graph never changes. The
 * host fills one of two staging slots in pinned memory; the graph's first kernel (begin_step)
 * counts its launches to know which, and copies from there. Plain C, for host and device. */
#ifndef RUNTIME_CUDA_KERNELS_STATE_H
#define RUNTIME_CUDA_KERNELS_STATE_H

#ifdef __CUDACC_RTC__
typedef unsigned long long uint64_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef int int32_t;
#else
#include <stdint.h>
#endif

enum { STAGING_SLOTS = 2 };

typedef struct DeviceState {
    uint64_t seed, step;
    /* As the plan's scalars hold them; step_f32 counts updates. */
    float learning_rate, step_f32, most_norm_squared;
    float label_share; /* what the op gives */
    uint32_t train;    /* 0: dropout is the identity */
    uint32_t slot;     /* of this launch: launches mod STAGING_SLOTS */
    uint64_t launches; /* counted on the device */
} DeviceState;

#endif
