/* The gradient of linear attention by chunks on tensor cores, from the states before chunks and the
 * gradients of those behind (linear_chunk_states_*, linear_chunk_reverse_*): Dao & Gu 2024 (arXiv
 * 2405.21060, section 6), Yang et al. 2024 (arXiv 2406.06484, appendix).
 *
 * Every chunk is by itself. A block has a tile of 64 keys and as many of the group's heads as leave
 * enough blocks: products of d and u are weighed by decays and added up over the heads, and
 * multiplied with keys (queries) once for all of them. What the runs of heads have is joined in
 * fixed order by linear_attention_join.
 *
 * A decay's gradient is what later positions of its chunk read of earlier ones, or of the state
 * before, and what the state behind has of either: a chunk's own sums, in which a pair's products
 * cancel to f32 as both sums have them from one matrix.
 */
#include "runtime/cuda/kernels/linear_chunk.cuh"

/* Sums over a block's rows and columns of positions. */
struct PairSums {
    float rows[CHUNK], columns[CHUNK / 16][CHUNK]; /* columns: of each warp */
};
enum { GRAD_BUFFER = 3 * SQUARE_BYTES };
static_assert(2 * SQUARE_BYTES + 2 * GRAD_BUFFER + 2 * LINEAR_CHUNK_DECAYS_BYTES +
                      (int)sizeof(PairSums) + 4 * CHUNK * CHUNK <=
                  LINEAR_CHUNK_GRAD_SHARED,
              "x, y, two of (d, u, state), decays, scores, sums");

/* Of four lanes that share rows. */
static __device__ __forceinline__ float sum_quad(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
/* Of eight that share columns. */
static __device__ __forceinline__ float sum_octet(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 4);
    x += __shfl_xor_sync(0xffffffffu, x, 8);
    return x + __shfl_xor_sync(0xffffffffu, x, 16);
}

/* x += factor acc, and per row the sum of acc times `along`: of lane / 4, and 8 further. */
template <typename T>
static __device__ __forceinline__ void
add_rows(float (&x)[CHUNK / 8][4], const float (&acc)[CHUNK / 8][4], const float (&factor)[2],
         int row, const unsigned char *along, float (&sums)[2]) {
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < CHUNK / 8; n++) {
            float even, odd;
            chunk_pair<T>(along, row + g + 8 * half, n * 8 + t, even, odd);
            const float a = acc[n][2 * half] * factor[half];
            const float b = acc[n][2 * half + 1] * factor[half];
            x[n][2 * half] += a;
            x[n][2 * half + 1] += b;
            sum = fmaf(a, even, fmaf(b, odd, sum));
        }
        sums[half] = sum_quad(sum);
    }
}

/* A block's part of the grid and of shared memory. */
struct GradBlock {
    ChunkPlace place;
    int keys, run, first_head, items; /* tile of keys; items: a tile of values of a head each */
    unsigned char *x, *y, *buffers;
    ChunkDecays *decays;
    float4 *scores; /* of each thread, for whose accumulators there are no registers */
    PairSums *sums;

    __device__ __forceinline__ GradBlock(const LinearChunkSizes &s, unsigned char *shared) {
        const int key_tiles = (s.keys + CHUNK - 1) / CHUNK;
        int64_t rest = blockIdx.x / key_tiles;
        keys = (int)blockIdx.x % key_tiles;
        run = (int)(rest % s.runs);
        rest /= s.runs;
        first_head = run * s.run_heads;
        items = (min(first_head + s.run_heads, s.heads) - first_head) * s.tiles;
        place = {rest / s.chunks, first_head, (int)(rest % s.chunks)};
        x = shared;
        y = x + SQUARE_BYTES;
        buffers = y + SQUARE_BYTES;
        decays = (ChunkDecays *)(buffers + 2 * GRAD_BUFFER);
        scores = (float4 *)((unsigned char *)decays + 2 * LINEAR_CHUNK_DECAYS_BYTES);
        sums = (PairSums *)(scores + CHUNK * CHUNK / 4);
    }
    __device__ __forceinline__ ChunkPlace place_of(const LinearChunkSizes &s, int item) const {
        return {place.group, first_head + item / s.tiles, place.chunk};
    }
    /* Of [tiles of keys, streams, n]: n numbers of the head's. */
    __device__ __forceinline__ int64_t numbers(const LinearChunkSizes &s, int n) const {
        const int key_tiles = (s.keys + CHUNK - 1) / CHUNK;
        const int64_t groups = gridDim.x / ((int64_t)key_tiles * s.runs * s.chunks);
        return (keys * groups * s.heads + chunk_stream(s, place)) * n;
    }
};

