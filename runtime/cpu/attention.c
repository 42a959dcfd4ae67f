/* The lanes of a vector are query rows. For one key/value head the rows are all (position, group
 * member) pairs in memory order, taken ROWS at a time and transposed once: then keys and values are
 * read as broadcast scalars straight from the caller's memory, the row maxima and sums of the
 * softmax are plain vector operations, and a group's query heads share the keys they use.
 *
 * All five products of the two passes are one routine, tile_multiply.
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/attention.h"
#include "runtime/cpu/tile.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define ROWS 64 /* query rows in a tile; of fewer, what works on 16 or 32 will do */
#define KEYS 64 /* keys in a block: a tile of scores is 16 KiB and stays in L1 */

/* One tile of query rows of one (batch, kv_head). */
typedef struct RowTile {
    int64_t first;                /* row = position * group + member */
    const int32_t *starts, *ends; /* of its batch row's queries, by position; or NULL */
    int n_rows;                 /* of ROWS; those behind are zero rows whose results are dropped */
    int64_t first_key, end_key; /* what its rows see lies within: the first is its first row's */
    uint64_t random[ROWS];      /* where probabilities are dropped: each row's first block */
} RowTile;

static int64_t count_keys(const AttentionShape *s) {
    return s->keys ? s->keys : s->seq;
}

static int64_t count_values(const AttentionShape *s) {
    return s->values ? s->values : s->head;
}

static bool is_longer(const AttentionShape *s, int64_t most) {
    return s->head > most || count_values(s) > most;
}

/* A query's position in the sequence, by its number on this rank; keys are all here. */
static int64_t position_of(const AttentionShape *s, int64_t row) {
    return span_at(&s->place, row / s->group);
}

/* The first key that a row sees, which is at `position`, and the one after the last. */
static int64_t first_seen(const AttentionShape *s, const int32_t *starts, int64_t row,
                          int64_t position) {
    int64_t first = s->window && position >= s->window ? position - s->window + 1 : 0;
    if (!starts || starts[row / s->group] <= first) return first;
    return starts[row / s->group] < position ? starts[row / s->group] : position;
}

static int64_t end_seen(const AttentionShape *s, const int32_t *ends, int64_t row,
                        int64_t position) {
    if (s->causal) return position + 1;
    const bool near = s->window && s->window < count_keys(s) - position;
    const int64_t end = near ? position + s->window : count_keys(s);
    if (!ends || ends[row / s->group] >= end) return end;
    return ends[row / s->group] > position ? ends[row / s->group] : position + 1;
}

static void place_random(const AttentionShape *s, int64_t b, int64_t h, RowTile *tile) {
    const AttentionDrop *drop = &s->drop;
    const uint64_t first = drop->first + (uint64_t)b * drop->batch + (uint64_t)h * drop->head;
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = tile->first + (i < tile->n_rows ? i : 0);
        tile->random[i] = first + (uint64_t)position_of(s, row) * drop->position +
                          (uint64_t)(row % s->group) * drop->member;
    }
}

static RowTile make_row_tile(const AttentionShape *shape, int64_t b, int64_t h, int64_t index) {
    RowTile tile = {.first = index * ROWS};
    if (shape->starts) tile.starts = shape->starts + b * shape->seq;
    if (shape->ends) tile.ends = shape->ends + b * shape->seq;
    int64_t left = shape->seq * shape->group - tile.first;
    tile.n_rows = left < ROWS ? (int)left : ROWS;
    const int64_t last = tile.first + tile.n_rows - 1;
    tile.first_key = first_seen(shape, tile.starts, tile.first, position_of(shape, tile.first));
    tile.end_key = end_seen(shape, tile.ends, last, position_of(shape, last));
    if (shape->drop.threshold) place_random(shape, b, h, &tile);
    return tile;
}

/* Where row r of (b, h) lies in an array like q or o, in units of its last axis (lse: of one). */
static int64_t row_place(const AttentionShape *s, int64_t b, int64_t h, int64_t r) {
    return ((b * s->seq + r / s->group) * s->kv_heads + h) * s->group + r % s->group;
}

