/* Kernels that test the emulator: each does what a device would let it do, or must not. */
#include "runtime/cuda/kernels/attention_wgmma.cuh"
#include "runtime/cuda/kernels/turns.cuh"
#include "runtime/cuda/kernels/warp_roles.cuh"
#include "tests/emulate/probe.h"

#ifdef __CUDACC__
#define PROBE(name, type) extern "C" __global__ void name(type a)
#else
#define PROBE(name, type)                                                                          \
    static void name(type a);                                                                      \
    static void enter_##name(const void *args) {                                                   \
        name(*static_cast<const type *>(args));                                                    \
    }                                                                                              \
    static void name(type a)
#endif

PROBE(shuffles, ProbeArgs) {
    int t = threadIdx.x;
    int *out = a.ints + t * 6;
    out[0] = __shfl_sync(0xffffffffu, t, 5);
    out[1] = __shfl_xor_sync(0xffffffffu, t, 16);
    out[2] = __shfl_down_sync(0xffffffffu, t, 3);
    out[3] = __shfl_up_sync(0xffffffffu, t, 3);
    out[4] = __shfl_xor_sync(0xffffffffu, t, 5, 8);
    out[5] = (int)__ballot_sync(0xffffffffu, t % 3 == 0);
}

/* Half warps on different lines, each with its own mask. */
PROBE(half_warps, ProbeArgs) {
    int t = threadIdx.x, sum = t;
    if (t % 32 < 16) {
        for (int bits = 1; bits < 16; bits *= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, bits);
    } else {
        for (int bits = 1; bits < 16; bits *= 2) sum += __shfl_xor_sync(0xffff0000u, sum, bits);
    }
    a.ints[t] = sum;
}

/* Sum of all of the block's numbers, by halves in shared memory; blocks after one another. */
PROBE(reduce, ProbeArgs) {
    __shared__ float part[1024];
    int t = threadIdx.x, n = blockDim.x;
    part[t] = a.floats[blockIdx.x * n + t];
    for (int half = n / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) a.out[blockIdx.x] = part[0];
    if (t == 0) atomicAdd(a.ints, 1);
}

/* Reverses the block's numbers through dynamic shared memory; `n` 1: without the barrier. */
PROBE(reverse, ProbeArgs) {
    DYNAMIC_SHARED(float, part);
    int t = threadIdx.x, n = blockDim.x;
    part[t] = a.floats[t];
    if (a.n == 0) __syncthreads();
    a.out[t] = part[n - 1 - t];
}

/* out [16, 8] = a [16, 16] b [16, 8] + out: a by ldmatrix, b by ldmatrix.trans, both from shared
 * memory that cp.async fills. One warp. lows: a, then b. */
template <typename T> static __device__ __forceinline__ void multiply_tiles(const ProbeArgs &a) {
    __shared__ __align__(16) uint16_t tile[16 * 16 + 16 * 8];
    int lane = threadIdx.x, g = lane / 4, t = lane % 4 * 2;
    uint32_t ra[4], rb[2];
    float d[4] = {a.out[g * 8 + t], a.out[g * 8 + t + 1], a.out[(g + 8) * 8 + t],
                  a.out[(g + 8) * 8 + t + 1]};
    copy_async_16(shared_address(tile + 8 * lane), a.lows + 8 * lane, 16);
    copy_async_commit();
    if (lane < 16)
        copy_async_16(shared_address(tile + 256 + 8 * lane), a.lows + 256 + 8 * lane, 16);
    copy_async_commit();
    if (a.n == 0) copy_async_wait<0>();
    if (a.n == 1) copy_async_wait<1>(); /* b may not have come */
    __syncwarp();
    ldmatrix_x4(ra, shared_address(tile + lane % 16 * 16 + lane / 16 * 8));
    ldmatrix_x2_trans(rb, shared_address(tile + 256 + lane % 16 * 8));
    mma<T>(d, ra, rb);
    a.out[g * 8 + t] = d[0];
    a.out[g * 8 + t + 1] = d[1];
    a.out[(g + 8) * 8 + t] = d[2];
    a.out[(g + 8) * 8 + t + 1] = d[3];
}

