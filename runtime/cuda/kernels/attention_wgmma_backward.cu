/* attention_backward.cu's for Hopper: the same sums in the same order of tiles, by wgmma.
 *
 * Two warpgroups own 128 keys (attention_keys, scores transposed) or 128 rows (attention_queries),
 * 64 each. Scores and products with do are issued together; weights are made from scores while the
 * tensor cores still do the other, and, in attention_keys, their gradients while those add up dv.
 */
#include "runtime/cuda/kernels/attention_wgmma_gradient.cuh"

/* N: rows whose weights are there at a time, which registers decide. */
template <typename T, class Heads, int N>
static __device__ __forceinline__ void keys_gradient(const AttentionBackwardArgs &a) {
    typedef PanelTile<Heads::HEAD, ATTENTION_TILE> OwnKeys;
    typedef PanelTile<Heads::VALUE, ATTENTION_TILE> OwnValues;
    typedef PanelTile<Heads::HEAD, ROW_TILE> Queries;
    typedef PanelTile<Heads::VALUE, ROW_TILE> Outs;
    static_assert((int)ROW_TILE == (int)ATTENTION_WGMMA_KEYS_STEP, "as the binder counts");
    constexpr int OWN_BYTES = OwnKeys::BYTES + OwnValues::BYTES;
    constexpr int BUFFER_BYTES = Queries::BYTES + Outs::BYTES;
    /* k, v, two of (q, do), two of (lse2, delta) */
    DYNAMIC_SHARED(unsigned char, shared);
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, false);
    const SharedAddress k_tile = shared_address(shared), v_tile = k_tile + OwnKeys::BYTES;
    const SharedAddress buffers = k_tile + OWN_BYTES;
    constexpr int STATISTICS = OWN_BYTES + 2 * BUFFER_BYTES;
    const int tile_key = place.tile * ATTENTION_TILE;
    const AttentionBase base = attention_query_base<Heads>(s, place);
    const int32_t *const starts = attention_starts(s, place);
    const int group_row = first_group_row();

    auto copy_rows = [&](int first_row, int buffer) {
        attention_copy_rows<Heads, ROW_TILE, ATTENTION_WGMMA_THREADS, PanelTile>(
            buffers + buffer * BUFFER_BYTES, s, a.q, a.d_o, base, first_row);
        copy_statistics<ROW_TILE>(k_tile + STATISTICS + buffer * 2 * ROW_TILE * 4, a, place,
                                  first_row);
        copy_async_commit();
    };
    int first_row = attention_begin_row(s, tile_key, ROW_TILE);
    const int end_row = attention_end_row(s, starts, tile_key + ATTENTION_TILE);
    if (first_row < end_row) { /* of part of the queries none may see these keys */
        attention_copy_keys<Heads, ATTENTION_TILE, ATTENTION_WGMMA_THREADS, PanelTile>(
            k_tile, s, a.k, a.v, attention_key_base<Heads>(s, place), tile_key);
        copy_rows(first_row, 0);
    }

    float dk[1][Heads::HEAD / 8][4], dv[1][Heads::VALUE / 8][4];
    clear_fragments(dk);
    clear_fragments(dv);
#pragma unroll 1
    for (int buffer = 0; first_row < end_row; first_row += ROW_TILE, buffer ^= 1) {
        wait_for_tiles();
        const SharedAddress tiles = buffers + buffer * BUFFER_BYTES;
        const int key = tile_key + thread_anew() / 32 * 16; /* this warp's first */
#pragma unroll 1
        for (int part = 0; part < ROW_TILE; part += N) {
            const SharedAddress q_rows = tiles + part * 128;
            const SharedAddress do_rows = q_rows + Queries::BYTES;
            const float *lse2 = (const float *)(shared + STATISTICS) + buffer * 2 * ROW_TILE + part;
            float p[1][N / 8][4], ds[1][N / 8][4];
            uint32_t weights[N / 16][1][4], gradients[N / 16][1][4];

            issue_scores<T, OwnKeys, Queries>(p[0], k_tile, group_row, q_rows);
            issue_scores<T, OwnValues, Outs>(ds[0], v_tile, group_row, do_rows);
            if (part == 0 && first_row + ROW_TILE < end_row)
                copy_rows(first_row + ROW_TILE, buffer ^ 1);
            wgmma_wait<1>();
            wgmma_pin(p[0]);
            mask_transposed<1, N>(s, starts, first_row + part, key, p);
            weigh(s, lse2, p[0]);
            pack_fragments<T>(weights, p);
            issue_weighted<T, Outs>(dv[0], weights, do_rows);
            wgmma_wait<1>();
            wgmma_pin(ds[0]);
            weights_gradient(lse2 + ROW_TILE, p[0], ds[0]);
            pack_fragments<T>(gradients, ds);
            issue_weighted<T, Queries>(dk[0], gradients, q_rows);
            wgmma_wait<0>();
            wgmma_pin(dv[0]);
            wgmma_pin(dk[0]);
            wgmma_pin(weights);
            wgmma_pin(gradients);
        }
    }
    __syncthreads();
    put_key_gradients<T, Heads>(a, (int)blockIdx.x, shared,
                                shared + PanelTile<Heads::HEAD, ATTENTION_TILE>::BYTES, dk, dv);
}

