/* Attention to a cache. Few query rows, as one new position has: the cache is read once, block of
 * keys after block, all heads of a key together, which is how it lies in memory. Each block has a
 * softmax of its own, and blocks are joined in their order (Dao et al. 2023, Flash-Decoding), so
 * that any number of threads gives the same bits. Many rows: attention.c's tiles. */
#include "runtime/cpu/vec_wide.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/cache.h"

#include "ir/op.h"
#include "runtime/cpu/attention.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

enum { KEYS = CACHE_BLOCK_KEYS, PARALLEL_BYTES = 1 << 16 };

void cache_append(const CacheShape *s, int64_t width, const void *x, const int32_t *rows,
                  const int32_t *places, void *cache) {
    const size_t bytes = (size_t)width * vec_bytes(s->dtype);
#pragma omp parallel for schedule(static) if (s->batch * s->seq * (int64_t)bytes > PARALLEL_BYTES)
    for (int64_t i = 0; i < s->batch * s->seq; i++) {
        const int64_t row = rows[i / s->seq], place = places[i];
        if (row < 0 || row >= s->sequences || place < 0 || place >= s->context) continue;
        memcpy((char *)cache + (size_t)(row * s->context + place) * bytes,
               (const char *)x + (size_t)i * bytes, bytes);
    }
}

void cache_read(const CacheShape *s, int64_t width, const void *cache, const int32_t *rows,
                const int32_t *places, void *out) {
    const size_t bytes = (size_t)width * vec_bytes(s->dtype);
#pragma omp parallel for schedule(static) if (s->batch * s->seq * (int64_t)bytes > PARALLEL_BYTES)
    for (int64_t i = 0; i < s->batch * s->seq; i++) {
        const int64_t row = rows[i / s->seq], place = places[i];
        char *to = (char *)out + (size_t)i * bytes;
        if (row < 0 || row >= s->sequences || place < 0 || place >= s->context) {
            memset(to, 0, bytes);
        } else {
            memcpy(to, (const char *)cache + (size_t)(row * s->context + place) * bytes, bytes);
        }
    }
}

/* The positions that a query sees, [first, end); none: first == end. */
typedef struct Seen {
    int64_t first, end;
} Seen;

static Seen find_seen(const CacheAttention *a, int64_t b, int64_t i) {
    const int64_t at = b * a->shape.seq + i, place = a->places[at], row = a->rows[b];
    int64_t first = a->window && place >= a->window ? place - a->window + 1 : 0;
    if (row < 0 || row >= a->shape.sequences || place < 0 || place >= a->shape.context)
        return (Seen){0, 0};
    if (a->starts && a->starts[at] > first) first = a->starts[at] < place ? a->starts[at] : place;
    return (Seen){first, place + 1};
}

/* Of one row of the batch, one block of keys and one kv head, for each of its query rows (position,
 * member): the largest score, the sum of exponentials, and the sum of values times them. */
typedef struct Partial {
    float *most, *sum, *values;
} Partial;

static int64_t count_blocks(const CacheAttention *a) {
    return (a->shape.context + KEYS - 1) / KEYS;
}

static Partial partial_of(const CacheAttention *a, int64_t b, int64_t block, int64_t h) {
    const int64_t rows = a->shape.seq * a->group;
    const int64_t number = (b * count_blocks(a) + block) * a->kv_heads + h;
    float *at = a->workspace + number * rows * (a->values + 2);
    return (Partial){at, at + rows, at + 2 * rows};
}

/* The number of a kv head's query row r among those of q and o. */
static int64_t row_number(const CacheAttention *a, int64_t b, int64_t h, int64_t r) {
    const int64_t position = b * a->shape.seq + r / a->group;
    return (position * a->kv_heads + h) * a->group + r % a->group;
}

/* One head of a block of keys, or of values, and its query rows. */
typedef struct BlockHead {
    const void *x;
    int64_t at, pitch; /* elements: where the block begins, from a key to the next */
    int64_t head, rows;
} BlockHead;

