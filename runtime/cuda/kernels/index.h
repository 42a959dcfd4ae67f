/* Where an element lies, by its number: plain C, for host and device.
 *
 * A number counts through some dimensions, the first of them fastest. Divisions are by
 * multiplication (Granlund & Montgomery 1994), for numbers below 2^31. */
#ifndef RUNTIME_CUDA_KERNELS_INDEX_H
#define RUNTIME_CUDA_KERNELS_INDEX_H

#include "runtime/cuda/kernels/state.h"

typedef struct FastDivisor {
    uint32_t divisor, multiplier, shift;
} FastDivisor;

#ifdef __CUDACC__
#define INDEX_FUNCTION static __device__ __forceinline__
#else
#define INDEX_FUNCTION static inline
#endif

INDEX_FUNCTION uint32_t fast_divide(FastDivisor d, uint32_t n) {
    const uint32_t high = (uint32_t)(((uint64_t)n * d.multiplier) >> 32);
    return (high + n) >> d.shift;
}

enum { INDEX_DIMS = 6 };

typedef struct IndexMap {
    int32_t n_dims;
    FastDivisor size[INDEX_DIMS]; /* fastest first */
    int64_t stride[INDEX_DIMS];
} IndexMap;

#endif