static __device__ __forceinline__ void copy_pair(const LinearChunkGradArgs &a, const GradBlock &b) {
    enum { THREADS = LINEAR_CHUNK_THREADS };
    const ChunkOperand keys = chunk_keys(a.sizes, b.place, b.keys * CHUNK);
    chunk_copy_in<CHUNK, THREADS>(b.x, a.x, keys);
    chunk_copy_in<CHUNK, THREADS>(b.y, a.y, keys);
}
static __device__ __forceinline__ void copy_item(const LinearChunkGradArgs &a, const GradBlock &b,
                                                 int item) {
    enum { THREADS = LINEAR_CHUNK_THREADS };
    const LinearChunkSizes &s = a.sizes;
    const ChunkPlace at = b.place_of(s, item);
    const int tile = item % s.tiles;
    unsigned char *to = b.buffers + item % 2 * GRAD_BUFFER;
    const ChunkOperand values = chunk_values(s, at, tile);
    chunk_copy_in<CHUNK, THREADS>(to, a.d, values);
    chunk_copy_in<CHUNK, THREADS>(to + SQUARE_BYTES, a.u, values);
    if (a.states)
        chunk_copy_in<CHUNK, THREADS>(to + 2 * SQUARE_BYTES, a.states,
                                      chunk_state(s, at, b.keys * CHUNK, tile));
    copy_async_commit();
}

/* acc [16 of one's positions, keys] += the product with a tile of values of the other's states: in
 * units of the states' factor, `unit` of the tile before, 1 of none. */
template <typename T>
static __device__ __forceinline__ void add_state(float (&acc)[CHUNK / 8][4], float &unit,
                                                 const unsigned char *own, int row,
                                                 const unsigned char *state, float factor) {
    if constexpr (StateFactor<T>::NEEDED) {
        const float change = unit / factor;
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) acc[i / 4][i % 4] *= change;
    }
    unit = factor;
    chunk_multiply<T>(acc, RowsOf(own, row), AlongColumns(state));
}

/* The block's share: sums [64, 64 keys], to its rows. */
static __device__ __forceinline__ void put_sums(const LinearChunkGradArgs &a, const GradBlock &b,
                                                float (&sums)[CHUNK / 8][4], int row) {
    const LinearChunkSizes &s = a.sizes;
    const int n = chunk_length(s, b.place.chunk), first = b.place.chunk * CHUNK;
    float *to = a.sums + ((b.place.group * a.parts + a.part + b.run) * s.seq + first) * s.keys;
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < CHUNK / 4; i++) {
        const int t = row + lane / 4 + i % 2 * 8, key = b.keys * CHUNK + i / 2 * 8 + lane % 4 * 2;
        if (t < n && key < s.keys)
            *(float2 *)(to + (int64_t)t * s.keys + key) =
                make_float2(sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
    }
}

/* What position i has of products with j, decayed; the row's weight -b if what was there is read.
 */
static __device__ __forceinline__ float pair_weight(const LinearChunkGradArgs &a,
                                                    const ChunkDecays &d, int i, int j) {
    if (j > i || (a.taken && j == i)) return 0;
    return chunk_between(d, i, j) * d.write[j] * (a.taken ? -d.write[i] : 1.0f);
}

