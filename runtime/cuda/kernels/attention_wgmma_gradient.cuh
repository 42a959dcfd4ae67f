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

/* dk and dv of a tile of keys, by its number, out through its tiles of k and v, which lie first in
 * shared memory and which nobody reads any more. Of the block's first ATTENTION_WGMMA_THREADS
 * threads. */
template <typename T, class Heads>
static __device__ __forceinline__ void
put_key_gradients(const AttentionBackwardArgs &a, int id, unsigned char *shared,
                  const float (&dk)[1][Heads::HEAD / 8][4],
                  const float (&dv)[1][Heads::VALUE / 8][4]) {
    typedef PanelTile<Heads::HEAD, ATTENTION_TILE> OwnKeys;
    typedef PanelTile<Heads::VALUE, ATTENTION_TILE> OwnValues;
    const AttentionSizes &s = a.sizes;
    const AttentionPlace last = attention_place(s, renew(id), false);
    const int in_tile = thread_anew() / 32 * 16, key = last.tile * ATTENTION_TILE + in_tile;
    const KeyGradients dk_rows = {s, a.dk_row, s.head},
                       dv_rows = {s, a.dv_row, Heads::EVEN ? s.head : s.values};
    const float scale[1][2] = {{s.scale, s.scale}}, one[1][2] = {{1, 1}};
    tile_put<T, OwnKeys>(shared, in_tile, 0, dk, scale);
    tile_put<T, OwnValues>(shared + OwnKeys::BYTES, in_tile, 0, dv, one);
    __syncwarp();
    tile_copy_out<OwnKeys, 16>(shared, in_tile, (T *)a.dk + dk_rows.first(last), dk_rows, key,
                               s.keys);
    tile_copy_out<OwnValues, 16>(shared + OwnKeys::BYTES, in_tile, (T *)a.dv + dv_rows.first(last),
                                 dv_rows, key, s.keys);
}

#endif
