/* Rotary position embedding (runtime/cpu/rotary.h says what it computes). A block per position and
 * share of the batch: sines and cosines of the position's pairs are made once, in shared memory.
 * Fractions of a turn are taken in f64, so that far positions lose nothing. */
#include "runtime/cuda/kernels/vector.cuh"

/* As rotary_stretch (ir/ops/rotary.c): per_position is in turns. */
static __device__ __forceinline__ double stretch(const RotaryArgs &a, int pair,
                                                 double per_position) {
    if (a.n_factors) return per_position / a.factors[pair];
    const double divided = per_position / a.factor, turns = per_position * a.context;
    if (a.context == 0 || turns < a.few) return divided;
    if (turns > a.many) return per_position;
    double share = (turns - a.few) / (a.many - a.few);
    if (a.ramp) share = log(turns / a.few) / log(a.many / a.few);
    return (1 - share) * divided + share * per_position;
}

/* Of the position's pairs, whose cosines and sines go into `table`. */
static __device__ __forceinline__ void make_table(const RotaryArgs &a, float2 *table) {
    const int64_t position = a.places ? a.places[blockIdx.y * a.seq + blockIdx.x]
                                      : blockIdx.x + (blockIdx.x < a.split ? a.first : a.second);
    for (int i = threadIdx.x; i < a.turned / 2; i += blockDim.x) {
        const double one = exp2(i * a.log2_step) * 0.15915494309189533577; /* 1 / 2 pi */
        const double turns = (double)position * stretch(a, i, one);
        float sine, cosine;
        sincospif((float)(2.0 * (turns - floor(turns))), &sine, &cosine);
        table[i] = make_float2(cosine * a.scale, sine * a.direction * a.scale);
    }
}

/* Where a head of the block's position begins. */
static __device__ __forceinline__ int64_t first_of(const RotaryArgs &a, int64_t b, int head) {
    return (b * a.seq + blockIdx.x) * a.row + (int64_t)head * a.head;
}

/* Where item number `item` of the block's position begins: V pairs of a head. */
template <int V>
static __device__ __forceinline__ int64_t place_of(const RotaryArgs &a, int64_t b, int item) {
    const int packs = a.turned / 2 / V;
    return first_of(a, b, item / packs) + item % packs * V;
}

/* The numbers of V pairs from `at` on. */
template <typename T, int V>
static __device__ __forceinline__ void get_pairs(const RotaryArgs &a, int64_t at, float *first,
                                                 float *second) {
    Elements<V>::get((const T *)a.x + at, first);
    Elements<V>::get((const T *)a.x + at + a.turned / 2, second);
}

template <typename T, int V>
static __device__ __forceinline__ void rotate(const RotaryArgs &a, float2 *table) {
    const int half = a.turned / 2, packs = half / V, kept = (a.head - a.turned) / V;
    const int items = (int)a.inner * packs, rest = a.x == a.y ? 0 : (int)a.inner * kept;
    float first[V] = {}, second[V] = {};
    /* A thread's first numbers are on their way while the table is made. */
    bool loaded = (int)threadIdx.x < items;
    if (loaded) get_pairs<T, V>(a, place_of<V>(a, blockIdx.y, threadIdx.x), first, second);
    make_table(a, table);
    __syncthreads();
    for (int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
        for (int item = threadIdx.x; item < items; item += blockDim.x) {
            const int pair = item % packs * V;
            const int64_t at = place_of<V>(a, b, item);
            if (!loaded) get_pairs<T, V>(a, at, first, second);
            loaded = false;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const float2 turn = table[pair + i]; /* cosine, sine */
                const float x = first[i], y = second[i];
                first[i] = x * turn.x - y * turn.y;
                second[i] = y * turn.x + x * turn.y;
            }
            Elements<V>::put((T *)a.y + at, first);
            Elements<V>::put((T *)a.y + at + half, second);
        }
        for (int item = threadIdx.x; item < rest; item += blockDim.x) {
            const int64_t at = first_of(a, b, item / kept) + a.turned + item % kept * V;
            float values[V];
            Elements<V>::get((const T *)a.x + at, values);
            Elements<V>::put((T *)a.y + at, values);
        }
    }
}

template <typename T> static __device__ __forceinline__ void rotary_position(const RotaryArgs &a) {
    enum { V = VectorOf<T>::N };
    DYNAMIC_SHARED(float2, table);
    if (a.turned / 2 % V == 0 && a.head % V == 0) {
        rotate<T, V>(a, table);
    } else {
        rotate<T, 1>(a, table);
    }
}

KERNEL_FUNCTION __launch_bounds__(256) rotary_f32(RotaryArgs a) {
    rotary_position<float>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) rotary_bf16(RotaryArgs a) {
    rotary_position<bf16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(256) rotary_f16(RotaryArgs a) {
    rotary_position<f16_t>(a);
}