PROBE(multiply_bf16, ProbeArgs) {
    multiply_tiles<bf16_t>(a);
}
PROBE(multiply_f16, ProbeArgs) {
    multiply_tiles<f16_t>(a);
}

/* out [64, 128] += a [64, 16] b [16, 128], lows: a, then b, by one warpgroup. `n`, see probe.h. */
template <typename T> static __device__ __forceinline__ void multiply_by_group(const ProbeArgs &a) {
    typedef PanelTile<64, 64> A;
    typedef PanelTile<64, 16> AByK;        /* [k][m] */
    typedef PanelTile<128, 16> ByK;        /* b as it is */
    typedef PanelTile<64, 128> Transposed; /* [n][k] */
    constexpr int COLUMN = 2;              /* 16-byte chunks before k's */
    DYNAMIC_SHARED(unsigned char, shared);
    const SharedAddress a_tile = shared_address(shared), b_tile = a_tile + A::BYTES;
    const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    float d[16][4];
    uint32_t fragments[4];
    for (int i = t; i < 64 * 2; i += blockDim.x) {
        copy_async_16(a_tile + A::offset(i / 2, COLUMN + i % 2), a.lows + i * 8, 16);
    }
    for (int i = t; i < 16 * 16; i += blockDim.x) {
        copy_async_16(b_tile + ByK::offset(i / 16, i % 16), a.lows + 1024 + i * 8, 16);
    }
    copy_async_commit();
    copy_async_wait<0>();
    if (a.n == PROBE_TRANSPOSED) {
        __syncthreads();
        for (int i = t; i < 128 * 16; i += blockDim.x) {
            int at = Transposed::offset(i / 16, COLUMN + i % 16 / 8) + i % 8 * 2;
            *(uint16_t *)(shared + A::BYTES + ByK::BYTES + at) =
                a.lows[1024 + i % 16 * 128 + i / 16];
        }
    }
    if (a.n == PROBE_A_BY_K) {
        __syncthreads();
        for (int i = t; i < 64 * 16; i += blockDim.x) {
            int at = AByK::offset(i % 16, i / 16 / 8) + i / 16 % 8 * 2;
            *(uint16_t *)(shared + at) = a.lows[i];
        }
    }
    if (a.n != PROBE_NOT_HANDED_OVER) shared_to_wgmma();
    __syncthreads();
    for (int i = 0; i < 64; i++) {
        int at = (row + i % 4 / 2 * 8) * 128 + column + i / 4 * 8 + i % 2;
        d[i / 4][i % 4] = a.out[at];
    }
    for (int i = 0; i < 4; i++) {
        int at = (row + i % 2 * 8) * 16 + column + i / 2 * 8;
        fragments[i] = a.lows[at] | (uint32_t)a.lows[at + 1] << 16;
    }
    const WgmmaMatrix first = wgmma_matrix(a_tile + COLUMN * 16, 16);
    WgmmaMatrix by_k = wgmma_matrix(b_tile, ByK::PANEL_BYTES);
    if (a.n == PROBE_MISALIGNED) by_k = wgmma_further(by_k, 128);
    if (a.n == PROBE_NOT_SWIZZLED) by_k &= ~(1ull << 62);
    if (a.n == PROBE_DIFFERENT && t >= 64) by_k = wgmma_further(by_k, 1024);
    if (a.n != PROBE_NO_FENCE) wgmma_fence();
    if (a.n == PROBE_FRAGMENTS || a.n == PROBE_FRAGMENT_CHANGED) {
        Wgmma<T, 128>::template multiply_fragments<true>(d, fragments, by_k, true);
    } else if (a.n == PROBE_TRANSPOSED) {
        Wgmma<T, 128>::template multiply_tiles<false>(
            d, first, wgmma_matrix(b_tile + ByK::BYTES + COLUMN * 16, 16), true);
    } else if (a.n == PROBE_A_BY_K) {
        Wgmma<T, 128>::template multiply_tiles<true, true>(
            d, wgmma_matrix(a_tile, AByK::PANEL_BYTES), by_k, true);
    } else {
        Wgmma<T, 128>::template multiply_tiles<true>(d, first, by_k, true);
    }
    wgmma_commit();
    if (a.n == PROBE_TILE_CHANGED && t == 64) shared[A::BYTES] ^= 1;
    if (a.n == PROBE_FRAGMENT_CHANGED) fragments[3] ^= 1;
    if (a.n == PROBE_SUM_CHANGED) d[15][3] = 1;
    if (a.n != PROBE_NO_WAIT) wgmma_wait<0>();
    for (int i = 0; i < 64; i++) {
        int at = (row + i % 4 / 2 * 8) * 128 + column + i / 4 * 8 + i % 2;
        a.out[at] = d[i / 4][i % 4];
    }
}

