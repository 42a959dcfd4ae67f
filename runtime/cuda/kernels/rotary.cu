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

template <typename T, int V>
static __device__ __forceinline__ void rotate(const RotaryArgs &a, const float2 *table) {
    const int half = a.turned / 2, packs = half / V, kept = (a.head - a.turned) / V;
    const int items = (int)a.inner * packs, rest = a.x == a.y ? 0 : (int)a.inner * kept;
    for (int64_t b = blockIdx.y; b < a.batch; b += gridDim.y) {
        const int64_t row = (b * a.seq + blockIdx.x) * a.inner * a.head;
        for (int item = threadIdx.x; item < items; item += blockDim.x) {
            const int pair = item % packs * V;
            const int64_t at = row + (int64_t)(item / packs) * a.head + pair;
            float first[V], second[V];
            Elements<V>::get((const T *)a.x + at, first);
            Elements<V>::get((const T *)a.x + at + half, second);
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
            const int64_t at = row + (int64_t)(item / kept) * a.head + a.turned + item % kept * V;
            float values[V];
            Elements<V>::get((const T *)a.x + at, values);
            Elements<V>::put((T *)a.y + at, values);
        }
    }
}

template <typename T> static __device__ __forceinline__ void rotary_position(const RotaryArgs &a) {
    enum { V = VectorOf<T>::N };
    DYNAMIC_SHARED(float2, table);
    const int half = a.turned / 2;
    const int64_t position = a.places ? a.places[blockIdx.y * a.seq + blockIdx.x]
                                      : blockIdx.x + (blockIdx.x < a.split ? a.first : a.second);
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        const double one = exp2(i * a.log2_step) * 0.15915494309189533577; /* 1 / 2 pi */
        const double turns = (double)position * stretch(a, i, one);
        float sine, cosine;
        sincospif((float)(2.0 * (turns - floor(turns))), &sine, &cosine);
        table[i] = make_float2(cosine * a.scale, sine * a.direction * a.scale);
    }
    __syncthreads();
    if (half % V == 0 && a.head % V == 0) {
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
