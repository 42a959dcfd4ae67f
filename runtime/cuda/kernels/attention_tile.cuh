/* Tiles of attention's kernels in shared memory, and their fragments.
 *
 * A tile is [rows][HEAD] of T, bf16_t or f16_t, HEAD the next of 32, 64, 128, 192, 256; what lies
 * beyond the head, or beyond the last row, is zero. 16-byte chunks of a row are permuted by the
 * row's number, so that the eight rows of an 8 x 8 matrix lie in different banks, for the tensor
 * cores, copies in and copies out.
 */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_TILE_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_TILE_CUH

#include "runtime/cuda/kernels/tensor.cuh"

/* What follows from it is computed where it is used: registers are for accumulators. */
static __device__ __forceinline__ int thread_anew(void) {
    return renew((int)threadIdx.x);
}

/* Rows one after the other, any number of them. */
template <int HEAD_, int ROWS_ = 0> struct RowTile {
    static constexpr int HEAD = HEAD_;
    static_assert(HEAD == 32 || HEAD % 64 == 0, "eight rows, permuted, are in different banks");

    static __device__ __forceinline__ int twist(int row) {
        return HEAD == 32 ? row >> 1 & 3 : row & 7;
    }
    /* Bytes from the tile's beginning to 16-byte chunk `chunk` of `row`. */
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * HEAD * 2 + (chunk ^ twist(row)) * 16;
    }
};

/* How many of THREADS copy neighbouring chunks of rows of WIDTH: as many as it has chunks, or where
 * they then have no eight rows at once, eight, 128 bytes, which go on with the next eight. */
template <int WIDTH, int THREADS = 1024> struct TileLanes {
    static constexpr int CHUNKS = WIDTH / 8;
    static constexpr int N = CHUNKS & (CHUNKS - 1) || THREADS < 8 * CHUNKS ? 8 : CHUNKS;
    static_assert(WIDTH % 8 == 0 && CHUNKS % N == 0, "whole passes");
};

/* THREADS threads, the first of them a multiple of that, start copying rows `first`... of a head,
 * of N arrays of one shape, into N tiles of ROWS rows one after the other. The head's row 0 is at
 * from[n] + base; rows(r) places row r. */
template <class Tile, int ROWS, int THREADS, int N, class Rows>
static __device__ __forceinline__ void tile_copy_in(SharedAddress tile,
                                                    const void *const (&from)[N], int64_t base,
                                                    const Rows &rows, int first, int end) {
    constexpr int LANES = TileLanes<Tile::HEAD, THREADS>::N, AT_ONCE = THREADS / LANES;
    constexpr int PASSES = Tile::HEAD / 8 / LANES;
    static_assert(ROWS % AT_ONCE == 0, "every thread copies equally many chunks");
    static_assert(AT_ONCE % 8 == 0, "its chunks are permuted alike");
    static_assert((THREADS & (THREADS - 1)) == 0, "as the mask says");
    int thread = thread_anew() & (THREADS - 1), chunk = thread & (LANES - 1);
    int row = (int)((uint32_t)thread / LANES);
    SharedAddress to = tile + Tile::offset(row, chunk);
    row += first;
#pragma unroll
    for (int i = 0; i < ROWS / AT_ONCE; i++, row += AT_ONCE) {
        int64_t offset = base + rows(row) + chunk * 8;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            int at = pass * LANES;
            int bytes = (at + chunk) * 8 < rows.width() && row < end ? 16 : 0;
#pragma unroll
            for (int n = 0; n < N; n++) {
                copy_async_16(to + i * Tile::offset(AT_ONCE, 0) + Tile::offset(0, at) +
                                  n * ROWS * Tile::HEAD * 2,
                              (const uint16_t *)from[n] + offset + at * 8, bytes);
            }
        }
    }
}

/* One warp's rows of a tile, from `first_in_tile` on, to rows `first`... of a head; of a row the
 * first WIDTH elements, where there are so many. */
template <class Tile, int ROWS, int WIDTH = Tile::HEAD, class Rows>
static __device__ __forceinline__ void tile_copy_out(const unsigned char *tile, int first_in_tile,
                                                     void *to, const Rows &rows, int first,
                                                     int end) {
    constexpr int LANES = TileLanes<WIDTH>::N, AT_ONCE = 32 / LANES;
    int lane = (int)threadIdx.x % 32, row = lane / LANES;
#pragma unroll
    for (int i = 0; i < ROWS / AT_ONCE; i++, row += AT_ONCE) {
#pragma unroll
        for (int chunk = lane % LANES; chunk < WIDTH / 8; chunk += LANES) {
            if (chunk * 8 >= rows.width() || first + row >= end) continue;
            *reinterpret_cast<uint4 *>((uint16_t *)to + rows(first + row) + chunk * 8) =
                *reinterpret_cast<const uint4 *>(tile + Tile::offset(first_in_tile + row, chunk));
        }
    }
}

/* Accumulators of 16 MT rows and 8 N8 columns of a tile, times a factor per row, as T into the
 * tile from row first_in_tile and 16-byte chunk first_chunk on; of STEP blocks of 16 columns they
 * have one. */