PROBE(wgmma_bf16, ProbeArgs) {
    multiply_by_group<bf16_t>(a);
}
PROBE(wgmma_f16, ProbeArgs) {
    multiply_by_group<f16_t>(a);
}

/* Conversions of a.n numbers, one by one, then two at a time: floats rounded into ints, which then
 * holds 2 n elements of 16 bits, and lows widened into out [2 n]. */
template <typename T> static __device__ __forceinline__ void convert(const ProbeArgs &a) {
    uint32_t *pairs = (uint32_t *)a.ints + a.n / 2;
    for (int i = 2 * threadIdx.x; i < a.n; i += 2 * blockDim.x) {
        for (int k = i; k < i + 2; k++) {
            store((T *)a.ints + k, a.floats[k]);
            a.out[k] = load((const T *)a.lows + k);
        }
        pairs[i / 2] = Low<T>::pack(a.floats[i], a.floats[i + 1]);
        Low<T>::unpack(*(const uint32_t *)(a.lows + i), a.out[a.n + i], a.out[a.n + i + 1]);
    }
}

PROBE(convert_bf16, ProbeArgs) {
    convert<bf16_t>(a);
}
PROBE(convert_f16, ProbeArgs) {
    convert<f16_t>(a);
}

/* Four matrices in, and out again by the layout that ldmatrix promises; `n` 1: transposed. */
PROBE(matrices, ProbeArgs) {
    __shared__ __align__(16) uint16_t tile[4 * 64];
    int lane = threadIdx.x;
    uint32_t r[4], two[2];
    copy_async_16(shared_address(tile + 8 * lane), a.lows + 8 * lane, 16);
    copy_async_wait<0>();
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
    if (a.n) {
        ldmatrix_x4_trans(r, shared_address(tile + 8 * lane));
    } else {
        ldmatrix_x4(r, shared_address(tile + 8 * lane));
    }
    for (int i = 0; i < 4; i++) a.ints[i * 32 + lane] = (int)r[i];
    ldmatrix_x2(two, shared_address(tile + 8 * (lane % 16)));
    for (int i = 0; i < 2; i++) a.ints[128 + i * 32 + lane] = (int)two[i];
}

/* 16 bytes, of which a.n come from memory and the others are zero. */
PROBE(copy_part, ProbeArgs) {
    __shared__ __align__(16) uint16_t part[8];
    copy_async_16(shared_address(part), a.lows, a.n);
    copy_async_commit();
    copy_async_wait<0>();
    for (int i = 0; i < 8; i++) a.ints[i] = part[i];
}

/* Four matrices of `lows`, through registers into others. */
PROBE(store_matrices, ProbeArgs) {
    __shared__ __align__(16) uint16_t tile[256], other[256];
    int lane = (int)threadIdx.x;
    uint32_t r[4];
    for (int i = lane; i < 256; i += 32) tile[i] = a.lows[i];
    __syncwarp();
    ldmatrix_x4(r, shared_address(tile + 8 * lane));
    stmatrix_x4(shared_address(other + 8 * (31 - lane)), r);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) a.ints[i] = other[i];
}

