/* Linear attention by chunks on tensor cores, bf16 or f16 in and out, states and sums in f32: Dao &
 * Gu 2024 (arXiv 2405.21060, section 6); Yang et al. 2024 (GLA, arXiv 2312.06635, section 4).
 *
 * Two launches. linear_chunk_states_*: a block goes along a sequence with a tile of 64 values of a
 * head's state in its registers and leaves the state before each chunk in memory; of chunks it
 * does one product, so that what must go one after the other is short. linear_chunk_out_*: a block
 * for each chunk, and as many of the group's heads as leave enough blocks, which share the products
 * of queries and keys. Both go backwards, too: to gradients of states, and of values.
 *
 * For each head and chunk 64 keys values multiplications in either, 64 64 values in the second and,
 * once for all of the block's heads, 64 64 keys; 2 keys values bytes are written, and read.
 */
#include "runtime/cuda/kernels/linear_chunk.cuh"

template <typename T, int K>
static __device__ __forceinline__ void chunk_states(const LinearChunkStatesArgs &a) {
    constexpr int THREADS = LINEAR_CHUNK_STATES_THREADS(K), BUFFERS = LINEAR_CHUNK_BUFFERS(K);
    constexpr int X_BYTES = LINEAR_CHUNK_TILE_BYTES(CHUNK, K), BUFFER = X_BYTES + SQUARE_BYTES;
    DYNAMIC_SHARED(unsigned char, shared); /* buffers of (x, u), the state as it goes out */
    const LinearChunkSizes &s = a.sizes;
    unsigned char *const stage = shared + BUFFERS * BUFFER;
    ChunkDecays *const decays = (ChunkDecays *)(stage + LINEAR_CHUNK_TILE_BYTES(K, CHUNK));
    const int tile = (int)blockIdx.x % s.tiles, warp = (int)threadIdx.x / 32;
    const int64_t stream = blockIdx.x / s.tiles;
    ChunkPlace place = {stream / s.heads, (int)(stream % s.heads), 0};
    float state[CHUNK / 8][4];

    auto chunk_of = [&](int i) { return a.backwards ? s.chunks - 1 - i : i; };
    auto copy_in = [&](int i) {
        const ChunkPlace at = {place.group, place.head, chunk_of(i)};
        unsigned char *to = shared + i % BUFFERS * BUFFER;
        chunk_copy_keys<K, THREADS>(to, a.x, s, at);
        chunk_copy_in<CHUNK, THREADS>(to + X_BYTES, a.u, chunk_values(s, at, tile));
        copy_async_commit();
    };
    chunk_clear(state);
    copy_in(0);
    for (int i = 0; i < s.chunks; i++) {
        place.chunk = chunk_of(i);
        ChunkDecays &d = decays[i % 2];
        const unsigned char *x = shared + i % BUFFERS * BUFFER;
        if (warp == 0) chunk_scan(s, place, d);
        const float factor = stage_state<T, THREADS / 32>(state, d.most, stage);
        put_state_factor<T>(s, a.factors, place, tile, factor);
        copy_async_wait<0>();
        __syncthreads();
        if (BUFFERS > 1 && i + 1 < s.chunks) copy_in(i + 1);
        chunk_copy_out<16>(stage, warp * 16, a.states, chunk_state(s, place, 0, tile));
        const float carry = d.carry;
        chunk_each(state, 0, [&](int, int, float old) { return old * carry; });
        const WeightedColumnsOf<T> weighted = {{x + warp / 4 * SQUARE_BYTES, warp % 4},
                                               a.backwards ? s.scale : 1.0f,
                                               a.backwards ? d.start : d.end,
                                               a.backwards ? nullptr : d.write};
        chunk_multiply<T>(state, weighted, AlongRows(x + X_BYTES));
        if (BUFFERS == 1) {
            __syncthreads();
            if (i + 1 < s.chunks) copy_in(i + 1);
        } else {
            __syncwarp(); /* its rows of the stage are written again */
        }
    }
}

