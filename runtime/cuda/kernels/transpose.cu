/* Permutations of dimensions: rows that stay rows are copied; where the fastest dimension changes,
 * square tiles go through shared memory so that both sides are read and written in runs. */
#include "runtime/cuda/kernels/vector.cuh"

template <typename T>
static __device__ __forceinline__ void copy_units(const TransposeCopyArgs &a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) ((T *)a.out)[i] = ((const T *)a.x)[index_map(a.from, i)];
}

KERNEL_FUNCTION transpose_copy_2(TransposeCopyArgs a) {
    copy_units<uint16_t>(a);
}
KERNEL_FUNCTION transpose_copy_4(TransposeCopyArgs a) {
    copy_units<uint32_t>(a);
}
KERNEL_FUNCTION transpose_copy_8(TransposeCopyArgs a) {
    copy_units<uint64_t>(a);
}
KERNEL_FUNCTION transpose_copy_16(TransposeCopyArgs a) {
    copy_units<uint4>(a);
}

/* The block's tile: of which matrices, and where it begins. */
typedef struct Tile {
    int64_t x_at, out_at, row, column;
} Tile;

static __device__ __forceinline__ Tile find_tile(const TransposeTileArgs &a, int size) {
    const uint32_t rest = fast_divide(a.column_tiles, blockIdx.x);
    const uint32_t matrix = fast_divide(a.row_tiles, rest);
    Tile tile;
    tile.column = (int64_t)(blockIdx.x - rest * a.column_tiles.divisor) * size;
    tile.row = (int64_t)(rest - matrix * a.row_tiles.divisor) * size;
    tile.x_at = index_map(a.x_at, matrix);
    tile.out_at = index_map(a.out_at, matrix);
    return tile;
}

template <typename T> static __device__ __forceinline__ void copy_tile(const TransposeTileArgs &a) {
    enum { SIZE = TRANSPOSE_TILE, STEP = TRANSPOSE_THREADS / 32 };
    __shared__ T square[SIZE][SIZE + 1];
    const Tile tile = find_tile(a, SIZE);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const T *x = (const T *)a.x + tile.x_at;
    T *out = (T *)a.out + tile.out_at;
#pragma unroll
    for (int k = 0; k < SIZE; k += STEP) {
        const int64_t c = tile.column + warp + k, r = tile.row + lane;
        if (c < a.columns && r < a.rows) square[warp + k][lane] = x[c * a.x_stride + r];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIZE; k += STEP) {
        const int64_t r = tile.row + warp + k, c = tile.column + lane;
        if (c < a.columns && r < a.rows) out[r * a.out_stride + c] = square[lane][warp + k];
    }
}

KERNEL_FUNCTION __launch_bounds__(TRANSPOSE_THREADS) transpose_tile_2(TransposeTileArgs a) {
    copy_tile<uint16_t>(a);
}
KERNEL_FUNCTION __launch_bounds__(TRANSPOSE_THREADS) transpose_tile_4(TransposeTileArgs a) {
    copy_tile<uint32_t>(a);
}

/* Rows and columns are even: two elements of 2 bytes at a time on both sides. */
KERNEL_FUNCTION __launch_bounds__(TRANSPOSE_THREADS, 8)
    transpose_tile_2_pairs(TransposeTileArgs a) {
    enum { SIZE = TRANSPOSE_PAIR_TILE, STEP = TRANSPOSE_THREADS / 32 };
    static_assert(STEP % 2 == 0, "a warp's columns are all even or all odd");
    /* [column % 2][column / 2][pair of rows]: no two lanes meet in a bank, to write or to read. */
    __shared__ uint32_t square[2][SIZE / 2][SIZE / 2 + 1];
    const Tile tile = find_tile(a, SIZE);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint16_t *x = (const uint16_t *)a.x + tile.x_at;
    uint16_t *out = (uint16_t *)a.out + tile.out_at;
    uint32_t ahead[SIZE / STEP]; /* all loads under way */
#pragma unroll
    for (int k = 0; k < SIZE; k += STEP) {
        const int64_t c = tile.column + warp + k, r = tile.row + 2 * lane;
        const bool inside = c < a.columns && r < a.rows;
        ahead[k / STEP] = inside ? *(const uint32_t *)(x + c * a.x_stride + r) : 0;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k += STEP) {
        square[warp % 2][warp / 2 + k / 2][lane] = ahead[k / STEP];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SIZE; k += 2 * STEP) {
        const int pair = warp + k / 2;
        const int64_t r = tile.row + 2 * pair, c = tile.column + 2 * lane;
        if (c < a.columns && r < a.rows) {
            const uint32_t left = square[0][lane][pair], right = square[1][lane][pair];
            *(uint32_t *)(out + r * a.out_stride + c) = (left & 0xffffu) | right << 16;
            *(uint32_t *)(out + (r + 1) * a.out_stride + c) = left >> 16 | (right & 0xffff0000u);
        }
    }
}