/* One row of `width` numbers, as q or o has, widened if it is not f32. */
static const float *read_row(const AttentionShape *s, const void *x, int64_t width, int64_t place,
                             float *wide) {
    return vec_tile(x, s->dtype, place * width, width, wide);
}

/* out[d][i] = factor x[row i][d] of rows of `width`; rows past the end are zero. */
static void load_transposed(const AttentionShape *s, const RowTile *tile, int rows, int64_t b,
                            int64_t h, const void *x, int64_t width, float factor,
                            float out[][ROWS]) {
    float wide[ATTENTION_MAX_READ_HEAD];
    for (int i = 0; i < rows; i++) {
        if (i >= tile->n_rows) {
            for (int64_t d = 0; d < width; d++) out[d][i] = 0;
            continue;
        }
        const float *row = read_row(s, x, width, row_place(s, b, h, tile->first + i), wide);
        for (int64_t d = 0; d < width; d++) out[d][i] = factor * row[d];
    }
}

/* x[row i][d] = in[d][i] factor[i] */
static void store_transposed(const AttentionShape *s, const RowTile *tile, int64_t b, int64_t h,
                             float in[][ROWS], const float factor[ROWS], void *x, int64_t width) {
    float wide[ATTENTION_MAX_READ_HEAD];
    for (int i = 0; i < tile->n_rows; i++) {
        const int64_t at = row_place(s, b, h, tile->first + i) * width;
        float *row = vec_out_tile(x, s->dtype, at, wide);
        for (int64_t d = 0; d < width; d++) row[d] = in[d][i] * factor[i];
        vec_close_tile(x, s->dtype, at, width, row);
    }
}

/* A block of keys or values as f32: rows `stride` floats apart. */
typedef struct KeyBlock {
    const float *rows;
    int64_t stride;
} KeyBlock;

/* The block of x whose first row is `row` (of those of `width` numbers): in place, or widened into
 * `wide`. */
static KeyBlock read_keys(const AttentionShape *s, const void *x, int64_t width, int64_t row,
                          int n_keys, float *wide) {
    const int64_t stride = s->kv_heads * width, at = row * width;
    if (!dtype_is_low(s->dtype)) return (KeyBlock){(const float *)x + at, stride};
    for (int j = 0; j < n_keys; j++)
        vec_low_load(s->dtype, (const uint16_t *)x + at + j * stride, wide + j * width, width);
    return (KeyBlock){wide, width};
}

/* The row of one head's key or value, in units of its last axis. */
static int64_t key_row(const AttentionShape *s, int64_t b, int64_t h, int64_t key) {
    return (b * count_keys(s) + key) * s->kv_heads + h;
}

/* Scores become softcap tanh(score / softcap). */
VEC_INLINE void cap_scores(const AttentionShape *s, const int rows, int n_keys,
                           float scores[][ROWS]) {
    const float cap = s->softcap, inverse = 1.0f / cap;
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) scores[j][i] = cap * vmath_tanh(scores[j][i] * inverse);
}

/* Scores of keys that a row does not see become -inf. */
static void mask_scores(const AttentionShape *s, const RowTile *tile, int64_t first_key, int n_keys,
                        float scores[][ROWS]) {
    const int64_t last_row = tile->first + tile->n_rows - 1;
    const int64_t first = position_of(s, tile->first), last = position_of(s, last_row);
    if (first_key >= first_seen(s, tile->starts, last_row, last) &&
        first_key + n_keys <= end_seen(s, tile->ends, tile->first, first))
        return;
    for (int i = 0; i < tile->n_rows; i++) {
        const int64_t position = position_of(s, tile->first + i);
        const int64_t hidden_to =
            first_seen(s, tile->starts, tile->first + i, position) - first_key;
        const int64_t hidden_from = end_seen(s, tile->ends, tile->first + i, position) - first_key;
        for (int64_t j = 0; j < hidden_to && j < n_keys; j++) scores[j][i] = -INFINITY;
        for (int64_t j = hidden_from < 0 ? 0 : hidden_from; j < n_keys; j++)
            scores[j][i] = -INFINITY;
    }
}

