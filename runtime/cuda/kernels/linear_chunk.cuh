/* Linear attention by chunks on tensor cores: what its kernels share.
 *
 * Within a chunk of 64 positions, g_t the logarithm of t's decay and G_t their sum up to t, a
 * position i reads of what j <= i wrote exp(G_i - G_j), of the state before the chunk exp(G_i), and
 * the state behind has exp(G_end - G_j) of it: nothing is ever divided by a decay. Decays to
 * nothing are left out of the sums, and positions know the last one before them: what lies behind
 * is exactly zero, and sums stay small (Dao & Gu 2024, arXiv 2405.21060, section 6).
 */
#ifndef RUNTIME_CUDA_KERNELS_LINEAR_CHUNK_CUH
#define RUNTIME_CUDA_KERNELS_LINEAR_CHUNK_CUH

#include "runtime/cuda/kernels/attention_tile.cuh"
#include "runtime/cuda/kernels/vector.cuh"

enum { CHUNK = LINEAR_CHUNK };
static_assert(CHUNK == 64, "two positions for each lane of a warp, four warps of 16 rows");

typedef RowTile<CHUNK> Square; /* [64 rows, 64 columns] */
enum { SQUARE_BYTES = LINEAR_CHUNK_SQUARE_BYTES };

/* Which head's which chunk. */
struct ChunkPlace {
    int64_t group;   /* of all sequences: batch * groups + group */
    int head, chunk; /* of the group; of the sequence */
};

static __device__ __forceinline__ int64_t chunk_stream(const LinearChunkSizes &s,
                                                       const ChunkPlace &p) {
    return p.group * s.heads + p.head;
}
static __device__ __forceinline__ int chunk_length(const LinearChunkSizes &s, int chunk) {
    return min((int)CHUNK, s.seq - chunk * CHUNK);
}
/* Of [batch, seq, groups]: number of a chunk's first position. */
static __device__ __forceinline__ int64_t chunk_position(const LinearChunkSizes &s,
                                                         const ChunkPlace &p) {
    return (p.group / s.groups * s.seq + (int64_t)p.chunk * CHUNK) * s.groups + p.group % s.groups;
}

/* Rows `stride` elements apart, of which `left` elements are there. */
struct ChunkRows {
    int stride, left;
    __device__ __forceinline__ int operator()(int row) const {
        return row * stride;
    }
    __device__ __forceinline__ int width(void) const {
        return left;
    }
};

/* Where a tile's row 0 lies, its rows and how many there are. */
struct ChunkOperand {
    int64_t base;
    ChunkRows rows;
    int n;
};
/* Queries or keys from key `first` on. */
static __device__ __forceinline__ ChunkOperand chunk_keys(const LinearChunkSizes &s,
                                                          const ChunkPlace &p, int first) {
    return {chunk_position(s, p) * s.keys + first,
            {s.groups * s.keys, s.keys - first},
            chunk_length(s, p.chunk)};
}
static __device__ __forceinline__ ChunkOperand chunk_values(const LinearChunkSizes &s,
                                                            const ChunkPlace &p, int tile) {
    return {(chunk_position(s, p) * s.heads + p.head) * s.values + tile * CHUNK,
            {s.groups * s.heads * s.values, s.values - tile * CHUNK},
            chunk_length(s, p.chunk)};
}
static __device__ __forceinline__ ChunkOperand chunk_state(const LinearChunkSizes &s,
                                                           const ChunkPlace &p, int key, int tile) {
    return {((chunk_stream(s, p) * s.chunks + p.chunk) * s.keys + key) * s.values + tile * CHUNK,
            {s.values, s.values - tile * CHUNK},
            s.keys - key};
}
/* Products of all positions of a chunk. */
static __device__ __forceinline__ ChunkOperand chunk_square(const LinearChunkSizes &s,
                                                            const ChunkPlace &p) {
    return {(chunk_stream(s, p) * s.chunks + p.chunk) * CHUNK * CHUNK, {CHUNK, CHUNK}, CHUNK};
}

