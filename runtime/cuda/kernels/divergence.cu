/* How far the softmax of s is from that of t (ir/ops/divergence.c; runtime/cpu/divergence.h says how
 * they lie). A block per row, element by element: what limits it is memory, of which a warp reads 64
 * or 128 bytes at a time. */
#include "runtime/cuda/kernels/vector.cuh"

#define LOG2_E 1.44269504088896340736f

/* What a word's probability makes of it; nothing where there is none. */
static __device__ __forceinline__ float term(float p, float log_ratio) {
    return p > 0.0f ? p * log_ratio : 0.0f;
}

struct Word {
    float a, b, p, q; /* logarithms of probabilities in s and in t, and these */
};

template <typename T>
static __device__ __forceinline__ Word word_at(const T *s, const T *t, int i, float lse_s,
                                               float lse_t) {
    const float a = load(s + i) - lse_s, b = load(t + i) - lse_t;
    return {a, b, exp2_fast(a * LOG2_E), exp2_fast(b * LOG2_E)};
}

static __device__ __forceinline__ float log_mixture(const Word &w, float beta) {
    return logf(beta * w.q + (1.0f - beta) * w.p);
}

struct Sums {
    float value, needed;
};

static __device__ __forceinline__ void include(Sums &sums, const Word &w, float beta) {
    if (beta == 0.0f) {
        sums.value += term(w.q, w.b - w.a);
    } else if (beta == 1.0f) {
        sums.value += term(w.p, w.a - w.b);
    } else {
        const float m = log_mixture(w, beta), own = term(w.p, w.a - m);
        sums.value += beta * term(w.q, w.b - m) + (1.0f - beta) * own;
        sums.needed += own;
    }
}

template <typename T>
static __device__ __forceinline__ void divergence_row(const DivergenceArgs &a) {
    __shared__ Sums parts[32];
    const int64_t at = (int64_t)blockIdx.x * a.n_local;
    const T *s = (const T *)a.s + at, *t = (const T *)a.t + at;
    const float lse_s = a.lse_s[blockIdx.x], lse_t = a.lse_t[blockIdx.x];
    Sums sums = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < a.n_valid; i += blockDim.x) {
        include(sums, word_at(s, t, i, lse_s, lse_t), a.beta);
    }
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) {
        sums.value += __shfl_xor_sync(0xffffffffu, sums.value, bits);
        sums.needed += __shfl_xor_sync(0xffffffffu, sums.needed, bits);
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sums;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < blockDim.x / 32; w++) {
        sums.value += parts[w].value;
        sums.needed += parts[w].needed;
    }
    a.value[blockIdx.x] = sums.value;
    a.needed[blockIdx.x] = a.beta == 1.0f ? sums.value : sums.needed;
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_rows_f32(DivergenceArgs a) {
    divergence_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_rows_bf16(DivergenceArgs a) {
    divergence_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_rows_f16(DivergenceArgs a) {
    divergence_row<f16_t>(a);
}

static __device__ __forceinline__ float gradient_at(const Word &w, float beta, float needed) {
    if (beta == 0.0f) return w.p - w.q;
    if (beta == 1.0f) return term(w.p, w.a - w.b - needed);
    return (1.0f - beta) * term(w.p, w.a - log_mixture(w, beta) - needed);
}

/* out may be s or t: an element is read before it is written. Padding columns are zero. */
template <typename T>
static __device__ __forceinline__ void divergence_grad_row(const DivergenceArgs &a) {
    const int64_t at = (int64_t)blockIdx.x * a.n_local;
    const T *s = (const T *)a.s + at, *t = (const T *)a.t + at;
    const float lse_s = a.lse_s[blockIdx.x], lse_t = a.lse_t[blockIdx.x];
    const float needed = a.whole_needed[blockIdx.x], g = a.dvalue[blockIdx.x];
    T *out = (T *)a.out + at;
    for (int i = threadIdx.x; i < a.n_local; i += blockDim.x) {
        float x = 0.0f;
        if (i < a.n_valid) {
            x = gradient_at(word_at(s, t, i, lse_s, lse_t), a.beta, needed) * g;
        }
        store(out + i, x);
    }
}

KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_grad_f32(DivergenceArgs a) {
    divergence_grad_row<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_grad_bf16(DivergenceArgs a) {
    divergence_grad_row<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(CROSS_ENTROPY_THREADS) divergence_grad_f16(DivergenceArgs a) {
    divergence_grad_row<f16_t>(a);
}
