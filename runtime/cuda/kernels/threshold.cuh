/* What a step rounds second moments up above: for kernels of optimizers built by nvcc and, as text,
 * for generated ones. */
#ifndef RUNTIME_CUDA_KERNELS_THRESHOLD_CUH
#define RUNTIME_CUDA_KERNELS_THRESHOLD_CUH

#include "runtime/cuda/kernels/state.h"

/* optimizer_threshold of runtime/cpu/optimizer.h. */
static __device__ __forceinline__ uint32_t threshold_of(float step) {
    uint32_t x = (uint32_t)(int64_t)step;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (x ^ x >> 16) & 0xffffu;
}

#endif
