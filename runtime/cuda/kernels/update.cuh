/* What optimizers read and write: parameters, whole or in halves (ir/masters.h), with their copies
 * in 16 bits, and states in f32 or bf16. N is 4 or 1. */
#ifndef RUNTIME_CUDA_KERNELS_UPDATE_CUH
#define RUNTIME_CUDA_KERNELS_UPDATE_CUH

#include "runtime/cuda/kernels/threshold.cuh"
#include "runtime/cuda/kernels/vector.cuh"

/* Whose block this is: the last t with first_block[t] <= blockIdx.x. */
static __device__ __forceinline__ int find_tensor(const uint32_t *first_block, int n_tensors) {
    int low = 0, high = n_tensors;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (first_block[middle] <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static __device__ __forceinline__ bool is_finite(float x) {
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

/* Two numbers of 16 bits each, the first in the lower half. */
static __device__ __forceinline__ uint32_t pair_of(uint32_t first, uint32_t second) {
    return (first & 0xffffu) | second << 16;
}

/* The upper half of a parameter, which its copy in bf16 is, and of both halves their number
 * (ir/masters.h). */
static __device__ __forceinline__ uint32_t upper_half(float x) {
    const uint32_t bits = __float_as_uint(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return (is_nan ? bits | 0x400000u : bits + 0x8000u) >> 16;
}
static __device__ __forceinline__ float join_halves(uint32_t upper, uint32_t lower) {
    return bits_to_float((upper << 16) + (uint32_t)(int32_t)(int16_t)(uint16_t)lower);
}

/* N of 16 bits each, N being 4 or 1. */
template <int N> static __device__ __forceinline__ void put_half(uint16_t *to, const uint32_t *x) {
    if constexpr (N == 1) {
        *to = (uint16_t)x[0];
    } else {
        *(uint2 *)to = make_uint2(pair_of(x[0], x[1]), pair_of(x[2], x[3]));
    }
}

/* N elements of a parameter from the i-th on. */
template <int N>
static __device__ __forceinline__ void put_copy(int dtype, uint16_t *copy, const float *p) {
    uint32_t upper[N];
    if (dtype == DTYPE_F16) {
        Elements<N>::put((f16_t *)copy, p);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) upper[j] = upper_half(p[j]);
    put_half<N>(copy, upper);
}

/* N numbers of a state, S being float or bf16_t, as they lie in memory: loaded long before they are
 * taken apart. */
template <typename S, int N> struct Kept {
    uint32_t word[(N * sizeof(S) + 3) / 4];

    __device__ __forceinline__ void load(const void *state, int64_t i) {
        const S *p = (const S *)state + i;
        if constexpr (N == 1) {
            word[0] = sizeof(S) == 4 ? *(const uint32_t *)p : *(const uint16_t *)p;
        } else if constexpr (sizeof(S) == 4) {
            const uint4 words = *(const uint4 *)p;
            word[0] = words.x, word[1] = words.y, word[2] = words.z, word[3] = words.w;
        } else {
            const uint2 words = *(const uint2 *)p;
            word[0] = words.x, word[1] = words.y;
        }
    }
    __device__ __forceinline__ void widen(float *x) const {
        if constexpr (sizeof(S) == 4) {
#pragma unroll
            for (int j = 0; j < N; j++) x[j] = bits_to_float(word[j]);
        } else if constexpr (N == 1) {
            x[0] = bits_to_float(word[0] << 16);
        } else {
            Low<S>::unpack(word[0], x[0], x[1]);
            Low<S>::unpack(word[1], x[2], x[3]);
        }
    }
};

template <typename S, int N>
static __device__ __forceinline__ void get_state(const void *state, int64_t i, float *x) {
    Kept<S, N> kept;
    kept.load(state, i);
    kept.widen(x);
}

/* N elements of a parameter of n, as they lie in memory: f32, or upper and lower halves. */
template <bool HALVES, int N> struct Parameter {
    Kept<float, N> whole;

    __device__ __forceinline__ void load(const float *p, const uint16_t *copy, int64_t n,
                                         int64_t i) {
        (void)copy, (void)n;
        whole.load(p, i);
    }
    __device__ __forceinline__ void widen(float *x) const {
        whole.widen(x);
    }
    static __device__ __forceinline__ void put(float *p, uint16_t *copy, int copy_dtype, int64_t n,
                                               int64_t i, const float *x) {
        (void)n;
        Elements<N>::put(p + i, x);
        if (copy) put_copy<N>(copy_dtype, copy + i, x);
    }
};

template <int N> struct Parameter<true, N> {
    Kept<bf16_t, N> upper, lower; /* of the lower ones the bits alone */

    __device__ __forceinline__ void load(const float *p, const uint16_t *copy, int64_t n,
                                         int64_t i) {
        (void)p;
        upper.load(copy, i);
        lower.load(copy + n, i);
    }
    __device__ __forceinline__ void widen(float *x) const {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const int by = j % 2 * 16;
            x[j] = join_halves(upper.word[j / 2] >> by & 0xffffu, lower.word[j / 2] >> by);
        }
    }
    static __device__ __forceinline__ void put(float *p, uint16_t *copy, int copy_dtype, int64_t n,
                                               int64_t i, const float *x) {
        uint32_t lower[N];
        (void)p;
#pragma unroll
        for (int j = 0; j < N; j++) lower[j] = __float_as_uint(x[j]);
        put_copy<N>(copy_dtype, copy + i, x);
        put_half<N>(copy + n + i, lower);
    }
};

/* Is a tensor's copy the upper half of its parameter's memory? */
template <typename T> static __device__ __forceinline__ bool in_halves(const T &t) {
    return (const void *)t.p == (const void *)t.copy;
}

/* The same of a tensor that is either. */
template <int N, typename T>
static __device__ __forceinline__ void get_parameter(const T &t, int64_t i, float *x) {
    if (in_halves(t)) {
        Parameter<true, N> part;
        part.load(t.p, t.copy, t.n, i);
        part.widen(x);
    } else {
        Elements<N>::get(t.p + i, x);
    }
}
template <int N, typename T>
static __device__ __forceinline__ void put_parameter(const T &t, int copy_dtype, int64_t i,
                                                     const float *x) {
    if (in_halves(t)) {
        Parameter<true, N>::put(t.p, t.copy, copy_dtype, t.n, i, x);
    } else {
        Parameter<false, N>::put(t.p, t.copy, copy_dtype, t.n, i, x);
    }
}

/* Calls the one of four for states of a dtype, and gradients of f32 or bf16. */
#define BY_DTYPES(state, low, function, ...)                                                       \
    do {                                                                                           \
        const bool low_states = (state) == DTYPE_BF16;                                             \
        if (low_states && (low)) {                                                                 \
            function<bf16_t, bf16_t>(__VA_ARGS__);                                                 \
        } else if (low_states) {                                                                   \
            function<bf16_t, float>(__VA_ARGS__);                                                  \
        } else if ((low)) {                                                                        \
            function<float, bf16_t>(__VA_ARGS__);                                                  \
        } else {                                                                                   \
            function<float, float>(__VA_ARGS__);                                                   \
        }                                                                                          \
    } while (0)

/* First moments become what is kept of them: rounded to nearest. */
template <typename S, int N> static __device__ __forceinline__ void round_moments(float *x) {
    if constexpr (sizeof(S) == 2) {
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = to_float(Low<S>::round(x[j]));
    }
}

/* Second moments, at least 0, likewise: as the threshold has it. */
template <typename S, int N>
static __device__ __forceinline__ void round_squares(float *x, uint32_t threshold) {
    if constexpr (sizeof(S) == 2) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] = bits_to_float((__float_as_uint(x[j]) + threshold) & 0xffff0000u);
        }
    }
}

