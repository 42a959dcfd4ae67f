/* fp8 and the scales of its blocks (ir/ops/quantize.h): from f32, bf16 or f16, and back to bf16.
 * The bits are the CPU's. Conversions are arithmetic on bits: Ampere has no instruction for them,
 * and memory takes longer.
 *
 * _rows: blocks of 128 numbers in a row, a warp each. _columns: of 128 rows, a column wide; a block
 * of threads has 32 columns of one strip. _tiles: 128 x 128, a block of threads each. _turned: what
 * a thread has are 16 numbers of a column, which become neighbours; they go through shared memory,
 * so that a column's 128 are written at once. */
#include "runtime/cuda/kernels/vector.cuh"

enum {
    LANE = SCALES_BLOCK / 32,         /* consecutive numbers of a lane */
    WARPS = QUANTIZE_THREADS / 32,    /* of a block of threads, */
    WARP_ROWS = SCALES_BLOCK / WARPS, /* and rows of each, of a strip or tile */
};

static __device__ __forceinline__ uint32_t narrow(float x) {
    const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffffu;
    uint32_t code = (size - (120u << 23) + 0x7ffffu + (size >> 20 & 1u)) >> 20;
    /* Below 2^-6: neighbours of 2^14 are 2^-9 apart, as e4m3's subnormals are. */
    if (size < 0x3c800000u) {
        code = __float_as_uint(__fadd_rn(bits_to_float(size), 16384.0f)) - 0x46800000u;
    }
    if (size > 0x43e00000u) code = 0x7fu; /* beyond 448: was infinite, or not-a-number */
    return code | (bits >> 24 & 0x80u);
}

static __device__ __forceinline__ float widen(uint32_t code) {
    const uint32_t size = code & 0x7fu, sign = (code & 0x80u) << 24;
    if (size == 0x7fu) return bits_to_float(0x7fc00000u);
    const float wide =
        size < 8u ? (float)(int)size * 0x1p-9f : bits_to_float((size << 20) + (120u << 23));
    return bits_to_float(__float_as_uint(wide) | sign);
}

/* Bits of the larger size; what is not finite does not count. */
static __device__ __forceinline__ uint32_t larger(uint32_t most, float x) {
    const uint32_t size = __float_as_uint(x) & 0x7fffffffu;
    return size < 0x7f800000u && size > most ? size : most;
}

static __device__ __forceinline__ uint32_t warp_most(uint32_t most) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        const uint32_t other = __shfl_xor_sync(0xffffffffu, most, lanes);
        if (other > most) most = other;
    }
    return most;
}

/* Of a block whose largest size has these bits: 2^ceil(log2(most / 448)), and its inverse. */
static __device__ __forceinline__ float scale_of(uint32_t most, float &inverse) {
    int exponent = (int)(most >> 23) - 8 + ((most & 0x7fffffu) > 0x600000u);
    if (exponent < 127 + LEAST_EXPONENT) exponent = 127 + LEAST_EXPONENT;
    inverse = most ? bits_to_float((uint32_t)(254 - exponent) << 23) : 0.0f;
    return most ? bits_to_float((uint32_t)exponent << 23) : 0.0f;
}

template <typename T>
static __device__ __forceinline__ void get_lane(const T *p, float (&x)[LANE]) {
    if constexpr (sizeof(T) == 4) {
        Elements<4>::get((const float *)p, x);
    } else {
        const uint2 v = *(const uint2 *)p;
        Low<T>::unpack(v.x, x[0], x[1]);
        Low<T>::unpack(v.y, x[2], x[3]);
    }
}

static __device__ __forceinline__ void put_lane(uint8_t *values, const float (&x)[LANE],
                                                float inverse) {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < LANE; j++) word |= narrow(x[j] * inverse) << (8 * j);
    *(uint32_t *)values = word;
}

static __device__ __forceinline__ void widen_lane(const uint8_t *values, float scale, bf16_t *out) {
    const uint32_t word = *(const uint32_t *)values;
    float x[LANE];
#pragma unroll
    for (int j = 0; j < LANE; j++) x[j] = widen(word >> (8 * j) & 0xffu) * scale;
    *(uint2 *)out = make_uint2(Low<bf16_t>::pack(x[0], x[1]), Low<bf16_t>::pack(x[2], x[3]));
}

