/* Philox4x32-10 (Salmon et al. 2011), counted as runtime/cpu/philox.h says: for the kernels built by
 * nvcc and, as text, for generated ones. */
#ifndef RUNTIME_CUDA_KERNELS_PHILOX_CUH
#define RUNTIME_CUDA_KERNELS_PHILOX_CUH

#include "runtime/cuda/kernels/state.h"

static __device__ __forceinline__ void philox(uint32_t (&c)[4], uint64_t seed) {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c[0] * 0xD2511F53u, p1 = (uint64_t)c[2] * 0xCD9E8D57u;
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)p0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

#endif
