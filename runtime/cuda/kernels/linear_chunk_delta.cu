/* The delta rule by chunks on tensor cores: Yang et al. 2024 (arXiv 2406.06484, section 3.2; Gated
 * DeltaNet, arXiv 2412.06464, section 3.3).
 *
 * A chunk's errors E depend on each other: with R = V less what the state before the chunk has for
 * its keys, E = R - L b E, L being products of keys and earlier ones, decayed, and b the shares
 * that are written. So E = R - W b R with W = (I + L b)^-1 L; and du = X - W' b X, where X is what
 * du would be without the errors of later positions. linear_chunk_transform_* makes W for every
 * chunk and head, in f32 by forward substitution; linear_chunk_errors_* and linear_chunk_reverse_*
 * go along a sequence, a block for each tile of 64 values of a head, with three products for each
 * chunk, five backwards. That R and X themselves stay f32 is why W is not (I + L b)^-1.
 */
#include "runtime/cuda/kernels/linear_chunk.cuh"

/* W, of which thread c makes column c: it needs none of another's. rows: L; written: b W. */
template <typename T>
static __device__ __forceinline__ void substitute(const float *rows, float *written,
                                                  const float *write, T *out) {
    enum { PITCH = LINEAR_CHUNK_PITCH };
    const int c = (int)threadIdx.x;
    for (int i = 0; i < CHUNK; i++) {
        float sum[4] = {i > c ? rows[i * PITCH + c] : 0.0f, 0, 0, 0};
        for (int j = 0; j < i; j += 4) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                if (j + n < i)
                    sum[n] = fmaf(-rows[i * PITCH + j + n], written[(j + n) * PITCH + c], sum[n]);
            }
        }
        const float w = i > c ? sum[0] + sum[1] + (sum[2] + sum[3]) : 0.0f;
        written[i * PITCH + c] = write[i] * w;
        store(out + i * CHUNK + c, w);
    }
}

template <typename T, int K>
static __device__ __forceinline__ void chunk_transform(const LinearChunkTransformArgs &a) {
    enum { THREADS = LINEAR_CHUNK_THREADS, PITCH = LINEAR_CHUNK_PITCH };
    constexpr int K_BYTES = LINEAR_CHUNK_TILE_BYTES(CHUNK, K);
    DYNAMIC_SHARED(unsigned char, shared); /* k, q, then squares of f32 */
    const LinearChunkSizes &s = a.sizes;
    float *const rows = (float *)(shared + 2 * K_BYTES), *const written = rows + CHUNK * PITCH;
    ChunkDecays &d = *(ChunkDecays *)(written + CHUNK * PITCH);
    const int64_t stream = blockIdx.x / s.chunks;
    const ChunkPlace place = {stream / s.heads, (int)(stream % s.heads),
                              (int)(blockIdx.x % s.chunks)};
    const int warp = (int)threadIdx.x / 32, mine = warp * 16;
    const ChunkOperand square = chunk_square(s, place);
    float acc[CHUNK / 8][4];

    chunk_copy_keys<K, THREADS>(shared, a.k, s, place);
    if (a.scores) chunk_copy_keys<K, THREADS>(shared + K_BYTES, a.q, s, place);
    copy_async_commit();
    if (warp == 0) chunk_scan(s, place, d);
    copy_async_wait<0>();
    __syncthreads();
    chunk_clear(acc);
#pragma unroll
    for (int i = 0; i < K_BYTES; i += SQUARE_BYTES)
        chunk_multiply<T>(acc, RowsOf(shared + i, mine), AlongColumns(shared + i));
    chunk_weigh(acc, mine, [&](int i, int j, float x) {
        return rows[i * PITCH + j] = j < i ? x * chunk_between(d, i, j) : 0.0f;
    });
    if (a.scores) {
        chunk_clear(acc);
#pragma unroll
        for (int i = 0; i < K_BYTES; i += SQUARE_BYTES)
            chunk_multiply<T>(acc, RowsOf(shared + K_BYTES + i, mine), AlongColumns(shared + i));
        chunk_weigh(acc, mine, [&](int i, int j, float x) {
            return j <= i ? s.scale * x * chunk_between(d, i, j) : 0.0f;
        });
    }
    __syncthreads();
    if (a.scores) { /* by way of k */
        chunk_put<T>(shared, mine, 0, acc);
        __syncwarp();
        chunk_copy_out<16>(shared, mine, a.scores, square);
    }
    if (threadIdx.x < CHUNK) substitute<T>(rows, written, d.write, (T *)a.transform + square.base);
}