/* Below any score, and finite: a row that sees nothing of a block has weights of zero there. */
#define LOWEST_SCORE -1e38f

/* e^x, a key's weight beside one of a row's largest, e^0. One below e^-60 adds nothing to sums in
 * f32; it is 0, as denormal numbers, which such weights and their products become, take processors
 * many times as long, and biases that grow with the distance make most of a row's weights so. */
VEC_INLINE float weight_of(float x) {
    const float weight = vmath_exp(x);
    return x < -60.0f ? 0.0f : weight;
}

/* The running softmax over blocks of keys: after each block, weights[j][i] = exp(score - max[i]),
 * and `rescale` is what earlier sums must be multiplied by. */
typedef struct RunningSoftmax {
    float max[ROWS], sum[ROWS], rescale[ROWS];
} RunningSoftmax;

VEC_INLINE void softmax_add_block(RunningSoftmax *run, const int rows, int n_keys,
                                  float scores[][ROWS]) {
    float top[ROWS], sum[ROWS] = {0};
    memcpy(top, run->max, (size_t)rows * sizeof top[0]);
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) top[i] = top[i] < scores[j][i] ? scores[j][i] : top[i];
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            float weight = weight_of(scores[j][i] - top[i]);
            scores[j][i] = weight;
            sum[i] += weight;
        }
    for (int i = 0; i < rows; i++) {
        run->rescale[i] = vmath_exp(run->max[i] - top[i]);
        run->sum[i] = run->sum[i] * run->rescale[i] + sum[i];
        run->max[i] = top[i];
    }
}

/* kept[j][i]: what the probability of key first_key + j is times, the factor or 0. `rows`, a power
 * of two: some rows are of a block of numbers, or all of several. */
VEC_INLINE void draw_kept(const AttentionShape *s, const RowTile *tile, const int rows,
                          int64_t first_key, int n_keys, float kept[][ROWS]) {
    const int each = rows < PHILOX_BLOCKS ? rows : PHILOX_BLOCKS;
    const int64_t aligned = first_key / ATTENTION_DROP_KEYS * ATTENTION_DROP_KEYS;
    const uint32_t threshold = s->drop.threshold;
    const float factor = s->drop.factor;
    uint64_t blocks[PHILOX_BLOCKS];
    uint32_t words[4][PHILOX_BLOCKS];
    for (int64_t from = aligned; from < first_key + n_keys; from += ATTENTION_DROP_KEYS) {
        const uint64_t before = (uint64_t)(from / ATTENTION_DROP_KEYS * ATTENTION_DROP_BLOCKS);
        for (int at = 0; at < ATTENTION_DROP_BLOCKS * rows; at += each) {
            const int block = at / rows, row = at % rows, part = at % PHILOX_BLOCKS;
            if (!part) {
                for (int i = 0; i < PHILOX_BLOCKS; i++)
                    blocks[i] =
                        tile->random[(at + i) % rows] + before + (uint64_t)((at + i) / rows);
                philox_blocks(&s->random, blocks, words);
            }
            for (int k = 0; k < 8; k++) { /* the block's keys */
                const int64_t j = from + k / 2 * 8 + 2 * block + k % 2 - first_key;
                if (j < 0 || j >= n_keys) continue;
                for (int i = 0; i < each; i++) {
                    const uint32_t bits = words[k / 2][part + i] >> (k % 2 * 16) & 0xffffu;
                    kept[j][row + i] = bits >= threshold ? factor : 0;
                }
            }
        }
    }
}

VEC_INLINE void multiply_kept(const int rows, int n_keys, float kept[][ROWS], float x[][ROWS]) {
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) x[j][i] *= kept[j][i];
}