/* Each block adds to what the one before it left; or one waits for a block of higher index. */
PROBE(turns, ProbeArgs) {
    uint32_t *const turn = (uint32_t *)a.ints, block = blockIdx.x;
    float4 *const sums = (float4 *)a.out;
    turns_wait(turn, block + (uint32_t)a.n);
    const float x[4] = {1, 2, 3, (float)block}, none[4] = {0, 0, 0, 0};
    if (block) {
        turns_add(sums, x);
    } else {
        turns_put(sums, none);
    }
    turns_fence();
    turns_pass(turn, turns_look(turn) + 1);
}

/* The first half of the warps hands on to the second what is at lows, ints really; or does not. */
PROBE(named_barriers, ProbeArgs) {
    __shared__ int handed[64];
    const int t = threadIdx.x;
    if (t < 64) {
        handed[t] = ((const int *)a.lows)[t];
        if (a.n == PROBE_OTHER_COUNT && t < 32) {
            named_arrive<96>(1);
        } else {
            named_arrive<128>(1);
        }
        if (a.n == PROBE_TWICE && t < 32) {
            named_arrive<64>(2);
            named_arrive<64>(2);
        }
        if (a.n == PROBE_LEFT && t < 32) named_arrive<64>(2);
        if (a.n == PROBE_STUCK && t < 32) named_sync<64>(2);
        if (a.n == PROBE_TOO_MANY && t < 32) named_sync<160>(2);
    } else {
        named_sync<128>(1);
        a.ints[t] = handed[t - 64];
    }
}

/* 32 numbers, twice, through shared memory. */
PROBE(bulk, ProbeArgs) {
    __shared__ __align__(16) float numbers[32];
    const int t = threadIdx.x;
    const SharedAddress from = shared_address(numbers);
    numbers[t] = a.floats[t];
    shared_to_wgmma();
    __syncthreads();
    if (t) return;
    turns_put_bulk((float4 *)a.out, from, 128);
    turns_wait_bulk();
    turns_add_bulk((float4 *)a.out, from + (a.n == PROBE_BULK_MISALIGNED ? 8 : 0), 112);
    if (a.n == PROBE_BULK_CHANGED) numbers[3] += 1;
    if (a.n != PROBE_BULK_LEFT) turns_wait_bulk();
}

/* Mistakes */
PROBE(two_barriers, ProbeArgs) {
    if ((int)threadIdx.x < 32 + a.n) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

PROBE(early_return, ProbeArgs) {
    if ((int)threadIdx.x == 7 + a.n) return;
    __syncthreads();
}

PROBE(lane_missing, ProbeArgs) {
    if (threadIdx.x % 32 == 9) return;
    a.ints[threadIdx.x] = __shfl_sync(0xffffffffu, (int)threadIdx.x, 0);
}

PROBE(not_in_mask, ProbeArgs) {
    a.ints[threadIdx.x] = __shfl_sync(0x7fffffffu, (int)threadIdx.x, 0);
}

PROBE(misaligned, ProbeArgs) {
    __shared__ __align__(16) uint16_t part[16];
    copy_async_16(shared_address(part + 1), a.lows, 16);
}

#ifndef __CUDACC__
extern "C" {
struct EmulateProbe {
    const char *name;
    EmulateEntry *entry;
};
#define ROW(name)                                                                                  \
    { #name, enter_##name }
extern const EmulateProbe EMULATE_PROBES[];
const EmulateProbe EMULATE_PROBES[] = {
    ROW(shuffles),      ROW(half_warps),     ROW(reduce),       ROW(reverse),
    ROW(multiply_bf16), ROW(multiply_f16),   ROW(wgmma_bf16),   ROW(wgmma_f16),
    ROW(convert_bf16),  ROW(convert_f16),    ROW(matrices),     ROW(copy_part),
    ROW(two_barriers),  ROW(early_return),   ROW(lane_missing), ROW(not_in_mask),
    ROW(misaligned),    ROW(store_matrices), ROW(turns),        ROW(named_barriers),
    ROW(bulk),          {nullptr, nullptr},
};
}
#endif