/* Where a warp's row `i` of tile number `tile` begins for this lane. */
static __device__ __forceinline__ int64_t tile_at(int64_t columns, uint32_t across, uint32_t tile,
                                                  int i) {
    const int64_t row = (int64_t)(tile / across) * SCALES_BLOCK + threadIdx.x / 32 * WARP_ROWS + i;
    return row * columns + (int64_t)(tile % across) * SCALES_BLOCK + threadIdx.x % 32 * LANE;
}

/* A column of a turned tile is 8 pieces of 16 bytes, one of each warp. Which of the 8 places a
 * piece takes depends on a key that is another for lanes beside each other: no two of them meet in
 * a bank when columns lie 128 or 512 bytes apart. */
static __device__ __forceinline__ uint4 *piece_at(uint8_t *tile, int column, int key, int piece) {
    return (uint4 *)(tile + column * SCALES_BLOCK + (piece ^ (key & 7)) * WARP_ROWS);
}

static __device__ __forceinline__ uint4 narrow_piece(const float (&x)[WARP_ROWS], float inverse) {
    uint32_t word[WARP_ROWS / 4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) word[i / 4] |= narrow(x[i] * inverse) << (8 * (i % 4));
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Column `column` of the tile [from `first` on, n columns] that begins in row `row`. */
static __device__ __forceinline__ void put_column(const QuantizeArgs &a, uint8_t *tile, int column,
                                                  int key, int64_t first, int64_t row) {
    const int piece = threadIdx.x % 8;
    if (first + column >= a.columns) return;
    uint4 *to = (uint4 *)(a.values + (first + column) * a.rows + row + piece * WARP_ROWS);
    *to = *piece_at(tile, column, key, piece);
}

template <typename T> static __device__ __forceinline__ void quantize_rows(const QuantizeArgs &a) {
    const int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (block >= a.count) return;
    const int64_t at = block * SCALES_BLOCK + lane * LANE;
    float x[LANE], inverse;
    uint32_t most = 0;
    get_lane((const T *)a.x + at, x);
#pragma unroll
    for (int j = 0; j < LANE; j++) most = larger(most, x[j]);
    const float scale = scale_of(warp_most(most), inverse);
    put_lane(a.values + at, x, inverse);
    if (lane == 0) {
        a.scales[block / a.across * a.scale_down + block % a.across * a.scale_right] = scale;
    }
}

template <typename T, bool TURNED>
static __device__ __forceinline__ void quantize_columns(const QuantizeArgs &a) {
    __shared__ uint32_t found[WARPS][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t strip = blockIdx.x / a.across;
    const int64_t first = (int64_t)(blockIdx.x % a.across) * 32, column = first + lane;
    const bool here = column < a.columns;
    const int64_t at = ((int64_t)strip * SCALES_BLOCK + warp * WARP_ROWS) * a.columns + column;
    float x[WARP_ROWS], inverse;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
        x[i] = here ? load((const T *)a.x + at + i * a.columns) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) most = larger(most, x[i]);
    found[warp][lane] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) most = found[w][lane] > most ? found[w][lane] : most;
    const float scale = scale_of(most, inverse);
    if (here && warp == 0) a.scales[strip * a.scale_down + column * a.scale_right] = scale;
    if constexpr (TURNED) {
        __shared__ __align__(16) uint8_t tile[32 * SCALES_BLOCK];
        *piece_at(tile, lane, lane, warp) = narrow_piece(x, inverse);
        __syncthreads();
        const int turned = threadIdx.x / 8;
        put_column(a, tile, turned, turned, first, (int64_t)strip * SCALES_BLOCK);
    } else if (here) {
#pragma unroll
        for (int i = 0; i < WARP_ROWS; i++) {
            a.values[at + i * a.columns] = (uint8_t)narrow(x[i] * inverse);
        }
    }
}

