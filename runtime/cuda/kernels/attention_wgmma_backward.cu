/* attention_backward.cu's for Hopper: the same sums in the same order of tiles, by wgmma.
 *
 * Two warpgroups own 128 keys (attention_keys, scores transposed) or 128 rows (attention_queries),
 * 64 each. Scores and products with do are issued together; weights are made from scores while the
 * tensor cores still do the other, and, in attention_keys, their gradients while those add up dv.
 */
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

template <typename T, int HEAD>
static __device__ __forceinline__ void keys_gradient(const AttentionBackwardArgs &a) {
    typedef PanelTile<HEAD, ATTENTION_TILE> Own;
    typedef PanelTile<HEAD, ROW_TILE> Rows;
    static_assert(Rows::BYTES == ATTENTION_WGMMA_KEYS_STEP * HEAD * 2, "as the binder counts");
    /* k, v, two of (q, do), two of (lse2, delta) */
    DYNAMIC_SHARED(unsigned char, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const SharedAddress k_tile = shared_address(shared), v_tile = k_tile + Own::BYTES;
    const SharedAddress buffers = v_tile + Own::BYTES;
    constexpr int STATISTICS = 2 * Own::BYTES + 4 * Rows::BYTES;
    const int tile_key = place.tile * ATTENTION_TILE;
    const int64_t base = attention_first_query(s, place);
    const void *const kv[2] = {a.k, a.v}, *const rows[2] = {a.q, a.d_o};
    const int group_row = first_group_row();

    auto copy_rows = [&](int first_row, int buffer) {
        tile_copy_in<Rows, ROW_TILE, ATTENTION_WGMMA_THREADS>(
            buffers + buffer * 2 * Rows::BYTES, rows, base, QueryRows{s}, first_row, s.rows);
        copy_statistics<ROW_TILE>(k_tile + STATISTICS + buffer * 2 * ROW_TILE * 4, a, place, first_row);
        copy_async_commit();
    };
    int first_row = attention_begin_row(s, tile_key, ROW_TILE);
    const int end_row = attention_end_row(s, NO_DOCUMENTS, tile_key + ATTENTION_TILE);
    tile_copy_in<Own, ATTENTION_TILE, ATTENTION_WGMMA_THREADS>(
        k_tile, kv, attention_first_key(s, place), KeyRows{s}, tile_key, s.keys);
    copy_rows(first_row, 0);

    float dk[1][HEAD / 8][4], dv[1][HEAD / 8][4];
    clear_fragments(dk);
    clear_fragments(dv);
#pragma unroll 1
    for (int buffer = 0; first_row < end_row; first_row += ROW_TILE, buffer ^= 1) {
        wait_for_tiles();
        const SharedAddress q_tile = buffers + buffer * 2 * Rows::BYTES;
        const SharedAddress do_tile = q_tile + Rows::BYTES;
        const float *lse2 = (const float *)(shared + STATISTICS) + buffer * 2 * ROW_TILE;
        const int key = tile_key + thread_anew() / 32 * 16; /* this warp's first */
        float p[1][ROW_TILE / 8][4], ds[1][ROW_TILE / 8][4];
        uint32_t weights[ROW_TILE / 16][1][4], gradients[ROW_TILE / 16][1][4];

        issue_scores<T, Own, Rows>(p[0], k_tile, group_row, q_tile);
        issue_scores<T, Own, Rows>(ds[0], v_tile, group_row, do_tile);
        if (first_row + ROW_TILE < end_row) copy_rows(first_row + ROW_TILE, buffer ^ 1);
        wgmma_wait<1>();
        wgmma_pin(p[0]);
        mask_transposed<1, ROW_TILE>(s, NO_DOCUMENTS, first_row, key, p);
        weigh(s, lse2, p[0]);
        pack_fragments<T>(weights, p);
        issue_weighted<T, Rows>(dv[0], weights, do_tile);
        wgmma_wait<1>();
        wgmma_pin(ds[0]);
        weights_gradient(lse2 + ROW_TILE, p[0], ds[0]);
        pack_fragments<T>(gradients, ds);
        issue_weighted<T, Rows>(dk[0], gradients, q_tile);
        wgmma_wait<0>();
        wgmma_pin(dv[0]);
        wgmma_pin(dk[0]);
        wgmma_pin(weights);
        wgmma_pin(gradients);
    }
    /* Out through k and v, which nobody reads any more. */
    __syncthreads();
    const AttentionPlace last = attention_place(s, renew((int)blockIdx.x), false);
    const int in_tile = thread_anew() / 32 * 16, key = last.tile * ATTENTION_TILE + in_tile;
    const int64_t at = attention_first_key(s, last);
    const float scale[1][2] = {{s.scale, s.scale}}, one[1][2] = {{1, 1}};
    tile_put<T, Own>(shared, in_tile, 0, dk, scale);
    tile_put<T, Own>(shared + Own::BYTES, in_tile, 0, dv, one);
    __syncwarp();
    tile_copy_out<Own, 16>(shared, in_tile, (T *)a.dk + at, KeyRows{s}, key, s.keys);
    tile_copy_out<Own, 16>(shared + Own::BYTES, in_tile, (T *)a.dv + at, KeyRows{s}, key, s.keys);
}

template <typename T, int HEAD, int KEYS>
static __device__ __forceinline__ void queries_gradient(const AttentionBackwardArgs &a) {
    typedef PanelTile<HEAD, ATTENTION_TILE> Own;
    typedef PanelTile<HEAD, KEYS> Keys;
    constexpr int PART = 32;
    DYNAMIC_SHARED(unsigned char, shared); /* q, do, two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), do_tile = q_tile + Own::BYTES;
    const SharedAddress buffers = do_tile + Own::BYTES;
    const int tile_row = place.tile * ATTENTION_TILE;
    const int end_key = attention_end_key(s, tile_row + ATTENTION_TILE);
    int first_key = attention_begin_key(s, NO_DOCUMENTS, tile_row, KEYS);
    const int64_t base = attention_first_key(s, place);
    const void *const kv[2] = {a.k, a.v}, *const rows[2] = {a.q, a.d_o};
    const int group_row = first_group_row();

    auto copy_keys = [&](int first_key, int buffer) {
        tile_copy_in<Keys, KEYS, ATTENTION_WGMMA_THREADS>(buffers + buffer * 2 * Keys::BYTES, kv,
                                                          base, KeyRows{s}, first_key, s.keys);
        copy_async_commit();
    };
    tile_copy_in<Own, ATTENTION_TILE, ATTENTION_WGMMA_THREADS>(
        q_tile, rows, attention_first_query(s, place), QueryRows{s}, tile_row, s.rows);
    copy_keys(first_key, 0);

    float acc[1][HEAD / 8][4], lse2[2], delta[2];
    clear_fragments(acc);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int thread = thread_anew(), row = tile_row + thread / 32 * 16 + thread % 32 / 4 + half * 8;
        int64_t slot = (int64_t)place.pair * s.rows_padded + row;
        lse2[half] = a.lse2[slot];
        delta[half] = a.delta[slot];
    }
#pragma unroll 1
    for (int buffer = 0; first_key < end_key; first_key += KEYS, buffer ^= 1) {
        wait_for_tiles();
        const SharedAddress k_tile = buffers + buffer * 2 * Keys::BYTES;
        const int thread = thread_anew(), row = tile_row + thread / 32 * 16;
        float ds[1][KEYS / 8][4], dp[1][KEYS / 8][4];
        uint32_t gradients[KEYS / PART][PART / 16][1][4];

        issue_scores<T, Own, Keys>(ds[0], q_tile, group_row, k_tile);
        issue_scores<T, Own, Keys>(dp[0], do_tile, group_row, k_tile + Keys::BYTES);
        if (first_key + KEYS < end_key) copy_keys(first_key + KEYS, buffer ^ 1);
        wgmma_wait<1>();
        wgmma_pin(ds[0]);
        if (wgmma_meanwhile(s.seq)) {
            attention_mask_scores(s, NO_DOCUMENTS, row, first_key, ds);
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ds[0][n][i] = exp2_fast(fmaf(ds[0][n][i], s.scale_log2, -lse2[i / 2]));
            }
        }
        wgmma_wait<0>();
        wgmma_pin(dp[0]);
        /* The first keys are multiplied while the gradients of others are made. */
#pragma unroll
        for (int part = 0; part < KEYS; part += PART) {
            const int first = part / 8;
            if (HEAD < 128 || wgmma_meanwhile(s.seq)) { /* short of registers with heads of 64 */
#pragma unroll
                for (int n = first; n < first + PART / 8; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) ds[0][n][i] *= dp[0][n][i] - delta[i / 2];
                }
                pack_fragments<T>(gradients[part / PART], ds, first);
            }
            issue_weighted<T, Keys>(acc[0], gradients[part / PART], k_tile + part * 128);
        }
        wgmma_wait<0>();
        wgmma_pin(acc[0]);
#pragma unroll
        for (int part = 0; part < KEYS / PART; part++) wgmma_pin(gradients[part]);
    }
    __syncthreads();
    const AttentionPlace last = attention_place(s, renew((int)blockIdx.x), s.causal);
    const int in_tile = thread_anew() / 32 * 16;
    const float scale[1][2] = {{s.scale, s.scale}};
    tile_put<T, Own>(shared, in_tile, 0, acc, scale);
    __syncwarp();
    tile_copy_out<Own, 16>(shared, in_tile, (T *)a.dq + attention_first_query(s, last),
                           QueryRows{s}, last.tile * ATTENTION_TILE + in_tile, s.rows);
}

#define BACKWARD_KERNELS(T, suffix)                                                                \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)                                  \
        attention_keys_64_wgmma_##suffix(AttentionBackwardArgs a) {                                \
        WGMMA_KERNEL((keys_gradient<T, 64>(a)));                                                   \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)                                  \
        attention_keys_128_wgmma_##suffix(AttentionBackwardArgs a) {                               \
        WGMMA_KERNEL((keys_gradient<T, 128>(a)));                                                  \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 2)                                  \
        attention_queries_64_wgmma_##suffix(AttentionBackwardArgs a) {                             \
        WGMMA_KERNEL((queries_gradient<T, 64, ATTENTION_WGMMA_STEP_64>(a)));                       \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)                                  \
        attention_queries_128_wgmma_##suffix(AttentionBackwardArgs a) {                            \
        WGMMA_KERNEL((queries_gradient<T, 128, ATTENTION_WGMMA_STEP_128>(a)));                     \
    }
BACKWARD_KERNELS(bf16_t, bf16)
BACKWARD_KERNELS(f16_t, f16)
