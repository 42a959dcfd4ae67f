/* Layernorm and rmsnorm (runtime/cpu/norm.h says what they compute), forward and backward.
 *
 * Forward, three forms of one formula: a warp per row and a block per row hold the row in registers
 * between its passes; `any` takes every width, element by element. Sums are f32, over lanes, then
 * over warps, always in the same order. The variance is summed from the mean: no cancellation.
 */
#include "runtime/cuda/kernels/vector.cuh"

static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) x += __shfl_xor_sync(0xffffffffu, x, bits);
    return x;
}

/* The block's sum, the same on every thread; scratch [32] is read until the next barrier. */
static __device__ __forceinline__ float block_sum(float x, float *scratch) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    x = warp_sum(x);
    if (lane == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

/* N f32 elements, 16 bytes at a time. */
template <int N> static __device__ __forceinline__ void get_floats(const float *p, float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 4) Elements<4>::get(p + i, x + i);
}

template <typename T, bool CENTERED, bool BLOCK>
static __device__ __forceinline__ void norm_in_registers(const NormArgs &a) {
    enum { V = VectorOf<T>::N, PACKS = 4 };
    __shared__ float scratch[2][32];
    const int threads = BLOCK ? blockDim.x : 32;
    const int lane = BLOCK ? threadIdx.x : threadIdx.x % 32;
    const int64_t row =
        BLOCK ? blockIdx.x : (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= a.rows) return;
    const T *x = (const T *)a.x + row * a.n;
    T *y = (T *)a.y + row * a.n;
    uint4 whole[PACKS];
    float v[PACKS][V], sum = 0, squares = 0, mean = 0;
    /* Zeros past the end: were packs added in a branch, each load would wait for the one before. */
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int at = (p * threads + lane) * V;
        whole[p] = at < a.n ? get_whole(x + at) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        take_apart<T>(whole[p], v[p]);
#pragma unroll
        for (int j = 0; j < V; j++) sum += v[p][j];
    }
    if (CENTERED) mean = (BLOCK ? block_sum(sum, scratch[0]) : warp_sum(sum)) / a.n;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        if ((p * threads + lane) * V < a.n) {
#pragma unroll
            for (int j = 0; j < V; j++) squares += (v[p][j] - mean) * (v[p][j] - mean);
        }
    }
    squares = BLOCK ? block_sum(squares, scratch[1]) : warp_sum(squares);
    const float inv = 1.0f / sqrtf(squares / a.n + a.eps);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int at = (p * threads + lane) * V;
        if (at < a.n) {
            float gain[V], bias[V];
            get_floats<V>(a.gain + at, gain);
            if (CENTERED) get_floats<V>(a.bias + at, bias);
#pragma unroll
            for (int j = 0; j < V; j++) {
                v[p][j] = (v[p][j] - mean) * inv * gain[j] + (CENTERED ? bias[j] : 0.0f);
            }
            Elements<V>::put(y + at, v[p]);
        }
    }
    if (lane == 0) {
        if (CENTERED) a.mean[row] = mean;
        a.inv[row] = inv;
    }
}

/* A block per row. */
template <typename T, bool CENTERED>
static __device__ __forceinline__ void norm_of_any_width(const NormArgs &a) {
    __shared__ float scratch[2][32];
    const int64_t row = blockIdx.x;
    const T *x = (const T *)a.x + row * a.n;
    T *y = (T *)a.y + row * a.n;
    float sum = 0, squares = 0, mean = 0;
    if (CENTERED) {
        for (int i = threadIdx.x; i < a.n; i += blockDim.x) sum += load(x + i);
        mean = block_sum(sum, scratch[0]) / a.n;
    }
    for (int i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float d = load(x + i) - mean;
        squares += d * d;
    }
    const float inv = 1.0f / sqrtf(block_sum(squares, scratch[1]) / a.n + a.eps);
    for (int i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float bias = CENTERED ? a.bias[i] : 0.0f;
        store(y + i, (load(x + i) - mean) * inv * a.gain[i] + bias);
    }
    if (threadIdx.x == 0) {
        if (CENTERED) a.mean[row] = mean;
        a.inv[row] = inv;
    }
}

#define NORM_KERNELS(name, T, CENTERED, suffix)                                                    \
    KERNEL_FUNCTION __launch_bounds__(128) name##_warp_##suffix(NormArgs a) {                      \
        norm_in_registers<T, CENTERED, false>(a);                                                  \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(1024) name##_block_##suffix(NormArgs a) {                    \
        norm_in_registers<T, CENTERED, true>(a);                                                   \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(256) name##_any_##suffix(NormArgs a) {                       \
        norm_of_any_width<T, CENTERED>(a);                                                         \
    }
NORM_KERNELS(layernorm, float, true, f32)
NORM_KERNELS(layernorm, bf16_t, true, bf16)
NORM_KERNELS(layernorm, f16_t, true, f16)
NORM_KERNELS(rmsnorm, float, false, f32)
NORM_KERNELS(rmsnorm, bf16_t, false, bf16)
NORM_KERNELS(rmsnorm, f16_t, false, f16)