/* One tile of at most `rows` query rows: 16, 32 or ROWS, a constant at every call. */
VEC_INLINE void forward_rows(const AttentionShape *s, const RowTile *tile, const int rows,
                             int64_t b, int64_t h, const void *q, const void *k, const void *v,
                             void *o, float *lse, float *largest) {
    float wide[KEYS * ATTENTION_MAX_READ_HEAD] __attribute__((aligned(64)));
    float qt[ATTENTION_MAX_READ_HEAD][ROWS] __attribute__((aligned(64)));
    float ot[ATTENTION_MAX_READ_HEAD][ROWS] __attribute__((aligned(64)));
    float scores[KEYS][ROWS] __attribute__((aligned(64)));
    RunningSoftmax run;
    const int head = (int)s->head, n_values = (int)count_values(s);
    load_transposed(s, tile, rows, b, h, q, head, s->scale, qt);
    memset(ot, 0, (size_t)n_values * sizeof ot[0]);
    for (int i = 0; i < rows; i++) {
        run.max[i] = LOWEST_SCORE;
        run.sum[i] = 0;
    }
    for (int64_t first = tile->first_key; first < tile->end_key; first += KEYS) {
        const int n_keys = tile->end_key - first < KEYS ? (int)(tile->end_key - first) : KEYS;
        const int64_t row = key_row(s, b, h, first);
        const KeyBlock keys = read_keys(s, k, head, row, n_keys, wide);
        tile_multiply(false, n_keys, rows, head, keys.rows, keys.stride, 1, qt[0], ROWS, scores[0],
                      ROWS);
        if (s->softcap != 0) cap_scores(s, rows, n_keys, scores);
        mask_scores(s, tile, first, n_keys, scores);
        softmax_add_block(&run, rows, n_keys, scores);
        if (s->drop.threshold) {
            float kept[KEYS][ROWS] __attribute__((aligned(64)));
            draw_kept(s, tile, rows, first, n_keys, kept);
            multiply_kept(rows, n_keys, kept, scores);
        }
        if (first > tile->first_key)
            for (int d = 0; d < n_values; d++)
                for (int i = 0; i < rows; i++) ot[d][i] *= run.rescale[i];
        const KeyBlock values = read_keys(s, v, n_values, row, n_keys, wide);
        tile_multiply(true, n_values, rows, n_keys, values.rows, 1, values.stride, scores[0], ROWS,
                      ot[0], ROWS);
    }
    for (int i = 0; i < tile->n_rows; i++)
        lse[row_place(s, b, h, tile->first + i)] = run.max[i] + vmath_log(run.sum[i]);
    for (int i = 0; largest && i < tile->n_rows; i++)
        largest[row_place(s, b, h, tile->first + i)] = run.max[i];
    for (int i = 0; i < rows; i++) run.sum[i] = 1.0f / run.sum[i];
    store_transposed(s, tile, b, h, ot, run.sum, o, n_values);
}

#define FORWARD_ROWS(rows)                                                                         \
    static void forward_##rows(const AttentionShape *s, const RowTile *tile, int64_t b, int64_t h, \
                               const void *q, const void *k, const void *v, void *o, float *lse,   \
                               float *largest) {                                                   \
        forward_rows(s, tile, rows, b, h, q, k, v, o, lse, largest);                               \
    }
FORWARD_ROWS(16)
FORWARD_ROWS(32)
FORWARD_ROWS(64)

static void forward_tile(const AttentionShape *s, int64_t b, int64_t h, int64_t index,
                         const void *q, const void *k, const void *v, void *o, float *lse,
                         float *largest) {
    const RowTile tile = make_row_tile(s, b, h, index);
    (tile.n_rows <= 16   ? forward_16
     : tile.n_rows <= 32 ? forward_32
                         : forward_64)(s, &tile, b, h, q, k, v, o, lse, largest);
}

bool attention_forward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                       void *o, float *lse, float *largest) {
    if (is_longer(shape, ATTENTION_MAX_READ_HEAD)) return false;
    const int64_t n_tiles = (shape->seq * shape->group + ROWS - 1) / ROWS;
    const int64_t n_tasks = shape->batch * shape->kv_heads * n_tiles;
    /* Causal tiles cost more the later they are: largest first, dynamically, evens the threads out.
     */
#pragma omp parallel for schedule(dynamic, 1) if (n_tasks > 1)
    for (int64_t task = 0; task < n_tasks; task++) {
        const int64_t pair = task % (shape->batch * shape->kv_heads);
        const int64_t index = n_tiles - 1 - task / (shape->batch * shape->kv_heads);
        forward_tile(shape, pair / shape->kv_heads, pair % shape->kv_heads, index, q, k, v, o, lse,
                     largest);
    }
    return true;
}