/* Starts copying a tile of ROWS rows of 64; zeros where there is nothing. */
template <int ROWS, int THREADS>
static __device__ __forceinline__ void chunk_copy_in(unsigned char *to, const void *from,
                                                     const ChunkOperand &x) {
    const void *const one[1] = {from};
    tile_copy_in<Square, ROWS, THREADS>(shared_address(to), one, x.base, x.rows, 0, x.n);
}
/* A chunk's queries or keys, K of them, as squares one after the other. */
template <int K, int THREADS>
static __device__ __forceinline__ void chunk_copy_keys(unsigned char *to, const void *from,
                                                       const LinearChunkSizes &s,
                                                       const ChunkPlace &p) {
#pragma unroll
    for (int i = 0; i < K / CHUNK; i++)
        chunk_copy_in<CHUNK, THREADS>(to + i * SQUARE_BYTES, from, chunk_keys(s, p, i * CHUNK));
}
/* A warp's ROWS rows of a tile of 64 columns. */
template <int ROWS>
static __device__ __forceinline__ void chunk_copy_out(const unsigned char *tile, int first,
                                                      void *to, const ChunkOperand &x) {
    tile_copy_out<Square, ROWS>(tile, first, (uint16_t *)to + x.base, x.rows, first, x.n);
}

/* Decays */

struct ChunkDecays {
    float sum[CHUNK]; /* of logarithms in base 2, since the chunk began, but for those to nothing */
    int begin[CHUNK]; /* the last position so far that has nothing of those before; or -1 */
    float start[CHUNK]; /* of the state before the chunk */
    float end[CHUNK];   /* what the state behind has of a position */
    float write[CHUNK]; /* 1 without the delta rule */
    float carry;        /* what it has of the state before */
    float most[16];     /* stage_state's */
};
static_assert(sizeof(ChunkDecays) <= LINEAR_CHUNK_DECAYS_BYTES, "in shared memory");

/* What position i reads of position j, j <= i. */
static __device__ __forceinline__ float chunk_between(const ChunkDecays &d, int i, int j) {
    return j >= d.begin[i] ? exp2_fast(d.sum[i] - d.sum[j]) : 0.0f;
}

/* A warp; lanes have two neighbouring positions each. */
static __device__ __forceinline__ void chunk_scan(const LinearChunkSizes &s, const ChunkPlace &p,
                                                  ChunkDecays &to) {
    const int lane = (int)threadIdx.x % 32, n = chunk_length(s, p.chunk);
    const int64_t first = chunk_position(s, p) * s.heads + p.head;
    float sums[2], all = 0;
    int begins[2], last = -1;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 2 * lane + i;
        const int64_t at = first + (int64_t)t * s.groups * s.heads;
        const float log = t < n ? s.decay[at] : 0.0f;
        if (expf(log) == 0.0f) {
            last = t;
        } else {
            all += log * 1.4426950408889634f;
        }
        sums[i] = all;
        begins[i] = last;
        to.write[t] = t >= n ? 0.0f : s.write ? s.write[at] : 1.0f;
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        const float sum = __shfl_up_sync(0xffffffffu, all, lanes);
        const int begin = __shfl_up_sync(0xffffffffu, last, lanes);
        if (lane >= lanes) {
            all += sum;
            last = max(last, begin);
        }
    }
    const float total = __shfl_sync(0xffffffffu, all, 31);
    const int last_begin = __shfl_sync(0xffffffffu, last, 31);
    float before = __shfl_up_sync(0xffffffffu, all, 1);
    int begin = __shfl_up_sync(0xffffffffu, last, 1);
    if (lane == 0) before = 0, begin = -1;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 2 * lane + i, from = max(begin, begins[i]);
        const float sum = before + sums[i];
        to.sum[t] = sum;
        to.begin[t] = from;
        to.start[t] = from < 0 ? exp2_fast(sum) : 0.0f;
        to.end[t] = t >= last_begin ? exp2_fast(total - sum) : 0.0f;
    }
    if (lane == 0) to.carry = last_begin < 0 ? exp2_fast(total) : 0.0f;
}

