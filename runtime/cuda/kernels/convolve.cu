/* y[t] = sum over n of w[taps - 1 - n] x[t - n], of each channel by itself, and its gradient. A
 * thread has V channels of a group of rows; that rows are read again for the taps is L1's to bear.
 * Weights' gradients are sums over a group here, over groups in norm_join. */
#include "runtime/cuda/kernels/vector.cuh"

enum { TAPS = CONVOLVE_TAPS, PACK = CONVOLVE_PACK };

/* PACK numbers: as elements are, 8 or 16 bytes. */
template <int V, typename T>
static __device__ __forceinline__ void get_pack(const T *from, float (&x)[V]) {
    if constexpr (V == 1) {
        x[0] = load(from);
    } else if constexpr (sizeof(T) == 4) {
        Elements<4>::get(from, x);
    } else {
        const uint2 pairs = *(const uint2 *)from;
        Low<T>::unpack(pairs.x, x[0], x[1]);
        Low<T>::unpack(pairs.y, x[2], x[3]);
    }
}
template <int V, typename T>
static __device__ __forceinline__ void put_pack(T *to, const float (&x)[V]) {
    if constexpr (V == 1) {
        store(to, x[0]);
    } else if constexpr (sizeof(T) == 4) {
        Elements<4>::put(to, x);
    } else {
        *(uint2 *)to = make_uint2(Low<T>::pack(x[0], x[1]), Low<T>::pack(x[2], x[3]));
    }
}

/* How many rows before its own a row reads that is position t of its sequence; taps - 1 at most. */
static __device__ __forceinline__ int reach_back(const ConvolveArgs &a, int64_t row, int64_t t) {
    if (a.places && a.places[row] < t) t = max(a.places[row], 0);
    return t < a.taps - 1 ? (int)t : a.taps - 1;
}

/* Number n: of n positions before. */
template <int V>
static __device__ __forceinline__ void get_weights(const ConvolveArgs &a, int64_t channel,
                                                   float (&w)[TAPS][V]) {
#pragma unroll
    for (int n = 0; n < TAPS; n++) {
        if (n < a.taps) get_pack<V>(a.w + (a.taps - 1 - n) * a.channels + channel, w[n]);
    }
}

template <int V>
static __device__ __forceinline__ void add_product(float (&sum)[V], const float (&x)[V],
                                                   const float (&y)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) sum[j] = fmaf(x[j], y[j], sum[j]);
}

template <typename T, int V> static __device__ __forceinline__ void forward(const ConvolveArgs &a) {
    const int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const int64_t first = blockIdx.y * a.rows_per_group,
                  end = min(first + a.rows_per_group, a.rows);
    float w[TAPS][V];
    if (channel >= a.channels) return;
    get_weights<V>(a, channel, w);
    int64_t t = first % a.seq;
    for (int64_t row = first; row < end; row++, t = t + 1 < a.seq ? t + 1 : 0) {
        const int reach = reach_back(a, row, t);
        const int64_t at = row * a.channels + channel;
        float sum[V] = {}, x[V];
#pragma unroll
        for (int n = 0; n < TAPS; n++) {
            if (n > reach) break;
            get_pack<V>((const T *)a.x + at - n * a.channels, x);
            add_product<V>(sum, w[n], x);
        }
        put_pack<V>((T *)a.out + at, sum);
    }
}

template <typename T, int V>
static __device__ __forceinline__ void backward(const ConvolveArgs &a) {
    const int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    const int64_t first = blockIdx.y * a.rows_per_group,
                  end = min(first + a.rows_per_group, a.rows);
    float w[TAPS][V], dw[TAPS][V] = {};
    if (channel >= a.channels) return;
    get_weights<V>(a, channel, w);
    int64_t t = first % a.seq;
    for (int64_t row = first; row < end; row++, t = t + 1 < a.seq ? t + 1 : 0) {
        const int reach = reach_back(a, row, t);
        const int64_t at = row * a.channels + channel, after = a.seq - 1 - t;
        float sum[V] = {}, dy[V], x[V];
        get_pack<V>((const T *)a.dy + at, dy);
        add_product<V>(sum, w[0], dy);
#pragma unroll
        for (int n = 0; n < TAPS; n++) {
            if (n > reach) break;
            get_pack<V>((const T *)a.x + at - n * a.channels, x);
            add_product<V>(dw[n], dy, x);
        }
#pragma unroll
        for (int n = 1; n < TAPS; n++) {
            if (n >= a.taps || n > after) break;
            if (reach_back(a, row + n, t + n) < n) continue; /* what is of another document */
            get_pack<V>((const T *)a.dy + at + n * a.channels, x);
            add_product<V>(sum, w[n], x);
        }
        put_pack<V>((T *)a.out + at, sum);
    }
    float *partial = a.partial + (int64_t)blockIdx.y * a.taps * a.channels + channel;
#pragma unroll
    for (int n = 0; n < TAPS; n++) {
        if (n < a.taps) put_pack<V>(partial + (a.taps - 1 - n) * a.channels, dw[n]);
    }
}

#define CONVOLVE_KERNELS(T, suffix)                                                                \
    KERNEL_FUNCTION __launch_bounds__(CONVOLVE_THREADS) convolve_##suffix(ConvolveArgs a) {        \
        forward<T, 1>(a);                                                                          \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(CONVOLVE_THREADS) convolve_packs_##suffix(ConvolveArgs a) {  \
        forward<T, PACK>(a);                                                                       \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(CONVOLVE_THREADS) convolve_grad_##suffix(ConvolveArgs a) {   \
        backward<T, 1>(a);                                                                         \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(CONVOLVE_THREADS)                                            \
        convolve_grad_packs_##suffix(ConvolveArgs a) {                                             \
        backward<T, PACK>(a);                                                                      \
    }
CONVOLVE_KERNELS(float, f32)
CONVOLVE_KERNELS(bf16_t, bf16)
CONVOLVE_KERNELS(f16_t, f16)
