/* Sparse mixtures of experts (runtime/cpu/route.h says what these compute): no atomics, every sum
 * in one order. What a table says is checked before it is followed. */
#include "runtime/cuda/kernels/vector.cuh"

/* Ascending as the numbers are; not-a-number below all, both zeros alike. */
static __device__ __forceinline__ uint32_t rank_of(float x) {
    const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    if (x != x) return 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ uint64_t key_of(float score, int number) {
    return (uint64_t)rank_of(score) << 32 | (uint32_t)~number;
}

/* A bit for each group that may be chosen from; a lane has a group. */
static __device__ __forceinline__ uint32_t keep_groups(const RouteTopArgs &a, const float *scores,
                                                       int lane) {
    const int each = a.n / a.groups;
    float first = 0.0f, second = 0.0f;
    if (a.groups == 1) return 1;
    for (int i = 0; lane < a.groups && i < each; i++) {
        const float score = scores[lane * each + i];
        if (i == 0 || rank_of(score) > rank_of(first)) {
            second = first;
            first = score;
        } else if (i == 1 || rank_of(score) > rank_of(second)) {
            second = score;
        }
    }
    const uint64_t key = key_of(a.best > 1 ? first + second : first, lane);
    int greater = 0;
    for (int g = 0; g < a.groups; g++) {
        const uint32_t high = __shfl_sync(0xffffffffu, (uint32_t)(key >> 32), g);
        const uint32_t low = __shfl_sync(0xffffffffu, (uint32_t)key, g);
        if (((uint64_t)high << 32 | low) > key) greater++;
    }
    return __ballot_sync(0xffffffffu, lane < a.groups && greater < a.kept);
}

/* A warp per row, a round per choice: the greatest key below the last one's. Keys end in the
 * number, the lesser the greater, so no two are equal. */
KERNEL_FUNCTION __launch_bounds__(256) route_top(RouteTopArgs a) {
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= a.rows) return;
    const float *scores = a.scores + row * a.n;
    const uint32_t kept = keep_groups(a, scores, lane);
    const int each = a.n / a.groups;
    uint64_t before = ~(uint64_t)0;
    for (int j = 0; j < a.count; j++) {
        uint64_t best = 0;
        for (int i = lane; i < a.n; i += 32) {
            const uint64_t key = kept >> i / each & 1 ? key_of(scores[i], i) : 0;
            if (key < before && key > best) best = key;
        }
#pragma unroll
        for (int bits = 16; bits > 0; bits /= 2) {
            const uint32_t high = __shfl_xor_sync(0xffffffffu, (uint32_t)(best >> 32), bits);
            const uint32_t low = __shfl_xor_sync(0xffffffffu, (uint32_t)best, bits);
            const uint64_t other = (uint64_t)high << 32 | low;
            if (other > best) best = other;
        }
        if (lane == 0) a.chosen[row * a.count + j] = (int32_t) ~(uint32_t)best;
        before = best;
    }
}

/* A thread per result. */
KERNEL_FUNCTION __launch_bounds__(256) route_take(RouteTakeArgs a) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.count) return;
    const int32_t at = a.index[i];
    a.out[i] = at >= 0 && at < a.n ? a.x[i / a.count * a.n + at] : 0.0f;
}

KERNEL_FUNCTION __launch_bounds__(256) route_put(RouteTakeArgs a) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.rows * a.n) return;
    const int64_t row = i / a.n;
    const int32_t column = (int32_t)(i - row * a.n);
    float sum = 0.0f;
    for (int64_t j = row * a.count; j < (row + 1) * a.count; j++) {
        if (a.index[j] == column) sum += a.x[j];
    }
    a.out[i] = sum;
}

/* Sum over the threads before this one, and over all. warps [32]; barriers are inside. */
static __device__ __forceinline__ int count_before(int x, int *warps, int *out_total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = x;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, sum, delta);
        if (lane >= delta) sum += below;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++) {
        if (w == warp) before = total;
        total += warps[w];
    }
    __syncthreads();
    *out_total = total;
    return before + sum - x;
}

/* A block per expert (x) and sequence (y). Those of other ranks are counted, too: everyone needs
 * all slots. Blocks from `experts` on empty this rank's padding; block 0 also answers choices that
 * name no expert. */
