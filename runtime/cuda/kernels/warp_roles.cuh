/* Warpgroups of a block that do different things: barriers that some of its threads pass, and
 * registers that one warpgroup has more of because another has fewer. sm_90a.
 *
 * A named barrier, 1 to 15 (0 is __syncthreads'), is passed when so many threads have come: those
 * that sync wait for it, those that arrive go on at once. Whole warps come, and what all did before
 * is seen by those that waited. PTX ISA 9.0, 9.7.13.1: bar.
 */
#ifndef RUNTIME_CUDA_KERNELS_WARP_ROLES_CUH
#define RUNTIME_CUDA_KERNELS_WARP_ROLES_CUH

#include "runtime/cuda/kernels/tensor.cuh"

#ifdef __CUDACC__
template <int THREADS> static __device__ __forceinline__ void named_sync(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
template <int THREADS> static __device__ __forceinline__ void named_arrive(int barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
#else
template <int THREADS> static inline void named_sync(int barrier, EMULATE_HERE) {
    emulate_named_barrier(barrier, THREADS, true, EMULATE_SITE("bar.sync"));
}
template <int THREADS> static inline void named_arrive(int barrier, EMULATE_HERE) {
    emulate_named_barrier(barrier, THREADS, false, EMULATE_SITE("bar.arrive"));
}
#endif

/* All warps of a warpgroup: each thread has N registers from now on, a multiple of 8. More are
 * there once other warpgroups have given up as many of what the launch has for all. */
template <int N> static __device__ __forceinline__ void more_registers(void) {
#ifdef __CUDACC__
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> static __device__ __forceinline__ void fewer_registers(void) {
#ifdef __CUDACC__
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

#endif