/* What the backward pass holds of one tile of query rows. */
typedef struct BackwardTile {
    float qt[ATTENTION_MAX_HEAD][ROWS] __attribute__((aligned(64))); /* scale q, transposed */
    float dot[ATTENTION_MAX_HEAD][ROWS]
        __attribute__((aligned(64))); /* gradient of o, transposed */
    float dqt[ATTENTION_MAX_HEAD][ROWS] __attribute__((aligned(64)));
    float p[KEYS][ROWS] __attribute__((aligned(64)));  /* softmax of the scores */
    float ds[KEYS][ROWS] __attribute__((aligned(64))); /* gradient of the scores */
    float kept[KEYS][ROWS] __attribute__((aligned(64)));
    float lse[ROWS], delta[ROWS];
    /* Rows as they are, padded to whole vectors: [ROWS][padded head or values]. */
    float q[ROWS * ATTENTION_MAX_HEAD] __attribute__((aligned(64)));
    float d_o[ROWS * ATTENTION_MAX_HEAD] __attribute__((aligned(64)));
    float block[KEYS * ATTENTION_MAX_HEAD] __attribute__((aligned(64))); /* of dk or dv */
    float wide[KEYS * ATTENTION_MAX_HEAD] __attribute__((aligned(64)));  /* keys or values */
} BackwardTile;

static int padded(int64_t width) {
    return ((int)width + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
}

static void load_rows(const AttentionShape *s, const RowTile *tile, int rows, int64_t b, int64_t h,
                      const void *x, int64_t width, float factor, float *out) {
    float wide[ATTENTION_MAX_HEAD];
    const int stride = padded(width);
    for (int i = 0; i < rows; i++) {
        float *to = out + (int64_t)i * stride;
        memset(to, 0, (size_t)stride * sizeof *to);
        if (i >= tile->n_rows) continue;
        const float *row = read_row(s, x, width, row_place(s, b, h, tile->first + i), wide);
        for (int64_t d = 0; d < width; d++) to[d] = factor * row[d];
    }
}

/* x[key j][d] += block[j][d], rows of x `stride` apart */
static void add_block(int64_t width, int n_keys, const float *block, float *x, int64_t stride) {
    for (int j = 0; j < n_keys; j++) {
        float *to = x + j * stride;
        const float *from = block + (int64_t)j * padded(width);
        for (int64_t d = 0; d < width; d++) to[d] += from[d];
    }
}

/* delta[i] = sum over d of do o, the term that the softmax's normalisation adds (Dao 2023, eq. 4).
 */
static void load_statistics(const AttentionShape *s, const RowTile *tile, int rows, int64_t b,
                            int64_t h, const void *o, const void *d_o, const float *lse,
                            BackwardTile *t) {
    float wide_o[ATTENTION_MAX_HEAD], wide_d[ATTENTION_MAX_HEAD];
    const int64_t width = count_values(s);
    for (int i = 0; i < rows; i++) {
        t->lse[i] = INFINITY; /* rows past the end get no weights */
        t->delta[i] = 0;
        if (i >= tile->n_rows) continue;
        const int64_t at = row_place(s, b, h, tile->first + i);
        const float *row = read_row(s, o, width, at, wide_o);
        const float *d_row = read_row(s, d_o, width, at, wide_d);
        double delta = 0;
        for (int64_t d = 0; d < width; d++) delta += (double)row[d] * (double)d_row[d];
        t->delta[i] = (float)delta;
        t->lse[i] = lse[at];
    }
}

/* Where the gradients of one head's keys or values are added up: rows `stride` floats apart. */
typedef struct HeadSums {
    float *rows;
    int64_t stride, width;
} HeadSums;

typedef struct KeySums {
    HeadSums dk, dv;
} KeySums;

/* Where a score is softcap t, t = tanh(x / softcap), x has 1 - t^2 of its gradient. That takes the
 * difference of ds and delta, which is taken later: delta is put back. */
VEC_INLINE void scale_capped(const AttentionShape *s, const int rows, int n_keys, BackwardTile *t) {
    const float inverse = 1.0f / s->softcap;
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            float tanh = t->p[j][i] * inverse, slope = 1.0f - tanh * tanh;
            t->ds[j][i] = (t->ds[j][i] - t->delta[i]) * slope + t->delta[i];
        }
}

