/* Token embedding (runtime/cpu/embedding.h says what it computes) and its gradient, which has no
 * floating-point atomics: tokens are sorted by row, keeping their order; sorted places are cut into
 * chunks of one size, whatever the tokens, so that a frequent token is summed by many blocks; what
 * lies in one chunk is summed in order, and the chunks' parts of a longer run are joined in order.
 */
#include "runtime/cuda/kernels/vector.cuh"

/* A warp per token; rows are copied as they are, whatever their dtype. */
template <typename Unit>
static __device__ __forceinline__ void copy_rows(const EmbeddingArgs &a, Unit zero) {
    enum { AHEAD = 4 }; /* loads under way */
    const int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= a.n) return;
    const int64_t row = a.tokens[i] - a.vocab_offset, units = a.row_bytes / (int)sizeof(Unit);
    const bool here = row >= 0 && row < a.vocab_local;
    const Unit *from = (const Unit *)a.table + (here ? row : 0) * units;
    Unit *to = (Unit *)a.out + i * units;
    for (int64_t k = threadIdx.x % 32; k < units; k += AHEAD * 32) {
        Unit ahead[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            ahead[j] = here && k + j * 32 < units ? from[k + j * 32] : zero;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (k + j * 32 < units) to[k + j * 32] = ahead[j];
        }
    }
}

KERNEL_FUNCTION __launch_bounds__(256) embedding_rows(EmbeddingArgs a) {
    if (a.row_bytes % 16 == 0) {
        copy_rows<uint4>(a, make_uint4(0, 0, 0, 0));
    } else if (a.row_bytes % 4 == 0) {
        copy_rows<uint32_t>(a, 0);
    } else {
        copy_rows<uint16_t>(a, 0);
    }
}

/* Sum of x over the threads before this one; *out_total: over all. scratch [33]; both barriers are
 * inside, so that it may be called again at once. */
static __device__ __forceinline__ int sum_before(int x, int *scratch, int *out_total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int sum = x;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, sum, delta);
        if (lane >= delta) sum += below;
    }
    if (lane == 31) scratch[warp] = sum;
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < warps; w++) {
        if (w == warp) before = total;
        total += scratch[w];
    }
    __syncthreads();
    *out_total = total;
    return before + sum - x;
}

/* The row of place i among this block's, or -1. */
static __device__ __forceinline__ int block_row(const EmbeddingSortArgs &a, int64_t i,
                                                int64_t first, int n_rows) {
    if (i >= a.n) return -1;
    const int64_t row = a.tokens[i] - a.vocab_offset - first;
    return row >= 0 && row < n_rows ? (int)row : -1;
}

/* counts[row] -> the first sorted place of the row: `base` and all rows before. */
static __device__ __forceinline__ void place_rows(int *counts, int n_rows, int base, int *scratch) {
    const int each = (n_rows + blockDim.x - 1) / blockDim.x;
    const int first = threadIdx.x * each < n_rows ? threadIdx.x * each : n_rows;
    const int end = first + each < n_rows ? first + each : n_rows;
    int sum = 0, total;
    for (int row = first; row < end; row++) sum += counts[row];
    int at = base + sum_before(sum, scratch, &total);
    for (int row = first; row < end; row++) {
        const int count = counts[row];
        counts[row] = at;
        at += count;
    }
    __syncthreads();
}

/* One warp gives the found tokens their places, 32 at a time, in order. */
static __device__ __forceinline__ void place_found(const EmbeddingSortArgs &a, const int2 *found,
                                                   int n_found, int first_row, int *next) {
    const int lane = threadIdx.x % 32;
    for (int k = 0; k < n_found; k += 32) {
        const bool active = k + lane < n_found;
        const int2 token = active ? found[k + lane] : make_int2(-1 - lane, 0); /* row, place */
        const unsigned same = __match_any_sync(0xffffffffu, token.x);
        const int rank = __popc(same & ((1u << lane) - 1));
        if (active) {
            const int at = next[token.x] + rank;
            a.order[at] = token.y;
            a.rows[at] = first_row + token.x;
        }
        __syncwarp(); /* orders memory, as shuffles and votes do not */
        if (active && rank == 0) next[token.x] += __popc(same);
        __syncwarp();
    }
}

KERNEL_FUNCTION __launch_bounds__(EMBEDDING_SORT_THREADS) embedding_sort(EmbeddingSortArgs a) {
    enum { EACH = 4, TILE = EACH * EMBEDDING_SORT_THREADS };
    __shared__ int next[EMBEDDING_SORT_ROWS], scratch[32];
    __shared__ int2 found[TILE];
    const int64_t first = (int64_t)blockIdx.x * a.block_rows;
    const int n_rows =
        (int)(a.vocab_local - first < a.block_rows ? a.vocab_local - first : a.block_rows);
    int below = 0, here = 0, base, total;
    for (int row = threadIdx.x; row < n_rows; row += blockDim.x) next[row] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        const int64_t row = a.tokens[i] - a.vocab_offset - first;
        if (row < 0 && row >= -first) below++;
        if (row >= 0 && row < n_rows) {
            atomicAdd(&next[row], 1);
            here++;
        }
    }
    sum_before(below, scratch, &base);
    sum_before(here, scratch, &total);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) *a.count = base + total;
    place_rows(next, n_rows, base, scratch);
    for (int64_t tile = 0; tile < a.n; tile += TILE) {
        int rows[EACH], count = 0, n_found;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            rows[j] = block_row(a, tile + threadIdx.x * EACH + j, first, n_rows);
            count += rows[j] >= 0;
        }
        int at = sum_before(count, scratch, &n_found);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (rows[j] >= 0) {
                found[at++] = make_int2(rows[j], (int)(tile + threadIdx.x * EACH + j));
            }
        }
        __syncthreads();
        /* The next tile's barriers come before `found` is written again. */
        if (threadIdx.x < 32) place_found(a, found, n_found, (int)first, next);
    }
}

