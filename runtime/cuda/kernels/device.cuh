/* What every kernel file includes first: types and conversions. Kernels use only the CUDA C that
 * tests/emulate can run on the host too (the very same source, compiled by g++ with emulate.h
 * before it), and nothing of CUDA's headers. */
#ifndef RUNTIME_CUDA_KERNELS_DEVICE_CUH
#define RUNTIME_CUDA_KERNELS_DEVICE_CUH

#include "runtime/cuda/kernels/args.h"

#ifdef __CUDACC__
#define KERNEL_FUNCTION extern "C" __global__ void
/* `name` points to the launch's dynamic shared memory, aligned for any use of it. */
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];                         \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)
#else
/* With C++ linkage, since the CPU's kernels have some of these names. */
#define KERNEL_FUNCTION            __global__ void
#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emulate_dynamic_shared())
#endif

typedef unsigned short bf16_t; /* bits of a bfloat16 */

static __device__ __forceinline__ float bits_to_float(uint32_t bits) {
    return __uint_as_float(bits);
}

static __device__ __forceinline__ float bf16_to_float(bf16_t x) {
    return __uint_as_float((uint32_t)x << 16);
}

/* Round to nearest even; NaN stays NaN. */
static __device__ __forceinline__ bf16_t float_to_bf16(float x) {
#ifdef __CUDACC__
    bf16_t rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
    return rounded;
#else
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bf16_t)(bits >> 16 | 0x40u);
    return (bf16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

/* One element as f32, and back: T is float or bf16_t. */
static __device__ __forceinline__ float load(const float *p) {
    return *p;
}
static __device__ __forceinline__ float load(const bf16_t *p) {
    return bf16_to_float(*p);
}
static __device__ __forceinline__ void store(float *p, float x) {
    *p = x;
}
static __device__ __forceinline__ void store(bf16_t *p, float x) {
    *p = float_to_bf16(x);
}

#endif
