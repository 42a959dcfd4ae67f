/* The pieces of cross-entropy (runtime/cpu/softmax.h says what they compute). A block per row; rows
 * may begin at any element, so what is before the first multiple of 16 bytes and after the last is
 * done one by one. */
#include "runtime/cuda/kernels/vector.cuh"

#define LOG2_E 1.44269504088896340736f

/* log(sum of e^x): the sum is relative to 2^shift(most). NaN passes the maximum by and is met by
 * the sum. */
struct LogSum {
    float most, sum;
};

/* Infinities cannot be subtracted: all masked, or none, is a sum of zero; an infinite logit leaves
 * an infinite sum. */
static __device__ __forceinline__ float shift_of(float most) {
    return isinf(most) ? 0.0f : most;
}

/* `s` relative to another, greater maximum. */
static __device__ __forceinline__ float rescale(LogSum s, float most) {
    if (s.most == most || s.most == -INFINITY) return s.sum;
    return s.sum * exp2f((shift_of(s.most) - shift_of(most)) * LOG2_E);
}

static __device__ __forceinline__ LogSum join(LogSum a, LogSum b) {
    const float most = fmaxf(a.most, b.most);
    return {most, rescale(a, most) + rescale(b, most)};
}

template <int N> static __device__ __forceinline__ void include(LogSum &s, const float (&x)[N]) {
    float most = s.most;
#pragma unroll
    for (int i = 0; i < N; i++) most = fmaxf(most, x[i]);
    s.sum = rescale(s, most);
    s.most = most;
    const float shift = shift_of(most) * LOG2_E;
#pragma unroll
    for (int i = 0; i < N; i++) s.sum += exp2f(fmaf(x[i], LOG2_E, -shift));
}

/* Elements before the first multiple of 16 bytes. */
template <typename T> static __device__ __forceinline__ int64_t head_of(const T *row, int64_t n) {
    const int64_t head = (int64_t)(-(uintptr_t)row % 16 / sizeof(T));
    return head < n ? head : n;
}

template <typename T> static __device__ __forceinline__ void logsumexp_row(const SoftmaxArgs &a) {
    enum { V = VectorOf<T>::N };
    __shared__ LogSum parts[32];
    const T *x = (const T *)a.x + blockIdx.x * a.n_local;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int64_t head = head_of(x, a.n_valid), packs = (a.n_valid - head) / V;
    LogSum s = {-INFINITY, 0.0f};
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) {
        const float one[1] = {load(x + i)};
        include<1>(s, one);
    }
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        float v[V];
        Elements<V>::get(x + head + i * V, v);
        include<V>(s, v);
    }
    for (int64_t i = head + packs * V + threadIdx.x; i < a.n_valid; i += blockDim.x) {
        const float one[1] = {load(x + i)};
        include<1>(s, one);
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
        const LogSum other = {__shfl_xor_sync(0xffffffffu, s.most, bits),
                              __shfl_xor_sync(0xffffffffu, s.sum, bits)};
        s = join(s, other);
    }
    if (lane == 0) parts[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < warps; w++) s = join(s, parts[w]);
    ((float *)a.out)[blockIdx.x] = (float)((double)shift_of(s.most) + log((double)s.sum));
}

KERNEL_FUNCTION __launch_bounds__(256) logsumexp_f32(SoftmaxArgs a) {
    logsumexp_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) logsumexp_bf16(SoftmaxArgs a) {
    logsumexp_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) logsumexp_f16(SoftmaxArgs a) {
    logsumexp_row<f16_t>(a);
}

template <typename T> static __device__ __forceinline__ void pick_row(const SoftmaxArgs &a) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    const int64_t column = a.index[row] - a.offset;
    const bool here = column >= 0 && column < a.n_valid;
    ((float *)a.out)[row] = here ? load((const T *)a.x + row * a.n_local + column) : 0.0f;
}

KERNEL_FUNCTION pick_f32(SoftmaxArgs a) {
    pick_row<float>(a);
}
KERNEL_FUNCTION pick_bf16(SoftmaxArgs a) {
    pick_row<bf16_t>(a);
}
KERNEL_FUNCTION pick_f16(SoftmaxArgs a) {
    pick_row<f16_t>(a);
}

/* One row's gradient: padding columns are zero. */
struct GradRow {
    float lse, factor;
    int64_t label, n_valid;
};

static __device__ __forceinline__ float gradient_at(const GradRow &row, float x, int64_t column) {
    if (column >= row.n_valid) return 0.0f;
    const float p = exp2f((x - row.lse) * LOG2_E) * row.factor;
    return column == row.label ? p - row.factor : p;
}

template <typename T>
static __device__ __forceinline__ void cross_entropy_grad_row(const SoftmaxArgs &a) {
    enum { V = VectorOf<T>::N };
    const T *x = (const T *)a.x + blockIdx.x * a.n_local;
    T *out = (T *)a.out + blockIdx.x * a.n_local;
    const GradRow row = {a.lse[blockIdx.x], a.dloss[blockIdx.x], a.index[blockIdx.x] - a.offset,
                         a.n_valid};
    const int64_t head = head_of(x, a.n_local), packs = (a.n_local - head) / V;
    for (int64_t i = threadIdx.x; i < head; i += blockDim.x) {
        store(out + i, gradient_at(row, load(x + i), i));
    }
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
        const int64_t first = head + i * V;
        float v[V];
        Elements<V>::get(x + first, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = gradient_at(row, v[j], first + j);
        Elements<V>::put(out + first, v);
    }
    for (int64_t i = head + packs * V + threadIdx.x; i < a.n_local; i += blockDim.x) {
        store(out + i, gradient_at(row, load(x + i), i));
    }
}

KERNEL_FUNCTION __launch_bounds__(256) cross_entropy_grad_f32(SoftmaxArgs a) {
    cross_entropy_grad_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) cross_entropy_grad_bf16(SoftmaxArgs a) {
    cross_entropy_grad_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) cross_entropy_grad_f16(SoftmaxArgs a) {
    cross_entropy_grad_row<f16_t>(a);
}