enum { TOGETHER = 4, AHEAD = 16 }; /* keys */

/* A head's part of a key is too short for the processor to see where the next one's is. */
VEC_INLINE void foresee(const DType dtype, const BlockHead *b, int64_t at) {
    __builtin_prefetch(vec_at(b->x, dtype, at + AHEAD * b->pitch));
}

/* scores[r][j + t] of `n` keys from j on, a constant; dtype f32 or bf16. */
VEC_INLINE void score_keys(const DType dtype, const int n, const BlockHead *b, int64_t j,
                           float (*q)[ATTENTION_MAX_READ_HEAD], float (*scores)[KEYS]) {
    const int64_t at = b->at + j * b->pitch;
    for (int64_t r = 0; r < b->rows; r++) {
        Vec sums[TOGETHER] = {{0}};
        int64_t d = 0;
        for (; d + VEC_LANES <= b->head; d += VEC_LANES) {
            const Vec query = vec_load(q[r] + d);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                sums[t] += query * vec_load_wide(dtype, b->x, at + t * b->pitch + d);
                foresee(dtype, b, at + t * b->pitch + d);
            }
        }
        for (int t = 0; t < n; t++) {
            float sum = vec_lane_sum(sums[t]);
            for (int64_t i = d; i < b->head; i++)
                sum += q[r][i] * vec_get(b->x, dtype, at + t * b->pitch + i);
            scores[r][j + t] = sum;
        }
    }
}

/* values[r] += weights[r][j + t] times the value of key j + t, for `n` keys. */
VEC_INLINE void add_values(const DType dtype, const int n, const BlockHead *b, int64_t j,
                           float (*weights)[KEYS], float *values) {
    const int64_t at = b->at + j * b->pitch;
    for (int64_t r = 0; r < b->rows; r++) {
        float *to = values + r * b->head;
        int64_t d = 0;
        for (; d + VEC_LANES <= b->head; d += VEC_LANES) {
            Vec sum = vec_load(to + d);
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                sum += weights[r][j + t] * vec_load_wide(dtype, b->x, at + t * b->pitch + d);
                foresee(dtype, b, at + t * b->pitch + d);
            }
            vec_store(to + d, sum);
        }
        for (; d < b->head; d++)
            for (int t = 0; t < n; t++)
                to[d] += weights[r][j + t] * vec_get(b->x, dtype, at + t * b->pitch + d);
    }
}

VEC_INLINE void score_block(const DType dtype, const BlockHead *b, int64_t first, int64_t end,
                            float (*q)[ATTENTION_MAX_READ_HEAD], float (*scores)[KEYS]) {
    int64_t j = first;
    for (; j + TOGETHER <= end; j += TOGETHER) score_keys(dtype, TOGETHER, b, j, q, scores);
    for (; j < end; j++) score_keys(dtype, 1, b, j, q, scores);
}

VEC_INLINE void add_block(const DType dtype, const BlockHead *b, int64_t first, int64_t end,
                          float (*weights)[KEYS], float *values) {
    int64_t j = first;
    for (; j + TOGETHER <= end; j += TOGETHER) add_values(dtype, TOGETHER, b, j, weights, values);
    for (; j < end; j++) add_values(dtype, 1, b, j, weights, values);
}

/* f16 is widened first, key by key; a widened block begins at its first key. */
static BlockHead widen_block(const BlockHead *b, int64_t first, int64_t end, float *wide) {
    for (int64_t j = first; j < end; j++)
        vec_f16_load((const uint16_t *)b->x + b->at + j * b->pitch, wide + j * b->head, b->head);
    return (BlockHead){wide, 0, b->head, b->head, b->rows};
}

