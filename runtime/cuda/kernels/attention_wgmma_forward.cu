/* attention_forward.cu's for Hopper: o = softmax(scale q k^T + mask) v.
 *
 *   Shah et al. 2024 (FlashAttention-3): while the tensor cores add up one tile's weighted values,
 *   the threads make the next tile's weights.
 *
 * A block of two warpgroups owns 128 query rows of one (batch, kv_head), each 64 of them, and
 * passes over tiles of KEYS keys. Tile i's scores are issued before the values of tile i - 1, so
 * keys of two tiles and values of two are there at a time.
 */
#include "runtime/cuda/kernels/attention_softmax.cuh"
#include "runtime/cuda/kernels/attention_wgmma.cuh"

template <int KEYS>
static __device__ __forceinline__ void mask(const AttentionSizes &s, const int32_t *starts,
                                            int tile_row, int first_key,
                                            float (&scores)[1][KEYS / 8][4]) {
    attention_mask_scores(s, starts, tile_row + thread_anew() / 32 * 16, first_key, scores);
}

template <typename T, class Heads, int KEYS>
static __device__ __forceinline__ void forward(const AttentionForwardArgs &a) {
    typedef PanelTile<Heads::HEAD, ATTENTION_TILE> Queries;
    typedef PanelTile<Heads::VALUE, ATTENTION_TILE> Outs; /* the first panels of Queries */
    typedef PanelTile<Heads::HEAD, KEYS> Keys;
    typedef PanelTile<Heads::VALUE, KEYS> Values;
    typedef AttentionRows<Heads::EVEN> Rows;
    DYNAMIC_SHARED(unsigned char, shared); /* q, two of k, two of v */
    const AttentionSizes &s = a.sizes;
    const AttentionPlace place = attention_place(s, (int)blockIdx.x, s.causal);
    const SharedAddress q_tile = shared_address(shared), k_tiles = q_tile + Queries::BYTES;
    const SharedAddress v_tiles = k_tiles + 2 * Keys::BYTES;
    const int tile_row = place.tile * ATTENTION_TILE;
    const int32_t *const starts = attention_starts(s, place);
    const int begin_key = attention_begin_key(s, starts, tile_row, KEYS);
    const int end_key = attention_end_key(s, tile_row + ATTENTION_TILE);
    const AttentionBase base = attention_key_base<Heads>(s, place);
    const void *const q[1] = {a.q}, *const k[1] = {a.k}, *const v[1] = {a.v};
    const int group_row = first_group_row();

    auto copy_keys = [&](int first_key) {
        tile_copy_in<Keys, KEYS, ATTENTION_WGMMA_THREADS>(
            k_tiles + first_key / KEYS % 2 * Keys::BYTES, k, base.head, KeyRows{s}, first_key,
            s.keys);
    };
    /* The values that go with these keys, and the next keys: over what the last tiles were, which
     * nobody reads any more. */
    auto copy_next = [&](int first_key) {
        tile_copy_in<Values, KEYS, ATTENTION_WGMMA_THREADS>(
            v_tiles + first_key / KEYS % 2 * Values::BYTES, v, base.value, typename Rows::Values{s},
            first_key, s.keys);
        if (first_key + KEYS < end_key) copy_keys(first_key + KEYS);
        copy_async_commit();
    };
    tile_copy_in<Queries, ATTENTION_TILE, ATTENTION_WGMMA_THREADS>(
        q_tile, q, attention_first_query(s, place), QueryRows{s}, tile_row, s.rows);
    copy_keys(begin_key);
    copy_async_commit();

    RunningSoftmax run;
    float acc[1][Heads::VALUE / 8][4], scores[1][KEYS / 8][4], factor[2];
    uint32_t weights[KEYS / 16][1][4];
    clear_fragments(acc);
    run.begin();
    wait_for_tiles();
    issue_scores<T, Queries, Keys>(scores[0], q_tile, group_row,
                                   k_tiles + begin_key / KEYS % 2 * Keys::BYTES);
    copy_next(begin_key);
    wgmma_wait<0>();
    wgmma_pin(scores[0]);
    mask<KEYS>(s, starts, tile_row, begin_key, scores);
    run.raise(s.scale_log2, a.raise_at, scores[0], factor);
    run.weigh(s.scale_log2, scores[0]);
    pack_fragments<T>(weights, scores);
#pragma unroll 1
    for (int first_key = begin_key + KEYS; first_key < end_key; first_key += KEYS) {
        const int now = first_key / KEYS % 2;
        wait_for_tiles();
        issue_scores<T, Queries, Keys>(scores[0], q_tile, group_row, k_tiles + now * Keys::BYTES);
        issue_weighted<T, Values>(acc[0], weights, v_tiles + (1 - now) * Values::BYTES);
        copy_next(first_key);
        wgmma_wait<1>();
        wgmma_pin(scores[0]);
        bool grown = false;
        if (wgmma_meanwhile(s.seq)) {
            mask<KEYS>(s, starts, tile_row, first_key, scores);
            grown = run.raise(s.scale_log2, a.raise_at, scores[0], factor);
            run.weigh(s.scale_log2, scores[0]);
        }
        wgmma_wait<0>();
        wgmma_pin(acc[0]);
        wgmma_pin(weights);
        if (grown) rescale(acc[0], factor);
        pack_fragments<T>(weights, scores);
    }
    const int last = (end_key - 1) / KEYS % 2 * Values::BYTES;
    wait_for_tiles();
    issue_weighted<T, Values>(acc[0], weights, v_tiles + last);
    wgmma_wait<0>();
    wgmma_pin(acc[0]);
    wgmma_pin(weights);

    /* Out through this warp's rows of the queries, which nobody has read since the last barrier. */
    const AttentionPlace here = attention_place(s, renew((int)blockIdx.x), s.causal);
    const int in_tile = thread_anew() / 32 * 16, row = here.tile * ATTENTION_TILE + in_tile;
    float out[1][2];
    run.finish(a, here, row, out[0]);
    tile_put<T, Outs>(shared, in_tile, 0, acc, out);
    __syncwarp();
    tile_copy_out<Outs, 16>(shared, in_tile, (T *)a.o + attention_query_base<Heads>(s, here).value,
                            typename Rows::Outs{s}, row, s.rows);
}

#define FORWARD_KERNEL(head, value, blocks, T, suffix)                                             \
    KERNEL_FUNCTION __launch_bounds__(ATTENTION_WGMMA_THREADS, blocks)                             \
        attention_forward_##head##_wgmma_##suffix(AttentionForwardArgs a) {                        \
        WGMMA_KERNEL((forward<T, AttentionHeads<head, value>, ATTENTION_WGMMA_STEP_##head>(a)));   \
    }
#define FORWARD_KERNELS(T, suffix)                                                                 \
    FORWARD_KERNEL(64, 64, 2, T, suffix)                                                           \
    FORWARD_KERNEL(192, 128, 1, T, suffix)
FORWARD_KERNELS(bf16_t, bf16)
FORWARD_KERNELS(f16_t, f16)
