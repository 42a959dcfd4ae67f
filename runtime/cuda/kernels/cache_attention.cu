/* Attention of new positions to a cache on tensor cores, bf16 or f16, f32 in between.
 *
 *   Dao 2023 (FlashAttention-2): one pass over the keys with a running softmax;
 *   Dao et al. 2023 (Flash-Decoding): keys divided over blocks, whose softmaxes are joined, so that
 *   one sequence fills a device, too. Which keys a block has follows from how many are seen, when
 *   it runs: a captured launch serves all lengths.
 *
 * A block owns 64 query rows of one (batch, kv_head), 128 with heads of 256, each of its warps 16,
 * and passes over a run of keys, double-buffered by cp.async. All warps copy; of few rows only the
 * first computes, which takes less time than the copies: 64 keys of 128 are 128 products of a warp
 * and 32 KiB. A position's rows are the group's members, so that a cache is read once for all of
 * them.
 */
#include "runtime/cuda/kernels/cache_attention.cuh"

enum { WARP_ROWS = 16 };

/* Scores of keys that rows g and g + 8 do not see become -inf. */
template <int N8>
static __device__ __forceinline__ void mask_scores(const CacheKeys (&seen)[2], int first_key,
                                                   float (&scores)[N8][4]) {
    const int key = first_key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (seen[half].first <= first_key && first_key + 8 * N8 <= seen[half].end) continue;
        const int first = seen[half].first - key, end = seen[half].end - key;
#pragma unroll
        for (int n = 0; n < N8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (8 * n + i < first || 8 * n + i >= end)
                    scores[n][2 * half + i] = bits_to_float(0xff800000u);
            }
        }
    }
}

/* What this warp's rows have of the run, where it is read again. */
template <int N8>
static __device__ __forceinline__ void put_rows(const CacheAttentionArgs &a, const CachePlace &p,
                                                int first_row, const RunningSoftmax &run,
                                                const float (&acc)[N8][4]) {
    const int lane = (int)threadIdx.x % 32, values = a.sizes.values;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first_row + 8 * half + lane / 4;
        float all = run.sum[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        if (row >= a.sizes.rows) continue;
        const int64_t at = cache_partial(a, p.pair, p.split, row);
        if (lane % 4 == 0)
            ((float2 *)a.statistics)[at] = make_float2(run.most[half] * a.sizes.scale_log2, all);
        if (all == 0) continue;
#pragma unroll
        for (int n = 0; n < N8; n++) {
            const int column = 8 * n + lane % 4 * 2;
            if (column < values)
                *(float2 *)(a.partial + at * values + column) =
                    make_float2(acc[n][2 * half], acc[n][2 * half + 1]);
        }
    }
}

/* Starts copying a tile of keys, and their values behind it; past `end` they are zero. */
template <class Heads, int KEYS, int THREADS>
static __device__ __forceinline__ void copy_keys(SharedAddress to, const CacheAttentionArgs &a,
                                                 const AttentionBase &base, int first, int end) {
    const void *const k[1] = {a.k}, *const v[1] = {a.v};
    tile_copy_in<RowTile<Heads::HEAD>, KEYS, THREADS>(to, k, base.head, KeyRows{a.sizes}, first,
                                                      end);
    tile_copy_in<RowTile<Heads::VALUE>, KEYS, THREADS>(to + KEYS * Heads::HEAD * 2, v, base.value,
                                                       ValueRows{a.sizes}, first, end);
}

