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
    return s.sum * exp2_fast((shift_of(s.most) - shift_of(most)) * LOG2_E);
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
    const float shift = shift_of(most);
    /* Subtracted first: of numbers like -1e30, which hide keys, the products' rounding is large. */
#pragma unroll
    for (int i = 0; i < N; i++) s.sum += exp2_fast((x[i] - shift) * LOG2_E);
}

/* Elements before the first multiple of 16 bytes. */
template <typename T> static __device__ __forceinline__ int head_of(const T *row, int n) {
    const int head = (int)(-(uintptr_t)row % 16 / sizeof(T));
    return head < n ? head : n;
}

/* use(i, whole) for each pack i of `packs` that is this thread's, AHEAD of them loaded before the
 * first is used: use may write where its pack is. */
template <int AHEAD, typename T, class Use>
static __device__ __forceinline__ void for_each_whole(const T *x, int packs, const Use &use) {
    enum { V = VectorOf<T>::N };
    const int step = blockDim.x;
    for (int i = threadIdx.x; i < packs; i += AHEAD * step) {
        uint4 whole[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k * step < packs) whole[k] = get_whole(x + (int64_t)(i + k * step) * V);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k * step >= packs) break;
            use(i + k * step, whole[k]);
        }
    }
}

/* log-sum-exp of a row, by the block: valid in thread 0. use(i, whole) for each pack i after the
 * `head` first elements, as it was loaded. Once per kernel. */
template <int AHEAD, typename T, class Use>
static __device__ __forceinline__ float block_logsumexp(const T *x, int n, int head,
                                                        const Use &use) {
    enum { V = VectorOf<T>::N };
    __shared__ LogSum parts[32];
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, packs = (n - head) / V;
    LogSum s = {-INFINITY, 0.0f};
    for (int i = threadIdx.x; i < head; i += blockDim.x) {
        const float one[1] = {load(x + i)};
        include<1>(s, one);
    }
    for_each_whole<AHEAD>(x + head, packs, [&](int i, uint4 whole) {
        float v[V];
        take_apart<T>(whole, v);
        include<V>(s, v);
        use(i, whole);
    });
    for (int i = head + packs * V + threadIdx.x; i < n; i += blockDim.x) {
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
    if (threadIdx.x != 0) return 0.0f;
    for (int w = 1; w < warps; w++) s = join(s, parts[w]);
    return (float)((double)shift_of(s.most) + log((double)s.sum));
}

template <typename T> static __device__ __forceinline__ void logsumexp_row(const SoftmaxArgs &a) {
    const T *x = (const T *)a.x + (int64_t)blockIdx.x * a.n_local;
    const float lse = block_logsumexp<4>(x, a.n_valid, head_of(x, a.n_valid), [](int, uint4) {});
    if (threadIdx.x == 0) ((float *)a.out)[blockIdx.x] = lse;
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) logsumexp_f32(SoftmaxArgs a) {
    logsumexp_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) logsumexp_bf16(SoftmaxArgs a) {
    logsumexp_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) logsumexp_f16(SoftmaxArgs a) {
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

struct GradRow {
    float lse, factor; /* of the probabilities */
    float dloss;
    int label; /* -1: not here */
};

/* Where the label is not. */
static __device__ __forceinline__ float gradient_beside(const GradRow &row, float x) {
    return exp2_fast((x - row.lse) * LOG2_E) * row.factor;
}

static __device__ __forceinline__ float gradient_at(const GradRow &row, float x, int column) {
    const float p = gradient_beside(row, x);
    return column == row.label ? p - row.dloss : p;
}

/* The gradient of a row whose packs, after the `head` first elements of x, are at `from`: of x
 * itself, or a copy. out may be x. Padding columns are zero. */
template <typename T>
static __device__ __forceinline__ void gradient_of_row(const GradRow &row, const T *x,
                                                       const T *from, int head, int n_valid,
                                                       int n_local, T *out) {
    enum { V = VectorOf<T>::N };
    const int packs = (n_valid - head) / V;
    for (int i = threadIdx.x; i < head; i += blockDim.x) {
        store(out + i, gradient_at(row, load(x + i), i));
    }
    for_each_whole<4>(from, packs, [&](int i, uint4 whole) {
        const int first = head + i * V;
        float v[V];
        take_apart<T>(whole, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] = gradient_beside(row, v[j]);
        if ((unsigned)(row.label - first) < V) {
#pragma unroll
            for (int j = 0; j < V; j++) v[j] -= first + j == row.label ? row.dloss : 0.0f;
        }
        Elements<V>::put(out + first, v);
    });
    for (int i = head + packs * V + threadIdx.x; i < n_local; i += blockDim.x) {
        store(out + i, i < n_valid ? gradient_at(row, load(x + i), i) : 0.0f);
    }
}

template <typename T>
static __device__ __forceinline__ void cross_entropy_grad_row(const SoftmaxArgs &a) {
    const T *x = (const T *)a.x + (int64_t)blockIdx.x * a.n_local;
    T *out = (T *)a.out + (int64_t)blockIdx.x * a.n_local;
    const int64_t label = a.index[blockIdx.x] - a.offset;
    const float dloss = a.dloss[blockIdx.x];
    const GradRow row = {a.lse[blockIdx.x], a.dlse ? dloss + a.dlse[blockIdx.x] : dloss, dloss,
                         label >= 0 && label < a.n_valid ? (int)label : -1};
    const int head = head_of(x, a.n_valid);
    gradient_of_row(row, x, x + head, head, a.n_valid, a.n_local, out);
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) cross_entropy_grad_f32(SoftmaxArgs a) {
    cross_entropy_grad_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) cross_entropy_grad_bf16(SoftmaxArgs a) {
    cross_entropy_grad_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) cross_entropy_grad_f16(SoftmaxArgs a) {
    cross_entropy_grad_row<f16_t>(a);
}

/* logsumexp, pick and the gradient at once: a row is read from memory once, and waits in shared
 * memory for its log-sum-exp: of GPT-2's vocabulary two rows fit a processor of sm_90, so that much
 * must be under way for each. The bits of the three. */
template <typename T>
static __device__ __forceinline__ void cross_entropy_row(const CrossEntropyArgs &a) {
    enum { V = VectorOf<T>::N };
    DYNAMIC_SHARED(T, kept);
    __shared__ float shared_lse;
    T *x = (T *)a.x + (int64_t)blockIdx.x * a.n_local;
    const int head = head_of(x, a.n_valid), label = a.labels[blockIdx.x];
    const bool here = label >= 0 && label < a.n_valid;
    const float lse = block_logsumexp<8>(
        x, a.n_valid, head, [&](int i, uint4 whole) { *(uint4 *)(kept + i * V) = whole; });
    if (threadIdx.x == 0) {
        shared_lse = a.lse[blockIdx.x] = lse;
        a.picked[blockIdx.x] = here ? load(x + label) : 0.0f;
    }
    __syncthreads(); /* nobody writes before it is picked */
    const GradRow row = {shared_lse, a.dloss, a.dloss, here ? label : -1};
    gradient_of_row(row, x, kept, head, a.n_valid, a.n_local, x);
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_f32(CrossEntropyArgs a) {
    cross_entropy_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_bf16(CrossEntropyArgs a) {
    cross_entropy_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS, 2) cross_entropy_f16(CrossEntropyArgs a) {
    cross_entropy_row<f16_t>(a);
}
