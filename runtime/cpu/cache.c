/* Attention to a cache. Few query rows, as one new position has: the cache is read once, block of
 * keys after block, all heads of a key together, which is how it lies in memory. Each block has a
 * softmax of its own, and blocks are joined in their order (Dao et al. 2023, Flash-Decoding), so
 * that any number of threads gives the same bits. Many rows: attention.c's tiles. */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

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

/* The positions that a query sees, [first, end); none: first == end. */
typedef struct Seen {
    int64_t first, end;
} Seen;

static Seen find_seen(const CacheAttention *a, int64_t b, int64_t i) {
    const int64_t at = b * a->shape.seq + i, place = a->places[at], row = a->rows[b];
    int64_t first = a->window && place >= a->window ? place - a->window + 1 : 0;
    if (row < 0 || row >= a->shape.sequences || place < 0 || place >= a->shape.context)
        return (Seen){0, 0};
    if (a->starts && a->starts[at] > first)
        first = a->starts[at] < place ? a->starts[at] : place;
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
    float *at = a->workspace + number * rows * (a->head + 2);
    return (Partial){at, at + rows, at + 2 * rows};
}

/* Where the query row r of a kv head lies in q and o. */
static int64_t row_at(const CacheAttention *a, int64_t b, int64_t h, int64_t r) {
    const int64_t position = b * a->shape.seq + r / a->group;
    return ((position * a->kv_heads + h) * a->group + r % a->group) * a->head;
}

VEC_INLINE float dot(const float *x, const float *y, int64_t n) {
    Vec s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        s0 += vec_load(x + i) * vec_load(y + i);
        s1 += vec_load(x + i + VEC_LANES) * vec_load(y + i + VEC_LANES);
    }
    for (; i + VEC_LANES <= n; i += VEC_LANES) s0 += vec_load(x + i) * vec_load(y + i);
    float sum = vec_lane_sum(s0 + s1);
    for (; i < n; i++) sum += x[i] * y[i];
    return sum;
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
    const int64_t n_keys = all.end - first < KEYS ? all.end - first : KEYS;
    const int64_t skip = all.first > first ? all.first - first : 0, pitch = a->kv_heads * head;
    const Partial out = partial_of(a, b, block, h);
    const int64_t base = (a->rows[b] * a->shape.context + first) * pitch + h * head;
    const DType dtype = a->shape.dtype;
    float scores[CACHE_MOST_ROWS][KEYS], q[CACHE_MOST_ROWS][ATTENTION_MAX_HEAD];
    float wide[ATTENTION_MAX_HEAD];
    memset(scores, 0, (size_t)rows * sizeof scores[0]);
    for (int64_t r = 0; r < rows; r++) {
        const float *row = vec_tile(a->q, dtype, row_at(a, b, h, r), head, wide);
        for (int64_t d = 0; d < head; d++) q[r][d] = row[d] * a->scale;
    }
    for (int64_t j = skip; j < n_keys; j++) {
        const float *key = vec_tile(a->k, dtype, base + j * pitch, head, wide);
        for (int64_t r = 0; r < rows; r++) scores[r][j] = dot(q[r], key, head);
    }
    for (int64_t r = 0; r < rows; r++)
        weigh_row(a, find_seen(a, b, r / a->group), first, n_keys, scores[r], &out.most[r],
                  &out.sum[r]);
    memset(out.values, 0, (size_t)(rows * head) * sizeof(float));
    for (int64_t j = skip; j < n_keys; j++) {
        const float *value = vec_tile(a->v, dtype, base + j * pitch, head, wide);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < head; d++)
                out.values[r * head + d] += scores[r][j] * value[d];
    }
}

/* The blocks' softmaxes as one, in the blocks' order. */
static void join_blocks(const CacheAttention *a, int64_t b, int64_t h) {
    const Seen all = seen_by_all(a, b);
    float sums[ATTENTION_MAX_HEAD];
    for (int64_t r = 0; r < a->shape.seq * a->group; r++) {
        float most = -INFINITY, total = 0;
        memset(sums, 0, sizeof sums);
        for (int64_t block = all.first / KEYS; block * KEYS < all.end; block++) {
            const Partial part = partial_of(a, b, block, h);
            most = most < part.most[r] ? part.most[r] : most;
        }
        for (int64_t block = all.first / KEYS; block * KEYS < all.end; block++) {
            const Partial part = partial_of(a, b, block, h);
            if (part.sum[r] == 0) continue; /* sees nothing of it */
            const float factor = vmath_exp(part.most[r] - most);
            total += part.sum[r] * factor;
            for (int64_t d = 0; d < a->head; d++)
                sums[d] += factor * part.values[r * a->head + d];
        }
        for (int64_t d = 0; d < a->head; d++) sums[d] = total == 0 ? 0 : sums[d] / total;
        const int64_t at = row_at(a, b, h, r);
        float *to = vec_out_tile(a->o, a->shape.dtype, at, sums);
        if (to != sums) memcpy(to, sums, (size_t)a->head * sizeof(float));
        vec_close_tile(a->o, a->shape.dtype, at, a->head, sums);
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
    const int64_t sequence = s->context * a->kv_heads * a->head;
    const int64_t queries = s->seq * a->kv_heads * a->group * a->head;
    AttentionShape shape = {.batch = 1,
                            .seq = s->seq,
                            .kv_heads = a->kv_heads,
                            .group = a->group,
                            .head = a->head,
                            .causal = true,
                            .scale = a->scale,
                            .dtype = s->dtype,
                            .window = a->window,
                            .softcap = a->softcap,
                            .keys = s->context};
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t row = a->rows[b], place = a->places[b * s->seq];
        void *o = (void *)(uintptr_t)vec_at(a->o, s->dtype, b * queries);
        shape.seq = row < 0 || row >= s->sequences ? 0 : count_following(a, b);
        if (shape.seq < s->seq) memset(o, 0, (size_t)queries * vec_bytes(s->dtype));
        if (shape.seq == 0) continue;
        shape.place = (DimSpan){.second = place};
        shape.starts = a->starts ? a->starts + b * s->seq : NULL;
        if (!attention_forward(&shape, vec_at(a->q, s->dtype, b * queries),
                               vec_at(a->k, s->dtype, row * sequence),
                               vec_at(a->v, s->dtype, row * sequence), o, a->workspace))
            return false;
    }
    return true;
}

bool cache_attention(const CacheAttention *a) {
    if (a->head > ATTENTION_MAX_HEAD) return false;
    if (a->shape.seq * a->group > CACHE_MOST_ROWS) return attend_tiles(a);
    const int64_t n_heads = a->shape.batch * a->kv_heads, n_tasks = n_heads * count_blocks(a);
#pragma omp parallel if (n_tasks > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < n_tasks; task++) {
            const int64_t number = task / a->kv_heads; /* heads of a block lie side by side */
            attend_block(a, number / count_blocks(a), number % count_blocks(a),
                         task % a->kv_heads);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_heads; i++) join_blocks(a, i / a->kv_heads, i % a->kv_heads);
    }
    return true;
}