template <typename T, class Tile, int STEP = 1, int MT, int N8>
static __device__ __forceinline__ void tile_put(unsigned char *tile, int first_in_tile,
                                                int first_chunk, const float (&acc)[MT][N8][4],
                                                const float (&factor)[MT][2]) {
    int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = first_in_tile + m * 16 + half * 8 + g;
#pragma unroll
            for (int n = 0; n < N8; n++) {
                int chunk = first_chunk + n / 2 * 2 * STEP + n % 2;
                *reinterpret_cast<uint32_t *>(tile + Tile::offset(row, chunk) + t * 4) =
                    Low<T>::pack(acc[m][n][2 * half] * factor[m][half],
                                 acc[m][n][2 * half + 1] * factor[m][half]);
            }
        }
    }
}

/* Fragments */

/* This lane's part in ldmatrix over a tile: `at(chunk16, row)` is its address for the 16 x 16
 * elements from row `row` (a multiple of 16, a constant) and column 16 chunk16. */
template <int HEAD> struct TileLane {
    SharedAddress base;
    int twist;

    /* Matrices in the order (rows 0-7, columns 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15): an A
     * operand; transposed, a B operand whose k runs along the tile's rows. */
    static __device__ __forceinline__ TileLane by_rows(SharedAddress tile, int first) {
        int lane = thread_anew() & 31, row = first + (lane & 15);
        return {tile + row * HEAD * 2, (lane >> 4 ^ RowTile<HEAD>::twist(row)) * 16};
    }
    /* (0-7, 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15): a B operand whose k runs along the
     * tile's columns. */
    static __device__ __forceinline__ TileLane by_columns(SharedAddress tile, int first) {
        int lane = thread_anew() & 31, row = first + (lane & 7) + (lane >> 4) * 8;
        return {tile + row * HEAD * 2, ((lane >> 3 & 1) ^ RowTile<HEAD>::twist(row)) * 16};
    }
    /* What is at chunks one further on, with `odd` 1, of those that are even. */
    __device__ __forceinline__ TileLane among_pairs(int odd) const {
        return {base, twist ^ odd * 32};
    }
    __device__ __forceinline__ SharedAddress at(int chunk16, int row) const {
        return base + ((chunk16 * 32) ^ twist) + row * HEAD * 2;
    }
};

/* acc[MT][N / 8] += A B^T: A 16 MT rows of one tile, B N rows of another, over HEAD columns. */
template <typename T, int MT, int N, int HEAD>
static __device__ __forceinline__ void
multiply_rows(float (&acc)[MT][N / 8][4], const TileLane<HEAD> &a, const TileLane<HEAD> &b) {
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        uint32_t fa[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) ldmatrix_x4(fa[m], a.at(k, m * 16));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t fb[4];
            ldmatrix_x4(fb, b.at(k, n * 16));
            const uint32_t low[2] = {fb[0], fb[1]}, high[2] = {fb[2], fb[3]};
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(acc[m][2 * n], fa[m], low);
                mma<T>(acc[m][2 * n + 1], fa[m], high);
            }
        }
    }
}

/* acc[MT][N8] += A B: A fragments in registers, B K rows of a tile, 8 N8 of its columns: of STEP
 * blocks of 16 one. */
template <typename T, int MT, int K, int STEP = 1, int N8, int HEAD>
static __device__ __forceinline__ void multiply_fragments(float (&acc)[MT][N8][4],
                                                          const uint32_t (&fa)[K / 16][MT][4],
                                                          const TileLane<HEAD> &b) {
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
#pragma unroll
        for (int n = 0; n < N8 / 2; n++) {
            uint32_t fb[4];
            ldmatrix_x4_trans(fb, b.at(n * STEP, k * 16));
            const uint32_t low[2] = {fb[0], fb[1]}, high[2] = {fb[2], fb[3]};
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma<T>(acc[m][2 * n], fa[k][m], low);
                mma<T>(acc[m][2 * n + 1], fa[k][m], high);
            }
        }
    }
}

/* Accumulators [16 MT, 16 K16], of columns from 8 first on, rounded to T, as A operands over
 * columns: the layouts agree. */
template <typename T, int MT, int K16, int N8>
static __device__ __forceinline__ void
pack_fragments(uint32_t (&fa)[K16][MT][4], const float (&acc)[MT][N8][4], int first = 0) {
#pragma unroll
    for (int k = 0; k < K16; k++) {
        int n = first + 2 * k;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            fa[k][m][0] = Low<T>::pack(acc[m][n][0], acc[m][n][1]);
            fa[k][m][1] = Low<T>::pack(acc[m][n][2], acc[m][n][3]);
            fa[k][m][2] = Low<T>::pack(acc[m][n + 1][0], acc[m][n + 1][1]);
            fa[k][m][3] = Low<T>::pack(acc[m][n + 1][2], acc[m][n + 1][3]);
        }
    }
}

template <int MT, int N>
static __device__ __forceinline__ void clear_fragments(float (&acc)[MT][N][4]) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][n][i] = 0;
        }
    }
}

#endif
