/* What every kernel file includes first: types, conversions, 2^x. Kernels use only the CUDA C that
 * tests/emulate can run on the host too (the very same source, compiled by g++ with emulate.h
 * before it), and nothing of CUDA's headers. */
#ifndef RUNTIME_CUDA_KERNELS_DEVICE_CUH
#define RUNTIME_CUDA_KERNELS_DEVICE_CUH

#include "ir/dtype.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/kernels/low.cuh"

#ifdef __CUDACC__
#define KERNEL_FUNCTION extern "C" __global__ void
/* `name` points to the launch's dynamic shared memory, aligned for any use of it (wgmma's tiles).
 */
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(1024) unsigned char dynamic_shared_bytes[];                        \
    type *name = reinterpret_cast<type *>(dynamic_shared_bytes)
#else
/* With C++ linkage, since the CPU's kernels have some of these names. */
#define KERNEL_FUNCTION            __global__ void
#define DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(emulate_dynamic_shared())
#endif

static __device__ __forceinline__ float bits_to_float(uint32_t bits) {
    return __uint_as_float(bits);
}

/* One element as f32, and back: T is float, bf16_t or f16_t. */
template <typename T> static __device__ __forceinline__ float load(const T *p) {
    return to_float(*p);
}
static __device__ __forceinline__ void store(float *p, float x) {
    *p = x;
}
template <typename T> static __device__ __forceinline__ void store(T *p, float x) {
    *p = Low<T>::round(x);
}
/* Element `at` of memory whose dtype (a DType) is known when it runs only. */
static __device__ __forceinline__ void store_as(int dtype, void *out, int64_t at, float x) {
    if (dtype == DTYPE_BF16) {
        store((bf16_t *)out + at, x);
    } else if (dtype == DTYPE_F16) {
        store((f16_t *)out + at, x);
    } else {
        store((float *)out + at, x);
    }
}

static __device__ __forceinline__ float round_as(int dtype, float x) {
    return dtype == DTYPE_BF16  ? to_float(Low<bf16_t>::round(x))
           : dtype == DTYPE_F16 ? to_float(Low<f16_t>::round(x))
                                : x;
}
static __device__ __forceinline__ float load_as(int dtype, const void *from, int64_t at) {
    return dtype == DTYPE_BF16  ? load((const bf16_t *)from + at)
           : dtype == DTYPE_F16 ? load((const f16_t *)from + at)
                                : load((const float *)from + at);
}

/* 2^x to about 2 ulp, in one instruction; results below 2^-126 are 0, so 2^-inf is. */
static __device__ __forceinline__ float exp2_fast(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return x < -126.0f ? 0.0f : exp2f(x);
#endif
}

#endif
