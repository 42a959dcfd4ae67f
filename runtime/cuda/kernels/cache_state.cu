/* Layers that carry a state, going on from where a sequence's cache is: linear attention and
 * convolutions (ir/ops/linear_attention.c and convolve.c for the equations and papers). Position
 * by position; at place 0 a sequence begins anew, and at a negative one its new positions end. */
#include "runtime/cuda/kernels/device.cuh"

enum { TILE = CACHE_STATE_TILE, WARPS = CACHE_STATE_WARPS };

/* The sum of what the warps have of each column, warp after warp. */
static __device__ __forceinline__ float sum_warps(const float (&parts)[WARPS][TILE]) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[w][threadIdx.x % TILE];
    return sum;
}

/* A warp has every eighth row of the state, a lane a column of it. */
template <int ROWS>
static __device__ __forceinline__ void attend_state(const CacheLinearAttentionArgs &a) {
    __shared__ float had[WARPS][TILE], read[2][WARPS][TILE];
    const int lane = (int)threadIdx.x % TILE, warp = (int)threadIdx.x / TILE;
    const int64_t stream = blockIdx.x / (unsigned)a.tiles, heads = (int64_t)a.groups * a.heads;
    const int64_t batch = stream / heads, head = stream % heads, group = head / a.heads;
    const int column = (int)(blockIdx.x % (unsigned)a.tiles) * TILE + lane;
    const bool there = column < a.values;
    const int row = a.rows[batch];
    const bool known = row >= 0 && row < a.sequences;
    float *const states = a.states + ((int64_t)row * heads + head) * a.keys * a.values + column;
    float state[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int key = warp + i * WARPS;
        state[i] = known && there && key < a.keys ? states[(int64_t)key * a.values] : 0;
    }
    int t = 0;
    for (; t < a.seq; t++) {
        const int64_t position = batch * a.seq + t, at = position * heads + head;
        const int64_t keys = (position * a.groups + group) * a.keys + warp;
        const int place = a.places[position];
        if (!known || place < 0) break;
        float u = there ? load_as(a.dtype, a.v, at * a.values + column) : 0, sum = 0;
        if (a.by_keys) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const int key = warp + i * WARPS;
                const float decay = key < a.keys ? expf(a.decay[at * a.keys + key]) : 0.0f;
                state[i] = place ? state[i] * decay : 0;
            }
        } else {
            const float decay = expf(a.decay[at]);
#pragma unroll
            for (int i = 0; i < ROWS; i++) state[i] = place ? state[i] * decay : 0;
        }
        if (a.write) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (warp + i * WARPS < a.keys)
                    sum = fmaf(state[i], load_as(a.dtype, a.k, keys + i * WARPS), sum);
            }
            had[warp][lane] = sum;
            __syncthreads();
            /* What is written are the errors as training keeps them. */
            u = a.write[at] * round_as(a.dtype, u - sum_warps(had));
            sum = 0;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (warp + i * WARPS >= a.keys) continue;
            state[i] = fmaf(load_as(a.dtype, a.k, keys + i * WARPS), u, state[i]);
            sum = fmaf(state[i], load_as(a.dtype, a.q, keys + i * WARPS), sum);
        }
        /* Two of them, in turn: the first warp may still read the last position's. */
        read[t % 2][warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && there)
            store_as(a.dtype, a.o, at * a.values + column, a.scale * sum_warps(read[t % 2]));
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int key = warp + i * WARPS;
        if (known && there && key < a.keys) states[(int64_t)key * a.values] = state[i];
    }
    for (; t < a.seq && warp == 0 && there; t++)
        store_as(a.dtype, a.o, ((batch * a.seq + t) * heads + head) * a.values + column, 0.0f);
}

#define STATE_KERNEL(keys)                                                                         \
    KERNEL_FUNCTION __launch_bounds__(TILE *WARPS, 2)                                              \
        cache_linear_attention_##keys(CacheLinearAttentionArgs a) {                                \
        attend_state<keys / WARPS>(a);                                                             \
    }
STATE_KERNEL(64)
STATE_KERNEL(128)
STATE_KERNEL(256)

/* The new positions of a row of the batch before `end`, up to the first that is none. */
static __device__ __forceinline__ int64_t count_new(const CacheConvolveArgs &a, int64_t batch,
                                                    int64_t end) {
    const int row = a.rows[batch];
    int64_t n = 0;
    if (row < 0 || row >= a.sequences) return 0;
    while (n < end && a.places[batch * a.seq + n] >= 0) n++;
    return n;
}

/* Position t of the new ones or, before them, of what the cache has. */
static __device__ __forceinline__ float get_position(const CacheConvolveArgs &a, int64_t batch,
                                                     int64_t t, int64_t channel) {
    if (t >= 0) return load_as(a.dtype, a.x, (batch * a.seq + t) * a.channels + channel);
    const int64_t kept = (int64_t)a.rows[batch] * (a.taps - 1) + a.taps - 1 + t;
    return load_as(a.dtype, a.cache, kept * a.channels + channel);
}

/* A thread for each number of y. */
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_convolve(CacheConvolveArgs a) {
    const int64_t channel = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (channel >= a.channels) return;
    for (int64_t at = blockIdx.y; at < a.batch * a.seq; at += gridDim.y) {
        const int64_t batch = at / a.seq, t = at % a.seq;
        float sum = 0;
        if (count_new(a, batch, t + 1) == t + 1) {
            int64_t reach = a.places[at];
            if (a.documents && a.documents[at] < reach) reach = max(a.documents[at], 0);
            if (reach > a.taps - 1) reach = a.taps - 1;
            for (int n = 0; n <= reach; n++) {
                sum = fmaf(a.w[(a.taps - 1 - n) * a.channels + channel],
                           get_position(a, batch, t - n, channel), sum);
            }
        }
        store_as(a.dtype, a.y, at * a.channels + channel, sum);
    }
}

/* The cache becomes the last of what it had and the new positions: a thread for each channel of a
 * row, which moves what is nearer to the front first. */
KERNEL_FUNCTION __launch_bounds__(CACHE_THREADS) cache_convolve_keep(CacheConvolveArgs a) {
    const int64_t channel = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (channel >= a.channels) return;
    for (int64_t batch = blockIdx.y; batch < a.batch; batch += gridDim.y) {
        const int64_t n = count_new(a, batch, a.seq);
        for (int64_t i = 0; n > 0 && i < a.taps - 1; i++) {
            const float kept = get_position(a, batch, n - (a.taps - 1) + i, channel);
            store_as(a.dtype, a.cache,
                     ((int64_t)a.rows[batch] * (a.taps - 1) + i) * a.channels + channel, kept);
        }
    }
}
