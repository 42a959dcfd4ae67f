/* What the kernels of attention to a cache share: which keys rows see, a run's share of them, and
 * what it leaves (args_cache.h). */
#ifndef RUNTIME_CUDA_KERNELS_CACHE_ATTENTION_CUH
#define RUNTIME_CUDA_KERNELS_CACHE_ATTENTION_CUH

#include "runtime/cuda/kernels/attention_softmax.cuh"

/* Keys [first, end); none: first >= end. */
struct CacheKeys {
    int first, end;
};

/* What one block computes: a run of keys for a tile of rows of one batch row and key/value head. */
struct CachePlace {
    int split, tile, batch, head;
    int64_t pair; /* batch kv_heads + head */
};

static __device__ __forceinline__ CachePlace cache_place(const CacheAttentionArgs &a) {
    CachePlace p;
    p.split = (int)blockIdx.x;
    p.tile = (int)blockIdx.y;
    p.pair = blockIdx.z;
    p.batch = (int)blockIdx.z / a.sizes.kv_heads;
    p.head = (int)blockIdx.z % a.sizes.kv_heads;
    return p;
}

/* What the queries of a position see. */
static __device__ __forceinline__ CacheKeys cache_seen(const CacheAttentionArgs &a, int batch,
                                                       int position) {
    const int64_t at = (int64_t)batch * a.sizes.seq + position;
    const int place = a.places[at], row = a.rows[batch];
    if (row < 0 || row >= a.sequences || place < 0 || place >= a.sizes.keys) return {0, 0};
    int first = a.window && place >= a.window ? place - a.window + 1 : 0;
    if (a.sizes.starts && a.sizes.starts[at] > first) first = min(a.sizes.starts[at], place);
    return {first, place + 1};
}
/* Rows past the last see nothing. */
static __device__ __forceinline__ CacheKeys cache_seen_by_row(const CacheAttentionArgs &a,
                                                              int batch, int row) {
    if (row >= a.sizes.rows) return {0, 0};
    return cache_seen(a, batch, attention_position(a.sizes, row));
}

/* All that rows from `row` on see, the same on every lane: the whole warp looks. */
static __device__ __forceinline__ CacheKeys cache_seen_by_rows(const CacheAttentionArgs &a,
                                                               int batch, int row, int rows) {
    CacheKeys all = {2147483647, 0};
    const int last = min(row + rows, a.sizes.rows) - 1, lane = (int)threadIdx.x % 32;
    if (row > last) return all;
    const int end = attention_position(a.sizes, last) + 1;
    for (int i = attention_position(a.sizes, row) + lane; i < end; i += 32) {
        const CacheKeys seen = cache_seen(a, batch, i);
        if (seen.first >= seen.end) continue;
        all.first = min(all.first, seen.first);
        all.end = max(all.end, seen.end);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) {
        all.first = min(all.first, __shfl_xor_sync(0xffffffffu, all.first, lanes));
        all.end = max(all.end, __shfl_xor_sync(0xffffffffu, all.end, lanes));
    }
    return all;
}

/* The run's share of them, in whole tiles of KEYS: equal ones, so that short sequences fill the
 * device, too. */
template <int KEYS>
static __device__ __forceinline__ CacheKeys cache_share(CacheKeys all, int split, int splits) {
    if (all.first >= all.end) return {0, 0};
    const int begin = all.first / KEYS * KEYS, tiles = (all.end - begin + KEYS - 1) / KEYS;
    const int each = (tiles + splits - 1) / splits;
    if (split * each >= tiles) return {0, 0};
    const int first = begin + split * each * KEYS;
    return {first, min(all.end - first, each * KEYS) + first};
}

/* Elements from a cache's beginning to key 0 of the head, of `width` numbers each. */
static __device__ __forceinline__ int64_t cache_first_key(const CacheAttentionArgs &a,
                                                          const CachePlace &p, int width) {
    const int64_t keys = (int64_t)a.rows[p.batch] * a.sizes.keys;
    return (keys * a.sizes.kv_heads + p.head) * width;
}
static __device__ __forceinline__ int64_t cache_first_query(const CacheAttentionArgs &a,
                                                            const CachePlace &p) {
    return ((int64_t)p.batch * a.sizes.seq * a.sizes.kv_heads + p.head) * a.sizes.group *
           a.sizes.head;
}
/* The number of what a run leaves of a row. */
static __device__ __forceinline__ int64_t cache_partial(const CacheAttentionArgs &a, int64_t pair,
                                                        int split, int row) {
    return (pair * a.splits + split) * a.sizes.rows + row;
}

#endif