/* sums[first + j] += sum over rows of weights[j][row] x[row] */
static void add_gradient(const HeadSums *sums, int rows, int64_t first, int n_keys,
                         float weights[][ROWS], const float *x, float *block) {
    const int width = padded(sums->width);
    tile_multiply(false, n_keys, width, rows, weights[0], ROWS, 1, x, width, block, width);
    add_block(sums->width, n_keys, block, sums->rows + first * sums->stride, sums->stride);
}

/* Keys [first, first + n_keys), whose rows begin at `row` of k and v. */
VEC_INLINE void backward_block(const AttentionShape *s, const RowTile *tile, const int rows,
                               BackwardTile *t, int64_t first, int n_keys, int64_t row,
                               const void *k, const void *v, const KeySums *sums) {
    const int head = (int)s->head, n_values = (int)count_values(s);
    const KeyBlock values = read_keys(s, v, n_values, row, n_keys, t->wide);
    tile_multiply(false, n_keys, rows, n_values, values.rows, values.stride, 1, t->dot[0], ROWS,
                  t->ds[0], ROWS);
    if (s->drop.threshold) {
        draw_kept(s, tile, rows, first, n_keys, t->kept);
        multiply_kept(rows, n_keys, t->kept, t->ds);
    }
    const KeyBlock keys =
        read_keys(s, k, head, row, n_keys, t->wide); /* takes the place of the values */
    tile_multiply(false, n_keys, rows, head, keys.rows, keys.stride, 1, t->qt[0], ROWS, t->p[0],
                  ROWS);
    if (s->softcap != 0) {
        cap_scores(s, rows, n_keys, t->p);
        scale_capped(s, rows, n_keys, t);
    }
    mask_scores(s, tile, first, n_keys, t->p);
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            t->p[j][i] = weight_of(t->p[j][i] - t->lse[i]);
            t->ds[j][i] = t->p[j][i] * (t->ds[j][i] - t->delta[i]);
        }
    tile_multiply(true, head, rows, n_keys, keys.rows, 1, keys.stride, t->ds[0], ROWS, t->dqt[0],
                  ROWS);
    if (s->drop.threshold) multiply_kept(rows, n_keys, t->kept, t->p);
    add_gradient(&sums->dv, rows, first, n_keys, t->p, t->d_o, t->block);
    /* t->q carries the scale, so dk needs none. */
    add_gradient(&sums->dk, rows, first, n_keys, t->ds, t->q, t->block);
}

/* In place, or in `sums` and stored by close_sums; zero. */
static HeadSums open_head(const AttentionShape *s, int64_t b, int64_t h, int64_t width, void *out,
                          float *sums) {
    const bool low = dtype_is_low(s->dtype);
    HeadSums head = {.rows = low ? sums : (float *)out + key_row(s, b, h, 0) * width,
                     .stride = low ? width : s->kv_heads * width,
                     .width = width};
    for (int64_t pos = 0; pos < count_keys(s); pos++)
        memset(head.rows + pos * head.stride, 0, (size_t)width * sizeof(float));
    return head;
}

/* This head's part of the workspace: of dk, then of dv. */
static KeySums open_sums(const AttentionShape *s, int64_t b, int64_t h, void *dk, void *dv,
                         float *workspace) {
    const int64_t n_values = count_values(s), keys = count_keys(s);
    float *own = NULL, *own_values = NULL;
    if (dtype_is_low(s->dtype)) {
        own = workspace + (b * s->kv_heads + h) * keys * (s->head + n_values);
        own_values = own + keys * s->head;
    }
    return (KeySums){open_head(s, b, h, s->head, dk, own),
                     open_head(s, b, h, n_values, dv, own_values)};
}

