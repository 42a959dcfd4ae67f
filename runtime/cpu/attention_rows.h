/* What both of attention's ways have in common, attention.c's by vectors and attention_tiles.c's on
 * a processor's tiles: rows of queries and the keys they see, and everything between the products.
 * Lanes of a vector are query rows. Include vec_low.h first: it widens the vectors of the file.
 */
#ifndef RUNTIME_CPU_ATTENTION_ROWS_H
#define RUNTIME_CPU_ATTENTION_ROWS_H

#include "runtime/cpu/attention.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define ATTENTION_ROWS 64 /* query rows in a tile; of fewer, what works on 16 or 32 will do */
#define ATTENTION_KEYS 64 /* keys in a block: a tile of scores is 16 KiB and stays in L1 */

/* One tile of query rows of one (batch, kv_head). */
typedef struct RowTile {
    int64_t first;                /* row = position * group + member */
    const int32_t *starts, *ends; /* of its batch row's queries, by position; or NULL */
    int n_rows; /* of ATTENTION_ROWS; those behind are zero rows whose results are dropped */
    int64_t first_key, end_key; /* what its rows see lies within: the first is its first row's */
    uint64_t random[ATTENTION_ROWS]; /* where probabilities are dropped: each row's first block */
} RowTile;

static inline int64_t count_keys(const AttentionShape *s) {
    return s->keys ? s->keys : s->seq;
}

static inline int64_t count_values(const AttentionShape *s) {
    return s->values ? s->values : s->head;
}

static inline bool is_longer(const AttentionShape *s, int64_t most) {
    return s->head > most || count_values(s) > most;
}

/* A query's position in the sequence, by its number on this rank; keys are all here. */
static inline int64_t position_of(const AttentionShape *s, int64_t row) {
    return span_at(&s->place, row / s->group);
}

/* The first key that a row sees, which is at `position`, and the one after the last. */
static inline int64_t first_seen(const AttentionShape *s, const int32_t *starts, int64_t row,
                                 int64_t position) {
    int64_t first = s->window && position >= s->window ? position - s->window + 1 : 0;
    if (!starts || starts[row / s->group] <= first) return first;
    return starts[row / s->group] < position ? starts[row / s->group] : position;
}

static inline int64_t end_seen(const AttentionShape *s, const int32_t *ends, int64_t row,
                               int64_t position) {
    if (s->causal) return position + 1;
    const bool near = s->window && s->window < count_keys(s) - position;
    const int64_t end = near ? position + s->window : count_keys(s);
    if (!ends || ends[row / s->group] >= end) return end;
    return ends[row / s->group] > position ? ends[row / s->group] : position + 1;
}

static inline void place_random(const AttentionShape *s, int64_t b, int64_t h, RowTile *tile) {
    const AttentionDrop *drop = &s->drop;
    const uint64_t first = drop->first + (uint64_t)b * drop->batch + (uint64_t)h * drop->head;
    for (int i = 0; i < ATTENTION_ROWS; i++) {
        const int64_t row = tile->first + (i < tile->n_rows ? i : 0);
        tile->random[i] = first + (uint64_t)position_of(s, row) * drop->position +
                          (uint64_t)(row % s->group) * drop->member;
    }
}

static inline RowTile make_row_tile(const AttentionShape *shape, int64_t b, int64_t h,
                                    int64_t index) {
    RowTile tile = {.first = index * ATTENTION_ROWS};
    if (shape->starts) tile.starts = shape->starts + b * shape->seq;
    if (shape->ends) tile.ends = shape->ends + b * shape->seq;
    int64_t left = shape->seq * shape->group - tile.first;
    tile.n_rows = left < ATTENTION_ROWS ? (int)left : ATTENTION_ROWS;
    const int64_t last = tile.first + tile.n_rows - 1;
    tile.first_key = first_seen(shape, tile.starts, tile.first, position_of(shape, tile.first));
    if (shape->pieces) tile.first_key -= tile.first_key % ATTENTION_KEYS; /* blocks as for others */
    tile.end_key = end_seen(shape, tile.ends, last, position_of(shape, last));
    if (shape->drop.threshold) place_random(shape, b, h, &tile);
    return tile;
}