template <typename S, int N>
static __device__ __forceinline__ void put_state(void *state, int64_t i, const float *x) {
    Elements<N>::put((S *)state + i, x);
}

/* What one element's update needs, in f32. */
typedef struct AdamwFactors {
    float clip, take1, beta2, take2, keep, size, unscale, eps;
    uint32_t threshold;
} AdamwFactors;

/* The powers in f64 by two threads, for all of the block. */
static __device__ __forceinline__ AdamwFactors adamw_factors(const AdamwScalars &s,
                                                             double weight_decay) {
    __shared__ double power[2];
    if (threadIdx.x < 2) power[threadIdx.x] = pow(threadIdx.x ? s.beta2 : s.beta1, (double)*s.step);
    __syncthreads();
    const double rate = (double)*s.lr * s.lr_scale;
    AdamwFactors f;
    f.clip = *s.clip;
    f.take1 = (float)(1.0 - s.beta1);
    f.beta2 = (float)s.beta2;
    f.take2 = (float)(1.0 - s.beta2);
    f.keep = (float)fma(-rate, weight_decay, 1.0);
    f.size = (float)(rate / (1.0 - power[0]));
    f.unscale = (float)(1.0 / sqrt(1.0 - power[1]));
    f.eps = s.eps;
    f.threshold = threshold_of(*s.step);
    return f;
}

#endif