/* What the kernels that go along a sequence have in shared memory. */
template <int K, bool BACKWARDS> struct ErrorsLayout {
    static constexpr int BUFFERS = BACKWARDS ? 1 : 2;
    static constexpr int K_BYTES = LINEAR_CHUNK_TILE_BYTES(CHUNK, K);
    static constexpr int V = (BACKWARDS ? 2 : 1) * K_BYTES; /* behind k and q: v, or do; */
    static constexpr int W = V + SQUARE_BYTES, SCORES = W + SQUARE_BYTES;
    static constexpr int BUFFER = BACKWARDS ? SCORES + SQUARE_BYTES : SCORES;
    static constexpr int STAGE = BUFFERS * BUFFER; /* the state; R times b, or X; du */
    static constexpr int RIGHT = STAGE + LINEAR_CHUNK_TILE_BYTES(K, CHUNK);
    static constexpr int DU = RIGHT + SQUARE_BYTES;
    static constexpr int DECAYS = BACKWARDS ? DU + SQUARE_BYTES : DU;
    static_assert(DECAYS + 2 * LINEAR_CHUNK_DECAYS_BYTES <= LINEAR_CHUNK_ERRORS_SHARED(K), "");
};

/* R or X, of 16 positions and 8 N8 columns. buffer: what was copied in; factor: the state's. */
template <typename T, int K, bool BACKWARDS, int N8>
static __device__ __forceinline__ void
right_side(float (&acc)[N8][4], const ChunkDecays &d, const unsigned char *buffer,
           const unsigned char *stage, float factor, int row, int column) {
    typedef ErrorsLayout<K, BACKWARDS> Layout;
    chunk_clear(acc);
#pragma unroll
    for (int i = 0; i < Layout::K_BYTES; i += SQUARE_BYTES)
        chunk_multiply<T>(acc, RowsOf(buffer + i, row), AlongRows(stage + i, column / 16));
    if constexpr (BACKWARDS) {
        chunk_each(acc, row, [&](int j, int, float x) { return x * factor * d.end[j]; });
        chunk_multiply<T>(acc, ColumnsOf(buffer + Layout::SCORES, row / 16),
                          AlongRows(buffer + Layout::V, column / 16));
    } else {
        chunk_each(acc, row, [&](int i, int n, float x) {
            float even, odd;
            chunk_pair<T>(buffer + Layout::V, i, column + n / 2 * 2, even, odd);
            return (n % 2 ? odd : even) - x * factor * d.start[i];
        });
    }
}

/* The errors or du: less W, or its transpose, times `right`. */
template <typename T, bool BACKWARDS, int N8>
static __device__ __forceinline__ void solve(float (&acc)[N8][4], const unsigned char *transform,
                                             const unsigned char *right, int row, int column) {
    float less[N8][4];
    chunk_clear(less);
    if constexpr (BACKWARDS) {
        chunk_multiply<T>(less, ColumnsOf(transform, row / 16), AlongRows(right, column / 16));
    } else {
        chunk_multiply<T>(less, RowsOf(transform, row), AlongRows(right, column / 16));
    }
#pragma unroll
    for (int i = 0; i < 4 * N8; i++) acc[i / 4][i % 4] -= less[i / 4][i % 4];
}