static void close_head(const AttentionShape *s, int64_t b, int64_t h, const HeadSums *sums,
                       void *out) {
    for (int64_t pos = 0; dtype_is_low(s->dtype) && pos < count_keys(s); pos++)
        vec_low_store(s->dtype, sums->rows + pos * sums->stride,
                      (uint16_t *)out + key_row(s, b, h, pos) * sums->width, sums->width);
}

/* A head's gradients: what all of its tiles read and write. */
typedef struct BackwardHead {
    const AttentionShape *shape;
    int64_t b, h;
    const void *q, *k, *v, *o, *d_o;
    const float *lse;
    void *dq;
    KeySums sums;
} BackwardHead;

/* One tile of at most `rows` query rows, as forward_rows. */
VEC_INLINE void backward_rows(const BackwardHead *x, const RowTile *tile, const int rows,
                              BackwardTile *t) {
    const AttentionShape *s = x->shape;
    const int64_t b = x->b, h = x->h;
    float scales[ROWS];
    for (int i = 0; i < rows; i++) scales[i] = s->scale;
    load_transposed(s, tile, rows, b, h, x->q, s->head, s->scale, t->qt);
    load_transposed(s, tile, rows, b, h, x->d_o, count_values(s), 1.0f, t->dot);
    load_rows(s, tile, rows, b, h, x->q, s->head, s->scale, t->q);
    load_rows(s, tile, rows, b, h, x->d_o, count_values(s), 1.0f, t->d_o);
    load_statistics(s, tile, rows, b, h, x->o, x->d_o, x->lse, t);
    memset(t->dqt, 0, (size_t)s->head * sizeof t->dqt[0]);
    for (int64_t first = tile->first_key; first < tile->end_key; first += KEYS) {
        const int n_keys = tile->end_key - first < KEYS ? (int)(tile->end_key - first) : KEYS;
        backward_block(s, tile, rows, t, first, n_keys, key_row(s, b, h, first), x->k, x->v,
                       &x->sums);
    }
    store_transposed(s, tile, b, h, t->dqt, scales, x->dq, s->head);
}

#define BACKWARD_ROWS(rows)                                                                        \
    static void backward_##rows(const BackwardHead *x, const RowTile *tile, BackwardTile *t) {     \
        backward_rows(x, tile, rows, t);                                                           \
    }
BACKWARD_ROWS(16)
BACKWARD_ROWS(32)
BACKWARD_ROWS(64)

static void backward_head(const BackwardHead *x, void *dk, void *dv) {
    BackwardTile t;
    const AttentionShape *s = x->shape;
    const int64_t n_tiles = (s->seq * s->group + ROWS - 1) / ROWS;
    for (int64_t index = 0; index < n_tiles; index++) {
        const RowTile tile = make_row_tile(s, x->b, x->h, index);
        (tile.n_rows <= 16   ? backward_16
         : tile.n_rows <= 32 ? backward_32
                             : backward_64)(x, &tile, &t);
    }
    close_head(s, x->b, x->h, &x->sums.dk, dk);
    close_head(s, x->b, x->h, &x->sums.dv, dv);
}

bool attention_backward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                        const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                        void *dv, float *workspace) {
    if (is_longer(shape, ATTENTION_MAX_HEAD)) return false;
    const int64_t n_pairs = shape->batch * shape->kv_heads;
#pragma omp parallel for schedule(dynamic, 1) if (n_pairs > 1)
    for (int64_t pair = 0; pair < n_pairs; pair++) {
        const int64_t b = pair / shape->kv_heads, h = pair % shape->kv_heads;
        const BackwardHead head = {.shape = shape,
                                   .b = b,
                                   .h = h,
                                   .q = q,
                                   .k = k,
                                   .v = v,
                                   .o = o,
                                   .d_o = d_o,
                                   .lse = lse,
                                   .dq = dq,
                                   .sums = open_sums(shape, b, h, dk, dv, workspace)};
        backward_head(&head, dk, dv);
    }
    return true;
}