/* A block's scores become weights; those of keys that the row does not see are 0. */
static void weigh_row(const CacheAttention *a, Seen seen, int64_t first, int64_t n_keys,
                      float *scores, float *out_most, float *out_sum) {
    float most = -INFINITY, sum = 0;
    const int64_t from = seen.first > first ? seen.first - first : 0;
    const int64_t end = seen.end - first < n_keys ? seen.end - first : n_keys;
    for (int64_t j = 0; a->softcap != 0 && j < n_keys; j++)
        scores[j] = a->softcap * vmath_tanh(scores[j] / a->softcap);
    for (int64_t j = from; j < end; j++) most = most < scores[j] ? scores[j] : most;
    for (int64_t j = 0; j < n_keys; j++)
        scores[j] = j >= from && j < end ? vmath_exp(scores[j] - most) : 0;
    for (int64_t j = 0; j < n_keys; j++) sum += scores[j];
    *out_most = most;
    *out_sum = sum;
}

/* What the queries of a row of the batch see together. */
static Seen seen_by_all(const CacheAttention *a, int64_t b) {
    Seen all = {0, 0};
    for (int64_t i = 0; i < a->shape.seq; i++) {
        const Seen seen = find_seen(a, b, i);
        if (seen.first == seen.end) continue;
        if (all.first == all.end || seen.first < all.first) all.first = seen.first;
        if (seen.end > all.end) all.end = seen.end;
    }
    return all;
}