template <typename T, class Heads, int KEYS, int THREADS>
static __device__ __forceinline__ void attend(const CacheAttentionArgs &a) {
    constexpr int HEAD = Heads::HEAD, VALUE = Heads::VALUE, ROWS = THREADS / 32 * WARP_ROWS;
    constexpr int Q_BYTES = ROWS * HEAD * 2, K_BYTES = KEYS * HEAD * 2;
    constexpr int KEY_BYTES = K_BYTES + KEYS * VALUE * 2;
    DYNAMIC_SHARED(unsigned char, shared); /* q, then two of (k, v) */
    const AttentionSizes &s = a.sizes;
    const CachePlace place = cache_place(a);
    const SharedAddress q_tile = shared_address(shared), k_tile = q_tile + Q_BYTES;
    const int in_tile = (int)threadIdx.x / 32 * WARP_ROWS, row = place.tile * ROWS + in_tile;
    const CacheKeys keys = cache_share<KEYS>(
        cache_seen_by_rows(a, place.batch, place.tile * ROWS, ROWS), place.split, a.splits);
    const CacheKeys own = cache_seen_by_rows(a, place.batch, row, WARP_ROWS);
    const int lane_row = row + (int)threadIdx.x % 32 / 4;
    const CacheKeys seen[2] = {cache_seen_by_row(a, place.batch, lane_row),
                               cache_seen_by_row(a, place.batch, lane_row + 8)};
    AttentionBase base = {0, 0};
    RunningSoftmax run;
    float acc[1][VALUE / 8][4];
    clear_fragments(acc);
    run.begin();

    if (keys.first < keys.end) {
        const void *const q[1] = {a.q};
        base.head = cache_first_key(a, place, s.head);
        base.value = cache_first_key(a, place, s.values);
        tile_copy_in<RowTile<HEAD>, ROWS, THREADS>(q_tile, q, cache_first_query(a, place),
                                                   QueryRows{s}, place.tile * ROWS, s.rows);
        copy_keys<Heads, KEYS, THREADS>(k_tile, a, base, keys.first, keys.end);
    }
    copy_async_commit();
    int buffer = 0;
    for (int first_key = keys.first; first_key < keys.end; first_key += KEYS, buffer ^= 1) {
        copy_async_wait<0>();
        __syncthreads();
        if (first_key + KEYS < keys.end) {
            copy_keys<Heads, KEYS, THREADS>(k_tile + (buffer ^ 1) * KEY_BYTES, a, base,
                                            first_key + KEYS, keys.end);
            copy_async_commit();
        }
        if (own.end <= first_key || first_key + KEYS <= own.first)
            continue; /* nothing here that this warp's rows see */
        const SharedAddress tile = k_tile + buffer * KEY_BYTES;
        float scores[1][KEYS / 8][4], factor[2];
        uint32_t weights[KEYS / 16][1][4];
        clear_fragments(scores);
        multiply_rows<T, 1, KEYS>(scores, TileLane<HEAD>::by_rows(q_tile, in_tile),
                                  TileLane<HEAD>::by_columns(tile, 0));
        attention_cap_scores(s, scores);
        mask_scores(seen, first_key, scores[0]);
        if (run.raise(s.scale_log2, ATTENTION_RAISE_AT, scores[0], factor)) rescale(acc[0], factor);
        run.weigh(s.scale_log2, scores[0]);
        pack_fragments<T>(weights, scores);
        multiply_fragments<T, 1, KEYS>(acc, weights, TileLane<VALUE>::by_rows(tile + K_BYTES, 0));
    }
    copy_async_wait<0>();
    put_rows(a, place, row, run, acc[0]);
}

#define ATTEND_KERNEL(name, T, head, value, keys, threads)                                         \
    KERNEL_FUNCTION __launch_bounds__(threads, 256 / threads)                                      \
        cache_attention_##name(CacheAttentionArgs a) {                                             \
        attend<T, AttentionHeads<head, value>, keys, threads>(a);                                  \
    }
#define ATTEND_KERNELS(T, suffix)                                                                  \
    ATTEND_KERNEL(32_##suffix, T, 32, 32, CACHE_ATTENTION_KEYS, 128)                               \
    ATTEND_KERNEL(64_##suffix, T, 64, 64, CACHE_ATTENTION_KEYS, 128)                               \
    ATTEND_KERNEL(128_##suffix, T, 128, 128, CACHE_ATTENTION_KEYS, 128)                            \
    ATTEND_KERNEL(192_##suffix, T, 192, 128, CACHE_ATTENTION_WIDE_KEYS, 128)                       \
    ATTEND_KERNEL(256_##suffix, T, 256, 256, CACHE_ATTENTION_WIDE_KEYS, 256)
ATTEND_KERNELS(bf16_t, bf16)
ATTEND_KERNELS(f16_t, f16)