KERNEL_FUNCTION __launch_bounds__(ROUTE_THREADS) route_tables(RouteTablesArgs a) {
    __shared__ int warps[ROUTE_THREADS / 32];
    const int expert = blockIdx.x;
    const int64_t b = blockIdx.y;
    const int own = expert < a.experts ? expert - a.first : a.valid + (expert - a.experts);
    const bool has_tokens = own >= 0 && own < a.local;
    const int32_t *chosen = a.chosen + b * a.choices_each;
    int32_t *slots = a.slots_out + b * a.choices_each;
    int32_t *tokens = has_tokens ? a.tokens + ((int64_t)own * a.batch + b) * a.slots : nullptr;
    int filled = 0;
    for (int64_t tile = 0; expert < a.experts && tile < a.choices_each;
         tile += ROUTE_THREADS * ROUTE_EACH) {
        const int64_t first = tile + (int64_t)threadIdx.x * ROUTE_EACH;
        int32_t here[ROUTE_EACH];
        int count = 0, total;
#pragma unroll
        for (int j = 0; j < ROUTE_EACH; j++) {
            here[j] = first + j < a.choices_each ? chosen[first + j] : expert + 1;
            count += here[j] == expert;
        }
        int place = filled - a.from + count_before(count, warps, &total);
#pragma unroll
        for (int j = 0; j < ROUTE_EACH; j++) {
            const bool nowhere = here[j] < 0 || here[j] >= a.experts;
            if (expert == 0 && nowhere && first + j < a.choices_each) slots[first + j] = -1;
            if (here[j] != expert) continue;
            const bool fits = place >= 0 && place < a.slots;
            slots[first + j] = fits ? expert * a.slots + place : -1;
            if (fits && tokens) tokens[place] = (int32_t)(first + j);
            place++;
        }
        filled += total;
    }
    if (threadIdx.x == 0 && expert < a.experts) {
        a.counts[b * a.experts + expert] = (float)filled;
    }
    filled = filled > a.from ? filled - a.from : 0;
    for (int i = filled + threadIdx.x; tokens && i < a.slots; i += blockDim.x) tokens[i] = -1;
}

/* Number of this warp's row among all. */
static __device__ __forceinline__ int64_t warp_row() {
    return (int64_t)blockIdx.x * ROUTE_ROW_WARPS + threadIdx.x / 32;
}

template <typename T, int V>
static __device__ __forceinline__ void dispatch_row(const RouteRowsArgs &a) {
    const int64_t row = warp_row(), each = a.seq * a.choices;
    if (row >= a.local * a.batch * a.slots) return;
    const int64_t b = row / a.slots % a.batch, at = a.table[row];
    const bool has_token = at >= 0 && at < each;
    const float gate = has_token && a.gates ? a.gates[b * each + at] : 1.0f;
    const T *from = (const T *)a.x + (has_token ? b * a.seq + at / a.choices : 0) * a.model;
    T *to = (T *)a.out + row * a.model;
#pragma unroll 4
    for (int64_t i = threadIdx.x % 32 * V; i < a.model; i += 32 * V) {
        float v[V] = {};
        if (has_token) Elements<V>::get(from + i, v);
#pragma unroll
        for (int j = 0; j < V; j++) v[j] *= gate;
        Elements<V>::put(to + i, v);
    }
}

/* Where the row of choice number `at` begins in rows of slots, or -1. */
static __device__ __forceinline__ int64_t slot_row(const RouteRowsArgs &a, int64_t at) {
    const int32_t slot = a.table[at];
    const int32_t expert = slot / a.slots - a.first;
    const int64_t b = at / (a.seq * a.choices);
    if (slot < 0 || expert < 0 || expert >= a.valid) return -1;
    return (((int64_t)expert * a.batch + b) * a.slots + slot % a.slots) * a.model;
}

template <typename T, int V>
static __device__ __forceinline__ void combine_row(const RouteRowsArgs &a) {
    const int64_t token = warp_row();
    if (token >= a.batch * a.seq) return;
    T *to = (T *)a.out + token * a.model;
    for (int64_t i = threadIdx.x % 32 * V; i < a.model; i += 32 * V) {
        float sum[V] = {};
#pragma unroll 4
        for (int64_t at = token * a.choices; at < (token + 1) * a.choices; at++) {
            const int64_t row = slot_row(a, at);
            const float gate = a.gates ? a.gates[at] : 1.0f;
            float v[V];
            if (row < 0) continue;
            Elements<V>::get((const T *)a.x + row + i, v);
#pragma unroll
            for (int j = 0; j < V; j++) sum[j] = fmaf(gate, v[j], sum[j]);
        }
        Elements<V>::put(to + i, sum);
    }
}

template <typename T, int V>
static __device__ __forceinline__ void dot_row(const RouteRowsArgs &a) {
    const int64_t at = warp_row();
    if (at >= a.batch * a.seq * a.choices) return;
    const int64_t row = slot_row(a, at);
    const T *y = (const T *)a.y + at / a.choices * a.model;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = threadIdx.x % 32 * V; row >= 0 && i < a.model; i += 32 * V) {
        float v[V], w[V];
        Elements<V>::get((const T *)a.x + row + i, v);
        Elements<V>::get(y + i, w);
#pragma unroll
        for (int j = 0; j < V; j++) sum = fmaf(v[j], w[j], sum);
    }
    sum = warp_total(sum);
    if (threadIdx.x % 32 == 0) ((float *)a.out)[at] = sum;
}

#define ROWS(name, type, T)                                                                        \
    KERNEL_FUNCTION __launch_bounds__(32 * ROUTE_ROW_WARPS)                                        \
        route_##name##_##type(RouteRowsArgs a) {                                                   \
        if (a.model % VectorOf<T>::N == 0) {                                                       \
            name##_row<T, VectorOf<T>::N>(a);                                                      \
        } else {                                                                                   \
            name##_row<T, 1>(a);                                                                   \
        }                                                                                          \
    }
ROWS(dispatch, f32, float)
ROWS(dispatch, bf16, bf16_t)
ROWS(dispatch, f16, f16_t)
ROWS(combine, f32, float)
ROWS(combine, bf16, bf16_t)
ROWS(combine, f16, f16_t)
ROWS(dot, f32, float)
ROWS(dot, bf16, bf16_t)
ROWS(dot, f16, f16_t)