/* Products: acc [16 rows, 8 N8 columns] += A B, of 64 terms. */

/* A: 16 rows of a tile, terms along its columns. */
struct RowsOf {
    TileLane<CHUNK> lane;
    __device__ __forceinline__ RowsOf(const unsigned char *tile, int first)
        : lane(TileLane<CHUNK>::by_rows(shared_address(tile), first)) {
    }
    __device__ __forceinline__ void get(int k, uint32_t (&a)[4]) const {
        ldmatrix_x4(a, lane.at(k, 0));
    }
};

/* A: 16 columns of a tile from 16 block on, terms along its rows. */
struct ColumnsOf {
    TileLane<CHUNK> lane;
    int block;
    __device__ __forceinline__ ColumnsOf(const unsigned char *tile, int block_)
        : lane(TileLane<CHUNK>::by_columns(shared_address(tile), 0)), block(block_) {
    }
    __device__ __forceinline__ void get(int k, uint32_t (&a)[4]) const {
        ldmatrix_x4_trans(a, lane.at(block, k * 16));
    }
};

/* The same with a weight for each term: factor times an array, or times the product of two. */
template <typename T> struct WeightedColumnsOf {
    ColumnsOf columns;
    float factor;
    const float *weights, *others; /* others: or NULL */
    __device__ __forceinline__ float weight(int at) const {
        return factor * weights[at] * (others ? others[at] : 1.0f);
    }
    __device__ __forceinline__ void get(int k, uint32_t (&a)[4]) const {
        columns.get(k, a);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = k * 16 + half * 8 + (int)threadIdx.x % 4 * 2;
            const float w0 = weight(at), w1 = weight(at + 1);
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                float x, y;
                Low<T>::unpack(a[i], x, y);
                a[i] = Low<T>::pack(x * w0, y * w1);
            }
        }
    }
};

/* A: accumulators as they stand. */
template <typename T> struct PackedRows {
    uint32_t fragments[CHUNK / 16][1][4];
    __device__ __forceinline__ PackedRows(const float (&acc)[CHUNK / 8][4]) {
        pack_fragments<T>(fragments, *(const float(*)[1][CHUNK / 8][4]) acc);
    }
    __device__ __forceinline__ void get(int k, uint32_t (&a)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = fragments[k][0][i];
    }
};

/* B: columns of a tile from 16 block on, terms along its rows; */
struct AlongRows {
    TileLane<CHUNK> lane;
    int block;
    __device__ __forceinline__ AlongRows(const unsigned char *tile, int block_ = 0)
        : lane(TileLane<CHUNK>::by_rows(shared_address(tile), 0)), block(block_) {
    }
    __device__ __forceinline__ void get(int k, int n, uint32_t (&b)[4]) const {
        ldmatrix_x4_trans(b, lane.at(block + n, k * 16));
    }
};
/* or rows of one, terms along its columns. */
struct AlongColumns {
    TileLane<CHUNK> lane;
    __device__ __forceinline__ AlongColumns(const unsigned char *tile)
        : lane(TileLane<CHUNK>::by_columns(shared_address(tile), 0)) {
    }
    __device__ __forceinline__ void get(int k, int n, uint32_t (&b)[4]) const {
        ldmatrix_x4(b, lane.at(k, n * 16));
    }
};

template <typename T, int N8, class A, class B>
static __device__ __forceinline__ void chunk_multiply(float (&acc)[N8][4], const A &a, const B &b) {
#pragma unroll
    for (int k = 0; k < CHUNK / 16; k++) {
        uint32_t fa[4];
        a.get(k, fa);
#pragma unroll
        for (int n = 0; n < N8 / 2; n++) {
            uint32_t fb[4];
            b.get(k, n, fb);
            const uint32_t low[2] = {fb[0], fb[1]}, high[2] = {fb[2], fb[3]};
            mma<T>(acc[2 * n], fa, low);
            mma<T>(acc[2 * n + 1], fa, high);
        }
    }
}