/* Of the block's heads one after the other, tiles of values within them. */
template <typename T, int K>
static __device__ __forceinline__ void chunk_out(const LinearChunkOutArgs &a) {
    constexpr int THREADS = LINEAR_CHUNK_THREADS, BUFFERS = LINEAR_CHUNK_BUFFERS(K);
    constexpr int X_BYTES = LINEAR_CHUNK_TILE_BYTES(CHUNK, K), BUFFER = X_BYTES + SQUARE_BYTES;
    DYNAMIC_SHARED(unsigned char, shared); /* x, buffers of (state, u), what goes out */
    const LinearChunkSizes &s = a.sizes;
    unsigned char *const buffers = shared + X_BYTES, *const out = buffers + BUFFERS * BUFFER;
    ChunkDecays *const decays = (ChunkDecays *)(out + SQUARE_BYTES);
    const int run = (int)blockIdx.x % s.runs, first_head = run * s.run_heads;
    const int64_t row = blockIdx.x / s.runs;
    ChunkPlace place = {row / s.chunks, first_head, (int)(row % s.chunks)};
    const int items = (min(first_head + s.run_heads, s.heads) - first_head) * s.tiles;
    float scores[CHUNK / 8][4], weights[CHUNK / 8][4];

    auto copy_in = [&](int item) {
        const ChunkPlace at = {place.group, first_head + item / s.tiles, place.chunk};
        const int tile = item % s.tiles;
        unsigned char *to = buffers + item % BUFFERS * BUFFER;
        chunk_copy_in<K, THREADS>(to, a.states, chunk_state(s, at, 0, tile));
        chunk_copy_in<CHUNK, THREADS>(to + X_BYTES, a.u, chunk_values(s, at, tile));
        copy_async_commit();
    };
    const int warp = (int)threadIdx.x / 32, mine = warp * 16;
    chunk_copy_keys<K, THREADS>(shared, a.x, s, place);
    chunk_copy_keys<K, THREADS>(buffers, a.y, s, place);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    chunk_clear(scores);
#pragma unroll
    for (int i = 0; i < X_BYTES; i += SQUARE_BYTES)
        chunk_multiply<T>(scores, RowsOf(shared + i, mine), AlongColumns(buffers + i));
    __syncthreads();
    copy_in(0);
    for (int item = 0; item < items; item++) {
        const int tile = item % s.tiles;
        place.head = first_head + item / s.tiles;
        ChunkDecays &d = decays[place.head % 2];
        const unsigned char *state = buffers + item % BUFFERS * BUFFER;
        if (tile == 0 && warp == 0) chunk_scan(s, place, d);
        copy_async_wait<0>();
        __syncthreads();
        if (BUFFERS > 1 && item + 1 < items) copy_in(item + 1);
        if (tile == 0) {
#pragma unroll
            for (int i = 0; i < CHUNK / 2; i++) weights[i / 4][i % 4] = scores[i / 4][i % 4];
            chunk_weigh(weights, mine, [&](int i, int j, float x) {
                if (a.backwards) return j >= i ? s.scale * x * chunk_between(d, j, i) : 0.0f;
                return j <= i ? s.scale * x * chunk_between(d, i, j) * d.write[j] : 0.0f;
            });
        }
        const float *share = a.backwards ? d.end : d.start;
        const float factor =
            (a.backwards ? 1.0f : s.scale) * state_factor<T>(s, a.factors, place, tile);
        float acc[CHUNK / 8][4];
        chunk_clear(acc);
#pragma unroll
        for (int i = 0; i < X_BYTES; i += SQUARE_BYTES)
            chunk_multiply<T>(acc, RowsOf(shared + i, mine), AlongRows(state + i));
        chunk_each(acc, mine, [&](int i, int, float x) { return x * factor * share[i]; });
        chunk_multiply<T>(acc, PackedRows<T>(weights), AlongRows(state + X_BYTES));
        __syncwarp();
        chunk_put<T>(out, mine, 0, acc);
        __syncwarp();
        chunk_copy_out<16>(out, mine, a.out, chunk_values(s, place, tile));
        if (BUFFERS == 1) {
            __syncthreads();
            if (item + 1 < items) copy_in(item + 1);
        }
    }
}

#define KERNELS_FOR(keys, T, suffix, blocks)                                                       \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_STATES_THREADS(keys), 1)                        \
        linear_chunk_states_##keys##_##suffix(LinearChunkStatesArgs a) {                           \
        chunk_states<T, keys>(a);                                                                  \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_THREADS, blocks)                                \
        linear_chunk_out_##keys##_##suffix(LinearChunkOutArgs a) {                                 \
        chunk_out<T, keys>(a);                                                                     \
    }
KERNELS_FOR(64, bf16_t, bf16, 3)
KERNELS_FOR(128, bf16_t, bf16, 2)
KERNELS_FOR(256, bf16_t, bf16, 2)
KERNELS_FOR(64, f16_t, f16, 3)
KERNELS_FOR(128, f16_t, f16, 2)
KERNELS_FOR(256, f16_t, f16, 2)