/* Where a run of equal rows goes in its chunk. */
struct Chunk {
    int64_t begin, end, count;
    bool from_before, goes_on;
};

static __device__ __forceinline__ Chunk chunk_at(const EmbeddingSumArgs &a, int64_t number) {
    Chunk c = {number * a.chunk, (number + 1) * a.chunk, *a.count, false, false};
    if (c.end > c.count) c.end = c.count;
    if (c.begin >= c.end) return c;
    c.from_before = c.begin > 0 && a.rows[c.begin - 1] == a.rows[c.begin];
    c.goes_on = c.end < c.count && a.rows[c.end] == a.rows[c.end - 1];
    return c;
}

/* f32 at `p`, 16 bytes at a time where there are as many. */
template <int V> struct Sums {
    enum { AT_ONCE = V < 4 ? 1 : 4 };
    static __device__ __forceinline__ void get(const float *p, float (&x)[V]) {
#pragma unroll
        for (int i = 0; i < V; i += AT_ONCE) Elements<AT_ONCE>::get(p + i, x + i);
    }
    static __device__ __forceinline__ void put(float *p, const float (&x)[V]) {
#pragma unroll
        for (int i = 0; i < V; i += AT_ONCE) Elements<AT_ONCE>::put(p + i, x + i);
    }
};

template <int V>
static __device__ __forceinline__ void add_to_table(const EmbeddingSumArgs &a, int64_t row,
                                                    int64_t column, float (&sum)[V]) {
    float *to = a.dtable + row * a.model + column;
    if (a.accumulate) {
        float there[V];
        Sums<V>::get(to, there);
#pragma unroll
        for (int i = 0; i < V; i++) sum[i] += there[i];
    }
    Sums<V>::put(to, sum);
}

template <int V>
static __device__ __forceinline__ void flush(const EmbeddingSumArgs &a, const Chunk &c, int row,
                                             bool is_first, bool is_last, int64_t column,
                                             float (&sum)[V]) {
    const bool from_before = is_first && c.from_before, goes_on = is_last && c.goes_on;
    if (!from_before && !goes_on) return add_to_table<V>(a, row, column, sum);
    Sums<V>::put(a.partial + ((int64_t)blockIdx.x * 2 + !from_before) * a.model + column, sum);
}

template <typename T, int V>
static __device__ __forceinline__ void sum_chunk(const EmbeddingSumArgs &a) {
    enum { AHEAD = 4 }; /* loads under way: the last place again for those past it, no branches */
    const Chunk c = chunk_at(a, blockIdx.x);
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (column >= a.model || c.begin >= c.end) return;
    float sum[V] = {};
    int row = a.rows[c.begin];
    bool is_first = true;
    for (int64_t k = c.begin; k < c.end; k += AHEAD) {
        float v[AHEAD][V];
        int rows[AHEAD], places[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const int64_t at = k + j < c.end ? k + j : c.end - 1;
            rows[j] = a.rows[at];
            places[j] = a.order[at];
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            Elements<V>::get((const T *)a.dy + places[j] * a.model + column, v[j]);
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            if (k + j >= c.end) continue;
            if (rows[j] != row) {
                flush<V>(a, c, row, is_first, false, column, sum);
                is_first = false;
                row = rows[j];
#pragma unroll
                for (int i = 0; i < V; i++) sum[i] = 0;
            }
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += v[j][i];
        }
    }
    flush<V>(a, c, row, is_first, true, column, sum);
}

KERNEL_FUNCTION __launch_bounds__(128) embedding_sum_f32(EmbeddingSumArgs a) {
    if (a.model % 4 == 0) {
        sum_chunk<float, 4>(a);
    } else {
        sum_chunk<float, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(128) embedding_sum_bf16(EmbeddingSumArgs a) {
    if (a.model % 8 == 0) {
        sum_chunk<bf16_t, 8>(a);
    } else {
        sum_chunk<bf16_t, 1>(a);
    }
}
KERNEL_FUNCTION __launch_bounds__(128) embedding_sum_f16(EmbeddingSumArgs a) {
    if (a.model % 8 == 0) {
        sum_chunk<f16_t, 8>(a);
    } else {
        sum_chunk<f16_t, 1>(a);
    }
}

/* The block of the chunk in which a run begins adds the parts of the next ones. A thread per
 * column.
 */
KERNEL_FUNCTION __launch_bounds__(128) embedding_join(EmbeddingSumArgs a) {
    enum { AHEAD = 8 }; /* loads under way */
    const Chunk c = chunk_at(a, blockIdx.x);
    const int64_t column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= a.model || c.begin >= c.end || !c.goes_on) return;
    const int row = a.rows[c.end - 1];
    if (c.from_before && a.rows[c.begin] == row) return;
    float sum[1] = {a.partial[((int64_t)blockIdx.x * 2 + 1) * a.model + column]};
    for (int64_t number = blockIdx.x + 1;; number += AHEAD) {
        int rows[AHEAD];
        float part[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            const int64_t begin = (number + j) * a.chunk;
            rows[j] = begin < c.count ? a.rows[begin] : -1;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            part[j] = rows[j] == row ? a.partial[(number + j) * 2 * a.model + column] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++) sum[0] += part[j];
        if (rows[AHEAD - 1] != row) break;
    }
    add_to_table<1>(a, row, column, sum);
}