/* Products of x and y, which only their thread reads again. */
template <typename T>
static __device__ __forceinline__ void put_scores(const GradBlock &b, int row) {
    float scores[CHUNK / 8][4];
    chunk_clear(scores);
    chunk_multiply<T>(scores, RowsOf(b.x, row), AlongColumns(b.y));
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
        b.scores[n * LINEAR_CHUNK_THREADS + (int)threadIdx.x] =
            make_float4(scores[n][0], scores[n][1], scores[n][2], scores[n][3]);
}

/* products [16 positions i, positions j] of d and u are weighed; sums of them times `scores` over
 * either go to shared memory, but for i = j, which cancel. */
static __device__ __forceinline__ void weigh_rows(const LinearChunkGradArgs &a,
                                                  const ChunkDecays &d, const GradBlock &b,
                                                  float (&products)[CHUNK / 8][4], int row) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
    float over_columns[2] = {0, 0};
    chunk_weigh(products, row, [&](int i, int j, float x) { return x * pair_weight(a, d, i, j); });
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++) {
        const float4 four = b.scores[n * LINEAR_CHUNK_THREADS + (int)threadIdx.x];
        const float scores[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            const int j = n * 8 + t + odd;
            float over_rows = 0;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float x = products[n][2 * half + odd] * scores[2 * half + odd];
                if (j == row + g + 8 * half) x = 0;
                over_columns[half] += x;
                over_rows += x;
            }
            over_rows = sum_octet(over_rows);
            if (g == 0) b.sums->columns[row / 16][j] = over_rows;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = sum_quad(over_columns[half]);
        if (t == 0) b.sums->rows[row + g + 8 * half] = sum;
    }
}

/* x's share, d by d; and what each position has read, in the decays' gradients. */
template <typename T>
static __device__ __forceinline__ void chunk_rows(const LinearChunkGradArgs &a) {
    DYNAMIC_SHARED(unsigned char, shared);
    const LinearChunkSizes &s = a.sizes;
    GradBlock b(s, shared);
    float products[CHUNK / 8][4], read[CHUNK / 8][4];
    float weights[CHUNK / 8][4], dx[CHUNK / 8][4], unit = 1;

    copy_pair(a, b);
    copy_item(a, b, 0);
    chunk_clear(products);
    chunk_clear(read);
    chunk_clear(weights);
    chunk_clear(dx);
    for (int item = 0; item < b.items; item++) {
        const int thread = thread_anew(), row = thread / 32 * 16, g = thread % 32 / 4;
        const int tile = item % s.tiles;
        b.place = b.place_of(s, item);
        ChunkDecays &d = b.decays[b.place.head % 2];
        const unsigned char *buffer = b.buffers + item % 2 * GRAD_BUFFER;
        if (tile == 0 && row == 0) chunk_scan(s, b.place, d);
        copy_async_wait<0>();
        __syncthreads();
        if (item + 1 < b.items) copy_item(a, b, item + 1);
        if (item == 0) put_scores<T>(b, row);
        if (tile == 0) {
            chunk_clear(products);
            chunk_clear(read);
            unit = 1;
        }
        chunk_multiply<T>(products, RowsOf(buffer, row), AlongColumns(buffer + SQUARE_BYTES));
        add_state<T>(read, unit, buffer, row, buffer + 2 * SQUARE_BYTES,
                     state_factor<T>(s, a.factors, b.place, tile));
        if (tile < s.tiles - 1) continue;
        float factor[2], sums[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = row + g + 8 * half;
            factor[half] = unit * d.start[i] * (a.taken ? -d.write[i] : 1.0f);
        }
        add_rows<T>(dx, read, factor, row, b.x, sums);
        weigh_rows(a, d, b, products, row);
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) weights[i / 4][i % 4] += products[i / 4][i % 4];
        if (threadIdx.x % 4 == 0) {
            b.sums->rows[row + g] += sums[0];
            b.sums->rows[row + g + 8] += sums[1];
        }
        __syncthreads();
        const int t = (int)threadIdx.x;
        if (t < chunk_length(s, b.place.chunk)) {
            float sum = b.sums->rows[t];
            for (int w = 0; w < CHUNK / 16; w++) sum -= b.sums->columns[w][t];
            a.read[b.numbers(s, s.seq) + b.place.chunk * CHUNK + t] = s.scale * sum;
        }
    }
    const int row = thread_anew() / 32 * 16;
    chunk_multiply<T>(dx, PackedRows<T>(weights), AlongRows(b.y));
    chunk_each(dx, row, [&](int, int, float x) { return s.scale * x; });
    put_sums(a, b, dx, row);
}

