/* Arguments of the kernels of decoding: caches, attention to them, states that go on. Row b of the
 * batch goes on with sequence rows[b]; its new positions are places[b][...]. Any numbers may come:
 * what lies outside of a cache is written nowhere and sees nothing. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_CACHE_H
#define RUNTIME_CUDA_KERNELS_ARGS_CACHE_H

#include "runtime/cuda/kernels/args_attention.h"

/* cache.cu, in units of 2, 4 or 16 bytes, `width` of them a row. A thread per unit. */

/* cache[rows[i / seq], places[i]] = x[i] for i < n = batch seq; cache [sequences, context]. */
typedef struct CacheAppendArgs {
    int64_t n, seq, sequences, context, width;
    const int32_t *rows, *places;
    const void *x;
    void *cache;
} CacheAppendArgs;

/* out[i] = cache[rows[i / seq], places[i]], or zero where there is none. */
typedef struct CacheReadArgs {
    int64_t n, seq, sequences, context, width;
    const int32_t *rows, *places;
    const void *cache;
    void *out;
} CacheReadArgs;

/* out[b] = x[b, numbers[b]], or zero where there is none. */
typedef struct SelectRowArgs {
    int64_t batch, seq, width;
    const int32_t *numbers;
    const void *x;
    void *out;
} SelectRowArgs;
enum { CACHE_THREADS = 256 };

/* cache_attention.cu, cache_attention_any.cu: sizes has q's and o's shape, keys is the context.
 * What the rows of a tile see is divided into `splits` runs of keys, a block each. Of row r (a
 * position and a member) of batch row and head p = b kv_heads + h, run s leaves at
 * i = (p splits + s) rows + r
 *   statistics [i]  the largest score in base 2, and the sum of 2^(score - largest); 0: none seen
 *   partial [i, values]  the sum of values times that; untouched where none was seen
 * which cache_attention_join_* adds up, run after run. */
typedef struct CacheAttentionArgs {
    AttentionSizes sizes;
    int32_t sequences, window, splits; /* window 0: none */
    const int32_t *rows, *places;      /* and sizes.starts */
    const void *q, *k, *v;
    float *partial, *statistics;
    void *o;
    float *lse;
} CacheAttentionArgs;
enum {
    CACHE_ATTENTION_KEYS = 64,      /* at a time, up to heads of 128, */
    CACHE_ATTENTION_WIDE_KEYS = 32, /* and over 128; a block has a row for every two threads */
    CACHE_ANY_ROWS = 16,            /* of a block of cache_attention_any_* */
    CACHE_ANY_KEYS = 32,
    CACHE_ANY_THREADS = 256,
    CACHE_ANY_HEAD = 640, /* the longest */
};

/* cache_state.cu */

/* q, k [batch, seq, groups, keys]; v, o [batch, seq, groups, heads, values], of dtype; decay, write
 * [batch, seq, groups, heads], or decay [batch, seq, groups, heads, keys]; states [sequences,
 * groups, heads, keys, values], which are those behind the new positions then. A block for each
 * tile of values of each head. */
typedef struct CacheLinearAttentionArgs {
    int32_t seq, groups, heads, keys, values, tiles, sequences;
    int32_t dtype, by_keys; /* by_keys: decays are of keys */
    float scale;
    const void *q, *k, *v;
    const float *decay, *write; /* write: NULL without the delta rule */
    const int32_t *rows, *places;
    float *states;
    void *o;
} CacheLinearAttentionArgs;
enum { CACHE_STATE_TILE = 32, CACHE_STATE_WARPS = 8 };

/* x, y [batch, seq, channels], cache [sequences, taps - 1, channels], of dtype; w [taps, channels];
 * documents [batch, seq], places within documents, or NULL. */
typedef struct CacheConvolveArgs {
    int64_t batch, seq, channels, sequences;
    int32_t taps, dtype;
    const int32_t *rows, *places, *documents;
    const void *x;
    const float *w;
    void *cache, *y;
} CacheConvolveArgs;

#endif
