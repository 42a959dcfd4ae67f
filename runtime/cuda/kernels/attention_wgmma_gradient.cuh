/* What the kernels of attention's gradient on wgmma share. */
#ifndef RUNTIME_CUDA_KERNELS_ATTENTION_WGMMA_GRADIENT_CUH
#define RUNTIME_CUDA_KERNELS_ATTENTION_WGMMA_GRADIENT_CUH

#include "runtime/cuda/kernels/attention_gradient.cuh"
#include "runtime/cuda/kernels/attention_wgmma.cuh"

/* Scores [64 keys, 8 N8 rows] become weights; dp their gradients. lse2, delta: of the rows. */
template <int N8>
static __device__ __forceinline__ void weigh(const AttentionSizes &s, const float *lse2,
                                             float (&scores)[N8][4]) {
    int t = thread_anew() & 3;
#pragma unroll
    for (int n = 0; n < N8; n++) {
        float2 of = *(const float2 *)(lse2 + n * 8 + t * 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[n][i] = exp2_fast(fmaf(scores[n][i], s.scale_log2, i % 2 ? -of.y : -of.x));
    }
}
template <int N8>
static __device__ __forceinline__ void
weights_gradient(const float *delta, const float (&weights)[N8][4], float (&dp)[N8][4]) {
    int t = thread_anew() & 3;
#pragma unroll
    for (int n = 0; n < N8; n++) {
        float2 of = *(const float2 *)(delta + n * 8 + t * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) dp[n][i] = weights[n][i] * (dp[n][i] - (i % 2 ? of.y : of.x));
    }
}

/* x of this warp's keys, the first one at in_tile, out through its rows of a tile of shared memory,
 * which nobody reads any more. */
template <typename T, class Tile, int N8>
static __device__ __forceinline__ void put_gradients(unsigned char *tile, int in_tile,
                                                     const float (&x)[1][N8][4], float scale, T *to,
                                                     const KeyGradients &rows, int first, int end) {
    const float factors[1][2] = {{scale, scale}};
    tile_put<T, Tile>(tile, in_tile, 0, x, factors);
    __syncwarp();
    tile_copy_out<Tile, 16>(tile, in_tile, to, rows, first, end);
    __syncwarp();
}

/* dk and dv of a tile of keys, by its number, out through such tiles, or one for both. Of the
 * block's first ATTENTION_WGMMA_THREADS threads. */
template <typename T, class Heads>
static __device__ __forceinline__ void
put_key_gradients(const AttentionBackwardArgs &a, int id, unsigned char *dk_tile,
                  unsigned char *dv_tile, const float (&dk)[1][Heads::HEAD / 8][4],
                  const float (&dv)[1][Heads::VALUE / 8][4]) {
    const AttentionSizes &s = a.sizes;
    const AttentionPlace last = attention_place(s, renew(id), false);
    const int in_tile = thread_anew() / 32 * 16, key = last.tile * ATTENTION_TILE + in_tile;
    const KeyGradients dk_rows = {s, a.dk_row, s.head},
                       dv_rows = {s, a.dv_row, Heads::EVEN ? s.head : s.values};
    put_gradients<T, PanelTile<Heads::HEAD, ATTENTION_TILE>>(
        dk_tile, in_tile, dk, s.scale, (T *)a.dk + dk_rows.first(last), dk_rows, key, s.keys);
    put_gradients<T, PanelTile<Heads::VALUE, ATTENTION_TILE>>(
        dv_tile, in_tile, dv, 1, (T *)a.dv + dv_rows.first(last), dv_rows, key, s.keys);
}

#endif
