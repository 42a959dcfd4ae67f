/* Sixteen bytes at a time, sums over a block, and IndexMap on the device. */
#ifndef RUNTIME_CUDA_KERNELS_VECTOR_CUH
#define RUNTIME_CUDA_KERNELS_VECTOR_CUH

#include "runtime/cuda/kernels/device.cuh"
#include "runtime/cuda/kernels/index.h"

/* Elements of 16 bytes. */
template <typename T> struct VectorOf {
    enum { N = 16 / sizeof(T) };
};

/* Sixteen bytes as they lie, loaded long before they are taken apart: elements would take twice the
 * registers in between. */
template <typename T> static __device__ __forceinline__ uint4 get_whole(const T *p) {
    return *(const uint4 *)p;
}
template <typename T>
static __device__ __forceinline__ void take_apart(uint4 v, float (&x)[VectorOf<T>::N]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (sizeof(T) == 4) {
            x[i] = bits_to_float(words[i]);
        } else {
            Low<T>::unpack(words[i], x[2 * i], x[2 * i + 1]);
        }
    }
}

/* N elements as f32: N is 1, or VectorOf<T>::N where p is aligned to 16 bytes. */
template <int N> struct Elements;

template <> struct Elements<1> {
    template <typename T> static __device__ __forceinline__ void get(const T *p, float *x) {
        x[0] = load(p);
    }
    template <typename T> static __device__ __forceinline__ void put(T *p, const float *x) {
        store(p, x[0]);
    }
};

/* Of 16 bits, aligned to 8 bytes. */
template <> struct Elements<4> {
    static __device__ __forceinline__ void get(const float *p, float *x) {
        const float4 v = *(const float4 *)p;
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    }
    template <typename T> static __device__ __forceinline__ void get(const T *p, float *x) {
        const uint2 v = *(const uint2 *)p;
        Low<T>::unpack(v.x, x[0], x[1]);
        Low<T>::unpack(v.y, x[2], x[3]);
    }
    static __device__ __forceinline__ void put(float *p, const float *x) {
        *(float4 *)p = make_float4(x[0], x[1], x[2], x[3]);
    }
    template <typename T> static __device__ __forceinline__ void put(T *p, const float *x) {
        *(uint2 *)p = make_uint2(Low<T>::pack(x[0], x[1]), Low<T>::pack(x[2], x[3]));
    }
};

template <> struct Elements<8> {
    template <typename T> static __device__ __forceinline__ void get(const T *p, float *x) {
        take_apart<T>(get_whole(p), *(float(*)[8])x);
    }
    template <typename T> static __device__ __forceinline__ void put(T *p, const float *x) {
        *(uint4 *)p = make_uint4(Low<T>::pack(x[0], x[1]), Low<T>::pack(x[2], x[3]),
                                 Low<T>::pack(x[4], x[5]), Low<T>::pack(x[6], x[7]));
    }
};

static __device__ __forceinline__ int64_t index_map(const IndexMap &map, uint32_t i) {
    int64_t at = 0;
#pragma unroll
    for (int d = 0; d < INDEX_DIMS; d++) {
        if (d >= map.n_dims) break;
        const uint32_t rest = fast_divide(map.size[d], i);
        at += (int64_t)(i - rest * map.size[d].divisor) * map.stride[d];
        i = rest;
    }
    return at;
}

/* The sum over a warp, the same bits on every lane. */
static __device__ __forceinline__ float warp_total(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

/* The sum over a block of THREADS, in f64 from the warps' sums on; valid in thread 0. Once per
 * kernel: its memory is not protected against the next call. */
template <int THREADS> static __device__ __forceinline__ double block_total(float x) {
    __shared__ float sums[THREADS / 32];
    x = warp_total(x);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    double total = 0;
    if (threadIdx.x == 0) {
        for (int w = 0; w < THREADS / 32; w++) total += (double)sums[w];
    }
    return total;
}

/* The same in f64 throughout. */
template <int THREADS> static __device__ __forceinline__ double block_total_f64(double x) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = x;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0];
}

#endif