/* Of a tile, the sum of states before the chunk times gradients of those behind, which are in
 * shared memory: this thread's part. */
template <typename T>
static __device__ __forceinline__ float dot_states(const LinearChunkGradArgs &a, const GradBlock &b,
                                                   const unsigned char *behind, int tile) {
    const ChunkOperand at = chunk_state(a.sizes, b.place, b.keys * CHUNK, tile);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < CHUNK * CHUNK / 8; i += LINEAR_CHUNK_THREADS) {
        const int row = (i + (int)threadIdx.x) / 8, chunk = (i + (int)threadIdx.x) % 8;
        if (row >= at.n || chunk * 8 >= at.rows.width()) continue;
        float x[8], y[8];
        Elements<8>::get((const T *)a.before + at.base + at.rows(row) + chunk * 8, x);
        Elements<8>::get((const T *)(behind + Square::offset(row, chunk)), y);
#pragma unroll
        for (int n = 0; n < 8; n++) sum = fmaf(x[n], y[n], sum);
    }
    return sum * state_factor<T>(a.sizes, a.factors, b.place, tile) *
           state_factor<T>(a.sizes, a.before_factors, b.place, tile);
}

/* What was written at each position, and what passed through the chunk, in the decays' gradients of
 * a head: F and G. */
template <typename T>
static __device__ __forceinline__ void put_wrote(const LinearChunkGradArgs &a, const GradBlock &b,
                                                 const float (&wrote)[2], float passed,
                                                 const ChunkDecays &d) {
    const LinearChunkSizes &s = a.sizes;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float *to = a.wrote + b.numbers(s, s.seq) + b.place.chunk * CHUNK;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int j = warp * 16 + lane / 4 + 8 * half;
        if (lane % 4 == 0 && j < chunk_length(s, b.place.chunk)) to[j] = wrote[half];
    }
    passed = warp_total(passed);
    if (lane == 0) b.sums->rows[warp] = passed;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int w = 0; w < LINEAR_CHUNK_THREADS / 32; w++) sum += b.sums->rows[w];
        a.passed[b.numbers(s, s.chunks) + b.place.chunk] = d.carry * sum;
    }
}