template <int N8> static __device__ __forceinline__ void chunk_clear(float (&acc)[N8][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N8; i++) acc[i / 4][i % 4] = 0;
}

/* What each accumulator becomes: f(row, column, number), of 16 rows from `row` on. */
template <int N8, class F>
static __device__ __forceinline__ void chunk_each(float (&acc)[N8][4], int row, const F &f) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[n][i] = f(row + lane / 4 + i / 2 * 8, n * 8 + lane % 4 * 2 + i % 2, acc[n][i]);
    }
}

/* The same where f has branches: the warp is whole again before a product follows. */
template <int N8, class F>
static __device__ __forceinline__ void chunk_weigh(float (&acc)[N8][4], int row, const F &f) {
    chunk_each(acc, row, f);
    __syncwarp();
}

/* Into a tile of 64 columns, rounded. */
template <typename T, int N8>
static __device__ __forceinline__ void chunk_put(unsigned char *tile, int row, int column,
                                                 const float (&acc)[N8][4]) {
    const float one[1][2] = {{1, 1}};
    tile_put<T, Square>(tile, row, column / 8, *(const float(*)[1][N8][4])acc, one);
}
/* Two neighbouring numbers of a tile of 64 columns. */
template <typename T>
static __device__ __forceinline__ void chunk_pair(const unsigned char *tile, int row, int column,
                                                  float &x, float &y) {
    Low<T>::unpack(*(const uint32_t *)(tile + Square::offset(row, column / 8) + column % 8 * 2), x,
                   y);
}

/* States in 16 bits */

/* f16 has not the range of states: they are divided by a power of two, the block's. bf16 has. */
template <typename T> struct StateFactor { static constexpr bool NEEDED = false; };
template <> struct StateFactor<f16_t> { static constexpr bool NEEDED = true; };
/* 2^e, e the exponent of x; at least 2^-24, as f16 has no numbers between 0 and that, and 1 of what
 * is not finite. Its inverse is exact. */
static __device__ __forceinline__ float power_below(float x) {
    const uint32_t bits = __float_as_uint(x) & 0x7f800000u;
    return bits < 0x33800000u ? 0x1p-24f : bits >= 0x7e800000u ? 1.0f : bits_to_float(bits);
}

/* A warp's 16 keys and 64 values to their place of `stage` [keys, 64], divided by the factor, which
 * is returned: a barrier of the block lies within if it is needed. most: of each warp. */
template <typename T, int WARPS>
static __device__ __forceinline__ float stage_state(const float (&state)[CHUNK / 8][4], float *most,
                                                    unsigned char *stage) {
    const int warp = (int)threadIdx.x / 32;
    float factor = 1, scaled[CHUNK / 8][4];
    if constexpr (StateFactor<T>::NEEDED) {
        float top = 0;
#pragma unroll
        for (int i = 0; i < CHUNK / 2; i++) top = fmaxf(top, fabsf(state[i / 4][i % 4]));
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lanes));
        if (threadIdx.x % 32 == 0) most[warp] = top;
        __syncthreads();
        top = 0;
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, most[w]);
        factor = power_below(top);
    }
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) scaled[i / 4][i % 4] = state[i / 4][i % 4] * (1 / factor);
    chunk_put<T>(stage, warp * 16, 0, scaled);
    return factor;
}

/* The factor of a chunk's tile of states. */
template <typename T>
static __device__ __forceinline__ float
state_factor(const LinearChunkSizes &s, const float *factors, const ChunkPlace &p, int tile) {
    if constexpr (!StateFactor<T>::NEEDED) return 1;
    return factors[(chunk_stream(s, p) * s.chunks + p.chunk) * s.tiles + tile];
}
template <typename T>
static __device__ __forceinline__ void put_state_factor(const LinearChunkSizes &s, float *factors,
                                                        const ChunkPlace &p, int tile, float x) {
    if constexpr (!StateFactor<T>::NEEDED) return;
    if (threadIdx.x == 0) factors[(chunk_stream(s, p) * s.chunks + p.chunk) * s.tiles + tile] = x;
}

#endif