template <typename T, int K, bool BACKWARDS>
static __device__ __forceinline__ void chunk_errors(const LinearChunkErrorsArgs &a) {
    typedef ErrorsLayout<K, BACKWARDS> Layout;
    constexpr int THREADS = LINEAR_CHUNK_STATES_THREADS(K), WARPS = THREADS / 32;
    constexpr int BUFFERS = Layout::BUFFERS, N = CHUNK / (WARPS / 4); /* a warp's columns */
    DYNAMIC_SHARED(unsigned char, shared);
    const LinearChunkSizes &s = a.sizes;
    unsigned char *const stage = shared + Layout::STAGE, *const right = shared + Layout::RIGHT;
    ChunkDecays *const decays = (ChunkDecays *)(shared + Layout::DECAYS);
    const int tile = (int)blockIdx.x % s.tiles, warp = (int)threadIdx.x / 32;
    const int row = warp % 4 * 16, column = warp / 4 * N, square = warp / 4 * SQUARE_BYTES;
    const int64_t stream = blockIdx.x / s.tiles;
    ChunkPlace place = {stream / s.heads, (int)(stream % s.heads), 0};
    float state[CHUNK / 8][4];

    auto chunk_of = [&](int i) { return BACKWARDS ? s.chunks - 1 - i : i; };
    auto copy_in = [&](int i) {
        const ChunkPlace at = {place.group, place.head, chunk_of(i)};
        unsigned char *to = shared + i % BUFFERS * Layout::BUFFER;
        chunk_copy_keys<K, THREADS>(to, a.k, s, at);
        chunk_copy_in<CHUNK, THREADS>(to + Layout::V, a.v, chunk_values(s, at, tile));
        chunk_copy_in<CHUNK, THREADS>(to + Layout::W, a.transform, chunk_square(s, at));
        if constexpr (BACKWARDS) {
            chunk_copy_keys<K, THREADS>(to + Layout::K_BYTES, a.q, s, at);
            chunk_copy_in<CHUNK, THREADS>(to + Layout::SCORES, a.scores, chunk_square(s, at));
        }
        copy_async_commit();
    };
    chunk_clear(state);
    copy_in(0);
    for (int i = 0; i < s.chunks; i++) {
        place.chunk = chunk_of(i);
        ChunkDecays &d = decays[i % 2];
        unsigned char *const buffer = shared + i % BUFFERS * Layout::BUFFER;
        unsigned char *const solved = BACKWARDS ? shared + Layout::DU : buffer + Layout::V;
        if (warp == 0) chunk_scan(s, place, d);
        const float factor = stage_state<T, WARPS>(state, d.most, stage);
        put_state_factor<T>(s, a.factors, place, tile, factor);
        copy_async_wait<0>();
        __syncthreads();
        if (BUFFERS > 1 && i + 1 < s.chunks) copy_in(i + 1);
        chunk_copy_out<16>(stage, warp * 16, a.states, chunk_state(s, place, 0, tile));
        float acc[N / 8][4], written[N / 8][4];
        right_side<T, K, BACKWARDS>(acc, d, buffer, stage, factor, row, column);
#pragma unroll
        for (int n = 0; n < N / 2; n++) written[n / 4][n % 4] = acc[n / 4][n % 4];
        chunk_each(written, row, [&](int j, int, float x) { return d.write[j] * x; });
        chunk_put<T>(right, row, column, written);
        __syncthreads();
        solve<T, BACKWARDS>(acc, buffer + Layout::W, right, row, column);
        chunk_put<T>(solved, row, column, acc);
        __syncthreads();
        chunk_copy_out<CHUNK / WARPS>(solved, warp * (CHUNK / WARPS), a.errors,
                                      chunk_values(s, place, tile));
        const float carry = d.carry;
        chunk_each(state, 0, [&](int, int, float old) { return old * carry; });
        const WeightedColumnsOf<T> keys = {{buffer + square, warp % 4},
                                           BACKWARDS ? -1.0f : 1.0f,
                                           BACKWARDS ? d.start : d.end,
                                           d.write};
        chunk_multiply<T>(state, keys, AlongRows(solved));
        if constexpr (BACKWARDS) {
            const WeightedColumnsOf<T> queries = {
                {buffer + Layout::K_BYTES + square, warp % 4}, s.scale, d.start, nullptr};
            chunk_multiply<T>(state, queries, AlongRows(buffer + Layout::V));
            __syncthreads();
            if (i + 1 < s.chunks) copy_in(i + 1);
        }
    }
}

#define KERNELS_FOR(keys, T, suffix)                                                               \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_THREADS, 3)                                     \
        linear_chunk_transform_##keys##_##suffix(LinearChunkTransformArgs a) {                     \
        chunk_transform<T, keys>(a);                                                               \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_STATES_THREADS(keys), 1)                        \
        linear_chunk_errors_##keys##_##suffix(LinearChunkErrorsArgs a) {                           \
        chunk_errors<T, keys, false>(a);                                                           \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_STATES_THREADS(keys), 1)                        \
        linear_chunk_reverse_##keys##_##suffix(LinearChunkErrorsArgs a) {                          \
        chunk_errors<T, keys, true>(a);                                                            \
    }
KERNELS_FOR(64, bf16_t, bf16)
KERNELS_FOR(128, bf16_t, bf16)
KERNELS_FOR(64, f16_t, f16)
KERNELS_FOR(128, f16_t, f16)