/* Where row r of (b, h) lies in an array like q or o, in units of its last axis (lse: of one). */
static inline int64_t row_place(const AttentionShape *s, int64_t b, int64_t h, int64_t r) {
    return ((b * s->seq + r / s->group) * s->kv_heads + h) * s->group + r % s->group;
}

/* One row of `width` numbers, as q or o has, widened if it is not f32. */
static inline const float *read_row(const AttentionShape *s, const void *x, int64_t width,
                                    int64_t place, float *wide) {
    return vec_tile(x, s->dtype, place * width, width, wide);
}

/* x[row i][d] = in[d][i] factor[i] */
static inline void store_transposed(const AttentionShape *s, const RowTile *tile, int64_t b,
                                    int64_t h, float in[][ATTENTION_ROWS],
                                    const float factor[ATTENTION_ROWS], void *x, int64_t width) {
    float wide[ATTENTION_MAX_READ_HEAD];
    for (int i = 0; i < tile->n_rows; i++) {
        const int64_t at = row_place(s, b, h, tile->first + i) * width;
        float *row = vec_out_tile(x, s->dtype, at, wide);
        for (int64_t d = 0; d < width; d++) row[d] = in[d][i] * factor[i];
        vec_close_tile(x, s->dtype, at, width, row);
    }
}

/* The row of one head's key or value, in units of its last axis. */
static inline int64_t key_row(const AttentionShape *s, int64_t b, int64_t h, int64_t key) {
    return (b * count_keys(s) + key) * s->kv_heads + h;
}

/* Scores become softcap tanh(score / softcap). */
VEC_INLINE void cap_scores(const AttentionShape *s, const int rows, int n_keys,
                           float scores[][ATTENTION_ROWS]) {
    const float cap = s->softcap, inverse = 1.0f / cap;
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) scores[j][i] = cap * vmath_tanh(scores[j][i] * inverse);
}