/* y's share, u by u. */
template <typename T>
static __device__ __forceinline__ void chunk_columns(const LinearChunkGradArgs &a) {
    DYNAMIC_SHARED(unsigned char, shared);
    const LinearChunkSizes &s = a.sizes;
    GradBlock b(s, shared);
    const int warp = (int)threadIdx.x / 32, row = warp * 16, g = (int)threadIdx.x % 32 / 4;
    float products[CHUNK / 8][4], wrote[CHUNK / 8][4], weights[CHUNK / 8][4], dy[CHUNK / 8][4];
    float passed = 0, unit = 1;

    copy_pair(a, b);
    copy_item(a, b, 0);
    chunk_clear(products);
    chunk_clear(wrote);
    chunk_clear(weights);
    chunk_clear(dy);
    for (int item = 0; item < b.items; item++) {
        const int tile = item % s.tiles;
        b.place = b.place_of(s, item);
        ChunkDecays &d = b.decays[b.place.head % 2];
        const unsigned char *buffer = b.buffers + item % 2 * GRAD_BUFFER;
        const unsigned char *state = buffer + 2 * SQUARE_BYTES;
        if (tile == 0 && warp == 0) chunk_scan(s, b.place, d);
        copy_async_wait<0>();
        __syncthreads();
        if (item + 1 < b.items) copy_item(a, b, item + 1);
        if (tile == 0) {
            chunk_clear(products);
            chunk_clear(wrote);
            passed = 0;
            unit = 1;
        }
        chunk_multiply<T>(products, RowsOf(buffer + SQUARE_BYTES, row), AlongColumns(buffer));
        if (a.states) {
            add_state<T>(wrote, unit, buffer + SQUARE_BYTES, row, state,
                         state_factor<T>(s, a.factors, b.place, tile));
            if (d.carry != 0) passed += dot_states<T>(a, b, state, tile);
        }
        if (tile < s.tiles - 1) continue;
        chunk_weigh(products, row,
                    [&](int j, int i, float x) { return x * pair_weight(a, d, i, j); });
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) weights[i / 4][i % 4] += products[i / 4][i % 4];
        if (a.states) {
            float factor[2], sums[2];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int j = row + g + 8 * half;
                factor[half] = unit * d.end[j] * d.write[j];
            }
            add_rows<T>(dy, wrote, factor, row, b.y, sums);
            put_wrote<T>(a, b, sums, passed, d);
        }
    }
    float products_of[CHUNK / 8][4];
    chunk_clear(products_of);
    chunk_multiply<T>(products_of, PackedRows<T>(weights), AlongRows(b.x));
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++)
        dy[i / 4][i % 4] = fmaf(s.scale, products_of[i / 4][i % 4], dy[i / 4][i % 4]);
    put_sums(a, b, dy, row);
}

#define KERNELS_FOR(T, suffix)                                                                     \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_THREADS, 2)                                     \
        linear_chunk_rows_##suffix(LinearChunkGradArgs a) {                                        \
        chunk_rows<T>(a);                                                                          \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK_THREADS, 2)                                     \
        linear_chunk_columns_##suffix(LinearChunkGradArgs a) {                                     \
        chunk_columns<T>(a);                                                                       \
    }
KERNELS_FOR(bf16_t, bf16)
KERNELS_FOR(f16_t, f16)

/* A thread for each position of a head's chunk: sums over later positions are taken in order, so
 * that behind a decay to nothing there is nothing. */
KERNEL_FUNCTION __launch_bounds__(LINEAR_CHUNK) linear_chunk_decays(LinearChunkDecaysArgs a) {
    __shared__ double read[CHUNK], wrote[CHUNK];
    __shared__ int begins[CHUNK];
    const LinearChunkSizes &s = a.sizes;
    const int64_t stream = blockIdx.x / s.chunks;
    const ChunkPlace place = {stream / s.heads, (int)(stream % s.heads),
                              (int)(blockIdx.x % s.chunks)};
    const int t = (int)threadIdx.x, n = chunk_length(s, place.chunk);
    const int64_t at = (chunk_position(s, place) + (int64_t)t * s.groups) * s.heads + place.head;
    read[t] = wrote[t] = 0;
    if (t < n) {
        const int64_t from = stream * s.seq + (int64_t)place.chunk * CHUNK + t;
        for (int i = 0; i < a.n_read; i++) read[t] += (double)a.read[i * a.streams * s.seq + from];
        for (int i = 0; i < a.n_wrote; i++)
            wrote[t] += (double)a.wrote[i * a.streams * s.seq + from];
        begins[t] = expf(s.decay[at]) == 0.0f;
    }
    __syncthreads();
    if (t >= n) return;
    double sum = 0;
    for (int i = 0; i < a.n_wrote; i++)
        sum += (double)a.passed[(i * a.streams + stream) * s.chunks + place.chunk];
    for (int j = 0; j < t; j++) sum += wrote[j];
    for (int i = t; i < n && (i == t || !begins[i]); i++) sum += read[i];
    a.ddecay[at] = begins[t] ? 0.0f : (float)sum;
}