template <typename T, bool TURNED>
static __device__ __forceinline__ void quantize_tiles(const QuantizeArgs &a) {
    __shared__ uint32_t found[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t strip = blockIdx.x / a.across, right = blockIdx.x % a.across;
    float x[WARP_ROWS][LANE], inverse;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
        get_lane((const T *)a.x + tile_at(a.columns, a.across, blockIdx.x, i), x[i]);
    }
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
#pragma unroll
        for (int j = 0; j < LANE; j++) most = larger(most, x[i][j]);
    }
    most = warp_most(most);
    if (lane == 0) found[warp] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) most = found[w] > most ? found[w] : most;
    const float scale = scale_of(most, inverse);
    if (threadIdx.x < (a.each ? SCALES_BLOCK : 1)) {
        a.scales[strip * a.scale_down + right * a.scale_right + threadIdx.x] = scale;
    }
    if constexpr (TURNED) {
        __shared__ __align__(16) uint8_t tile[SCALES_BLOCK * SCALES_BLOCK];
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            float of_column[WARP_ROWS];
#pragma unroll
            for (int i = 0; i < WARP_ROWS; i++) of_column[i] = x[i][j];
            *piece_at(tile, lane * LANE + j, lane, warp) = narrow_piece(of_column, inverse);
        }
        __syncthreads();
#pragma unroll
        for (int column = threadIdx.x / 8; column < SCALES_BLOCK; column += 32) {
            put_column(a, tile, column, column / LANE, (int64_t)right * SCALES_BLOCK,
                       (int64_t)strip * SCALES_BLOCK);
        }
    } else {
#pragma unroll
        for (int i = 0; i < WARP_ROWS; i++) {
            put_lane(a.values + tile_at(a.columns, a.across, blockIdx.x, i), x[i], inverse);
        }
    }
}

#define QUANTIZE_KERNEL(name, suffix, ...)                                                         \
    KERNEL_FUNCTION __launch_bounds__(QUANTIZE_THREADS) name##_##suffix(QuantizeArgs a) {          \
        __VA_ARGS__(a);                                                                            \
    }
#define QUANTIZE_KERNELS(suffix, T)                                                                \
    QUANTIZE_KERNEL(quantize_rows, suffix, quantize_rows<T>)                                       \
    QUANTIZE_KERNEL(quantize_columns, suffix, quantize_columns<T, false>)                          \
    QUANTIZE_KERNEL(quantize_columns_turned, suffix, quantize_columns<T, true>)                    \
    QUANTIZE_KERNEL(quantize_tiles, suffix, quantize_tiles<T, false>)                              \
    QUANTIZE_KERNEL(quantize_tiles_turned, suffix, quantize_tiles<T, true>)
QUANTIZE_KERNELS(f32, float)
QUANTIZE_KERNELS(bf16, bf16_t)
QUANTIZE_KERNELS(f16, f16_t)

KERNEL_FUNCTION __launch_bounds__(QUANTIZE_THREADS) dequantize_rows(DequantizeArgs a) {
    const int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (block >= a.count) return;
    const int64_t at = block * SCALES_BLOCK + threadIdx.x % 32 * LANE;
    const float scale =
        a.scales[block / a.across * a.scale_down + block % a.across * a.scale_right];
    widen_lane(a.values + at, scale, (bf16_t *)a.out + at);
}

KERNEL_FUNCTION __launch_bounds__(QUANTIZE_THREADS) dequantize_columns(DequantizeArgs a) {
    const uint32_t strip = blockIdx.x / a.across;
    const int64_t column = (int64_t)(blockIdx.x % a.across) * 32 + threadIdx.x % 32;
    if (column >= a.columns) return;
    const int64_t row = (int64_t)strip * SCALES_BLOCK + threadIdx.x / 32 * WARP_ROWS;
    const int64_t at = row * a.columns + column;
    const float scale = a.scales[strip * a.scale_down + column * a.scale_right];
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
        store((bf16_t *)a.out + at + i * a.columns, widen(a.values[at + i * a.columns]) * scale);
    }
}

KERNEL_FUNCTION __launch_bounds__(QUANTIZE_THREADS) dequantize_tiles(DequantizeArgs a) {
    const float scale =
        a.scales[blockIdx.x / a.across * a.scale_down + blockIdx.x % a.across * a.scale_right];
#pragma unroll
    for (int i = 0; i < WARP_ROWS; i++) {
        const int64_t at = tile_at(a.columns, a.across, blockIdx.x, i);
        widen_lane(a.values + at, scale, (bf16_t *)a.out + at);
    }
}