static void attend_block(const CacheAttention *a, int64_t b, int64_t block, int64_t h) {
    const Seen all = seen_by_all(a, b);
    const int64_t first = block * KEYS, rows = a->shape.seq * a->group, head = a->head;
    if (first >= all.end || first + KEYS <= all.first) return;
    const int64_t end = all.end - first < KEYS ? all.end - first : KEYS;
    const int64_t skip = all.first > first ? all.first - first : 0;
    const Partial out = partial_of(a, b, block, h);
    const int64_t base = (a->rows[b] * a->shape.context + first) * a->kv_heads + h;
    const DType dtype = a->shape.dtype;
    BlockHead keys = {a->k, base * head, a->kv_heads * head, head, rows};
    BlockHead values = {a->v, base * a->values, a->kv_heads * a->values, a->values, rows};
    float scores[CACHE_MOST_ROWS][KEYS], q[CACHE_MOST_ROWS][ATTENTION_MAX_READ_HEAD];
    float wide[KEYS * ATTENTION_MAX_READ_HEAD];
    memset(scores, 0, (size_t)rows * sizeof scores[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = vec_tile(a->q, dtype, row_number(a, b, h, r) * head, head, wide);
        for (int64_t d = 0; d < head; d++) q[r][d] = row[d] * a->scale;
    }
    if (dtype == DTYPE_F16) keys = widen_block(&keys, skip, end, wide);
    if (dtype == DTYPE_BF16)
        score_block(DTYPE_BF16, &keys, skip, end, q, scores);
    else
        score_block(DTYPE_F32, &keys, skip, end, q, scores);
    for (int64_t r = 0; r < rows; r++)
        weigh_row(a, find_seen(a, b, r / a->group), first, end, scores[r], &out.most[r],
                  &out.sum[r]);
    memset(out.values, 0, (size_t)(rows * a->values) * sizeof(float));
    if (dtype == DTYPE_F16) values = widen_block(&values, skip, end, wide);
    if (dtype == DTYPE_BF16)
        add_block(DTYPE_BF16, &values, skip, end, scores, out.values);
    else
        add_block(DTYPE_F32, &values, skip, end, scores, out.values);
}

/* The blocks' softmaxes as one, in the blocks' order. */
static void join_blocks(const CacheAttention *a, int64_t b, int64_t h) {
    const Seen all = seen_by_all(a, b);
    float sums[ATTENTION_MAX_READ_HEAD];
    for (int64_t r = 0; r < a->shape.seq * a->group; r++) {
        float most = -INFINITY, total = 0;
        memset(sums, 0, (size_t)a->values * sizeof *sums);
        for (int64_t block = all.first / KEYS; block * KEYS < all.end; block++) {
            const Partial part = partial_of(a, b, block, h);
            most = most < part.most[r] ? part.most[r] : most;
        }
        for (int64_t block = all.first / KEYS; block * KEYS < all.end; block++) {
            const Partial part = partial_of(a, b, block, h);
            if (part.sum[r] == 0) continue; /* sees nothing of it */
            const float factor = vmath_exp(part.most[r] - most);
            total += part.sum[r] * factor;
            for (int64_t d = 0; d < a->values; d++)
                sums[d] += factor * part.values[r * a->values + d];
        }
        for (int64_t d = 0; d < a->values; d++) sums[d] = total == 0 ? 0 : sums[d] / total;
        a->lse[row_number(a, b, h, r)] = total == 0 ? 0 : most + vmath_log(total);
        const int64_t at = row_number(a, b, h, r) * a->values;
        float *to = vec_out_tile(a->o, a->shape.dtype, at, sums);
        if (to != sums) memcpy(to, sums, (size_t)a->values * sizeof(float));
        vec_close_tile(a->o, a->shape.dtype, at, a->values, sums);
    }
}

/* New positions from the first on that follow one another within the context: the others are none.
 */
static int64_t count_following(const CacheAttention *a, int64_t b) {
    const int32_t *places = a->places + b * a->shape.seq;
    int64_t n = 0;
    while (n < a->shape.seq && places[0] >= 0 && places[n] == places[0] + n &&
           places[n] < a->shape.context)
        n++;
    return n;
}

/* Many query rows: a row of the batch at a time, its sequence of the cache in place of its keys. */
static bool attend_tiles(const CacheAttention *a) {
    const CacheShape *s = &a->shape;
    const int64_t keys = s->context * a->kv_heads, queries = s->seq * a->kv_heads * a->group;
    AttentionShape shape = {.batch = 1,
                            .seq = s->seq,
                            .kv_heads = a->kv_heads,
                            .group = a->group,
                            .head = a->head,
                            .causal = true,
                            .pieces = true,
                            .scale = a->scale,
                            .dtype = s->dtype,
                            .window = a->window,
                            .softcap = a->softcap,
                            .keys = s->context,
                            .values = a->values};
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t row = a->rows[b], place = a->places[b * s->seq];
        void *o = (void *)(uintptr_t)vec_at(a->o, s->dtype, b * queries * a->values);
        shape.seq = row < 0 || row >= s->sequences ? 0 : count_following(a, b);
        if (shape.seq < s->seq) {
            memset(o, 0, (size_t)(queries * a->values) * vec_bytes(s->dtype));
            memset(a->lse + b * queries, 0, (size_t)queries * sizeof(float));
        }
        if (shape.seq == 0) continue;
        shape.place = (DimSpan){.second = place};
        shape.starts = a->starts ? a->starts + b * s->seq : NULL;
        if (!attention_forward(&shape, vec_at(a->q, s->dtype, b * queries * a->head),
                               vec_at(a->k, s->dtype, row * keys * a->head),
                               vec_at(a->v, s->dtype, row * keys * a->values), o,
                               a->lse + b * queries, NULL))
            return false;
    }
    return true;
}

bool cache_attention(const CacheAttention *a) {
    if (a->head > ATTENTION_MAX_READ_HEAD || a->values > ATTENTION_MAX_READ_HEAD) return false;
    if (!cache_in_blocks(a->shape.seq, a->group)) return attend_tiles(a);
    const int64_t n_heads = a->shape.batch * a->kv_heads, n_tasks = n_heads * count_blocks(a);
#pragma omp parallel if (n_tasks > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < n_tasks; task++) {
            const int64_t number = task / a->kv_heads; /* heads of a block lie side by side */
            attend_block(a, number / count_blocks(a), number % count_blocks(a), task % a->kv_heads);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_heads; i++) join_blocks(a, i / a->kv_heads, i % a->kv_heads);
    }
    return true;
}