template <typename T, class Heads, int KEYS>
static __device__ __forceinline__ void queries_gradient(const AttentionBackwardArgs &a) {
    constexpr int HEAD = Heads::HEAD;
    typedef PanelTile<HEAD, ATTENTION_TILE> OwnQueries;
    typedef PanelTile<Heads::VALUE, ATTENTION_TILE> OwnOuts;
    typedef PanelTile<HEAD, KEYS> Keys;
    typedef PanelTile<Heads::VALUE, KEYS> Values;
    constexpr int BUFFER_BYTES = Keys::BYTES + Values::BYTES;
    constexpr int PART = 32;
    DYNAMIC_SHARED(unsigned char, shared); /* q, do, two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), do_tile = q_tile + OwnQueries::BYTES;
    const SharedAddress buffers = do_tile + OwnOuts::BYTES;
    const int tile_row = place.tile * ATTENTION_TILE;
    const int end_key = attention_end_key(s, tile_row + ATTENTION_TILE);
    const int32_t *const starts = attention_starts(s, place);
    int first_key = attention_begin_key(s, starts, tile_row, KEYS);
    const AttentionBase base = attention_key_base<Heads>(s, place);
    const int group_row = first_group_row();

    auto copy_keys = [&](int first_key, int buffer) {
        attention_copy_keys<Heads, KEYS, ATTENTION_WGMMA_THREADS, PanelTile>(
            buffers + buffer * BUFFER_BYTES, s, a.k, a.v, base, first_key);
        copy_async_commit();
    };
    attention_copy_rows<Heads, ATTENTION_TILE, ATTENTION_WGMMA_THREADS, PanelTile>(
        q_tile, s, a.q, a.d_o, attention_query_base<Heads>(s, place), tile_row);
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
        const SharedAddress k_tile = buffers + buffer * BUFFER_BYTES;
        const int thread = thread_anew(), row = tile_row + thread / 32 * 16;
        float ds[1][KEYS / 8][4], dp[1][KEYS / 8][4];
        uint32_t gradients[KEYS / PART][PART / 16][1][4];

        issue_scores<T, OwnQueries, Keys>(ds[0], q_tile, group_row, k_tile);
        issue_scores<T, OwnOuts, Values>(dp[0], do_tile, group_row, k_tile + Keys::BYTES);
        if (first_key + KEYS < end_key) copy_keys(first_key + KEYS, buffer ^ 1);
        wgmma_wait<1>();
        wgmma_pin(ds[0]);
        if (wgmma_meanwhile(s.seq)) {
            attention_mask_scores(s, starts, row, first_key, ds);
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
    tile_put<T, OwnQueries>(shared, in_tile, 0, acc, scale);
    __syncwarp();
    const QueryGradients dq_rows = {s, a.dq_row};
    tile_copy_out<OwnQueries, 16>(shared, in_tile, (T *)a.dq + dq_rows.first(last), dq_rows,
                                  last.tile * ATTENTION_TILE + in_tile, s.rows);
}

/* blocks: of attention_queries_* on a processor. */
#define BACKWARD_KERNEL(head, value, rows, blocks, T, suffix)                                      \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)                                  \
        attention_keys_##head##_wgmma_##suffix(AttentionBackwardArgs a) {                          \
        WGMMA_KERNEL((keys_gradient<T, AttentionHeads<head, value>, rows>(a)));                    \
    }                                                                                              \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, blocks)                             \
        attention_queries_##head##_wgmma_##suffix(AttentionBackwardArgs a) {                       \
        WGMMA_KERNEL((                                                                             \
            queries_gradient<T, AttentionHeads<head, value>, ATTENTION_WGMMA_QUERIES_STEP_##head>( \
                a)));                                                                              \
    }
#define BACKWARD_KERNELS(T, suffix)                                                                \
    BACKWARD_KERNEL(64, 64, ROW_TILE, 2, T, suffix)                                                \
    BACKWARD_KERNEL(128, 128, ROW_TILE, 1, T, suffix)                                              \
    BACKWARD_KERNEL(192, 128, ROW_TILE / 2, 1, T, suffix)
BACKWARD_KERNELS(bf16_t, bf16)
BACKWARD_KERNELS(f16_t, f16)