/* Scores of keys that a row does not see become -inf. */
static inline void mask_scores(const AttentionShape *s, const RowTile *tile, int64_t first_key,
                               int n_keys, float scores[][ATTENTION_ROWS]) {
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

/* e^x, a key's weight beside one of a row's largest, e^0: vmath_exp's bits, in two thirds of its
 * instructions, as x is at most about 0. One below e^-60 adds nothing to sums in f32; it is 0, as
 * denormal numbers, which such weights and their products become, take processors many times as
 * long, and biases that grow with the distance make most of a row's weights so. */
VEC_INLINE float weight_of(float x) {
    const float shifted = x * VMATH_LOG2E + VMATH_ROUND;
    const float p = vmath_exp_rest(x, shifted - VMATH_ROUND);
    const float weight = vec_from_bits(vec_bits(p) + (vec_bits(shifted) << 23));
    return x >= -60.0f ? weight : x < -60.0f ? 0.0f : x; /* of a NaN it is any number */
}

/* The running softmax over blocks of keys: after each block, weights[j][i] = exp(score - max[i]),
 * and `rescale` is what earlier sums must be multiplied by. */
typedef struct RunningSoftmax {
    float max[ATTENTION_ROWS], sum[ATTENTION_ROWS], rescale[ATTENTION_ROWS];
} RunningSoftmax;

VEC_INLINE void softmax_add_block(RunningSoftmax *run, const int rows, int n_keys,
                                  float scores[][ATTENTION_ROWS]) {
    float top[ATTENTION_ROWS], sum[ATTENTION_ROWS] = {0};
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

VEC_INLINE void open_softmax(const int rows, RunningSoftmax *run) {
    for (int i = 0; i < rows; i++) {
        run->max[i] = LOWEST_SCORE;
        run->sum[i] = 0;
    }
}

/* What the forward pass gives of a tile, whose sums ot [values][ATTENTION_ROWS] are. */
VEC_INLINE void store_forward(const AttentionShape *s, const RowTile *tile, const int rows,
                              int64_t b, int64_t h, RunningSoftmax *run, float ot[][ATTENTION_ROWS],
                              void *o, float *lse, float *largest) {
    for (int i = 0; i < tile->n_rows; i++)
        lse[row_place(s, b, h, tile->first + i)] = run->max[i] + vmath_log(run->sum[i]);
    for (int i = 0; largest && i < tile->n_rows; i++)
        largest[row_place(s, b, h, tile->first + i)] = run->max[i];
    for (int i = 0; i < rows; i++) run->sum[i] = 1.0f / run->sum[i];
    store_transposed(s, tile, b, h, ot, run->sum, o, count_values(s));
}

/* kept[j][i]: what the probability of key first_key + j is times, the factor or 0. `rows`, a power
 * of two: some rows are of a block of numbers, or all of several. */
VEC_INLINE void draw_kept(const AttentionShape *s, const RowTile *tile, const int rows,
                          int64_t first_key, int n_keys, float kept[][ATTENTION_ROWS]) {
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

VEC_INLINE void multiply_kept(const int rows, int n_keys, float kept[][ATTENTION_ROWS],
                              float x[][ATTENTION_ROWS]) {
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) x[j][i] *= kept[j][i];
}

/* What the gradient knows of each row's softmax. */
typedef struct RowStatistics {
    float lse[ATTENTION_ROWS], delta[ATTENTION_ROWS];
} RowStatistics;

/* delta[i] = sum over d of do o, the term that the softmax's normalisation adds (Dao 2023, eq. 4).
 */
static inline void load_statistics(const AttentionShape *s, const RowTile *tile, int rows,
                                   int64_t b, int64_t h, const void *o, const void *d_o,
                                   const float *lse, RowStatistics *t) {
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

/* x[key j][d] += block[j][d], rows `stride` floats apart, of the block `from_stride` */
static inline void add_block(int64_t width, int n_keys, const float *block, int64_t from_stride,
                             float *x, int64_t stride) {
    for (int j = 0; j < n_keys; j++) {
        float *to = x + j * stride;
        const float *from = block + j * from_stride;
        for (int64_t d = 0; d < width; d++) to[d] += from[d];
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
VEC_INLINE void scale_capped(const AttentionShape *s, const int rows, int n_keys,
                             const RowStatistics *t, float scores[][ATTENTION_ROWS],
                             float ds[][ATTENTION_ROWS]) {
    const float inverse = 1.0f / s->softcap;
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            float tanh = scores[j][i] * inverse, slope = 1.0f - tanh * tanh;
            ds[j][i] = (ds[j][i] - t->delta[i]) * slope + t->delta[i];
        }
}

/* Which gradients of a tile of rows: dq, or those of keys and values, or all, and of which keys. */
typedef struct BackwardPart {
    bool dq, dkv;
    int64_t first, end; /* keys, of whole blocks */
} BackwardPart;

/* A tile's keys of a part: from [first, end), by blocks that end at whole ATTENTION_KEYS, so that
 * they are the same for all tiles and some can be left to other threads. */
static inline int64_t part_first(const BackwardPart *part, const RowTile *tile) {
    return tile->first_key > part->first ? tile->first_key : part->first;
}

static inline int64_t part_end(const BackwardPart *part, const RowTile *tile) {
    return tile->end_key < part->end ? tile->end_key : part->end;
}

static inline int64_t block_end(int64_t first, int64_t end) {
    const int64_t whole = (first / ATTENTION_KEYS + 1) * ATTENTION_KEYS;
    return whole < end ? whole : end;
}

/* A head's gradients: what all of its tiles read and write. */
typedef struct BackwardHead {
    const AttentionShape *shape;
    int64_t b, h;
    const void *q, *k, *v, *o, *d_o;
    const float *lse;
    void *dq;
    float *workspace;
    KeySums sums;
} BackwardHead;

#endif
