/* The lanes of a vector are query rows. For one key/value head the rows are all (position, group
 * member) pairs in memory order, taken ATTENTION_ROWS at a time and transposed once: then keys and
 * values are read as broadcast scalars straight from the caller's memory, the row maxima and sums
 * of the softmax are plain vector operations, and a group's query heads share the keys they use.
 *
 * All five products of the two passes are one routine, tile_multiply.
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/attention.h"

#include "runtime/cpu/attention_rows.h"
#include "runtime/cpu/attention_tiles.h"
#include "runtime/cpu/tile.h"

#include <omp.h>

/* out[d][i] = factor x[row i][d] of rows of `width`; rows past the end are zero. */
static void load_transposed(const AttentionShape *s, const RowTile *tile, int rows, int64_t b,
                            int64_t h, const void *x, int64_t width, float factor,
                            float out[][ATTENTION_ROWS]) {
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

/* One tile of at most `rows` query rows: 16, 32 or ATTENTION_ROWS, a constant at every call. */
VEC_INLINE void forward_rows(const AttentionShape *s, const RowTile *tile, const int rows,
                             int64_t b, int64_t h, const void *q, const void *k, const void *v,
                             void *o, float *lse, float *largest) {
    float wide[ATTENTION_KEYS * ATTENTION_MAX_READ_HEAD] __attribute__((aligned(64)));
    float qt[ATTENTION_MAX_READ_HEAD][ATTENTION_ROWS] __attribute__((aligned(64)));
    float ot[ATTENTION_MAX_READ_HEAD][ATTENTION_ROWS] __attribute__((aligned(64)));
    float scores[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
    RunningSoftmax run;
    const int head = (int)s->head, n_values = (int)count_values(s);
    load_transposed(s, tile, rows, b, h, q, head, s->scale, qt);
    memset(ot, 0, (size_t)n_values * sizeof ot[0]);
    open_softmax(rows, &run);
    for (int64_t first = tile->first_key; first < tile->end_key; first += ATTENTION_KEYS) {
        const int n_keys =
            tile->end_key - first < ATTENTION_KEYS ? (int)(tile->end_key - first) : ATTENTION_KEYS;
        const int64_t row = key_row(s, b, h, first);
        const KeyBlock keys = read_keys(s, k, head, row, n_keys, wide);
        tile_multiply(false, n_keys, rows, head, keys.rows, keys.stride, 1, qt[0], ATTENTION_ROWS,
                      scores[0], ATTENTION_ROWS);
        if (s->softcap != 0) cap_scores(s, rows, n_keys, scores);
        mask_scores(s, tile, first, n_keys, scores);
        softmax_add_block(&run, rows, n_keys, scores);
        if (s->drop.threshold) {
            float kept[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
            draw_kept(s, tile, rows, first, n_keys, kept);
            multiply_kept(rows, n_keys, kept, scores);
        }
        if (first > tile->first_key)
            for (int d = 0; d < n_values; d++)
                for (int i = 0; i < rows; i++) ot[d][i] *= run.rescale[i];
        const KeyBlock values = read_keys(s, v, n_values, row, n_keys, wide);
        tile_multiply(true, n_values, rows, n_keys, values.rows, 1, values.stride, scores[0],
                      ATTENTION_ROWS, ot[0], ATTENTION_ROWS);
    }
    store_forward(s, tile, rows, b, h, &run, ot, o, lse, largest);
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
    if (attention_tiles_do(s)) {
        attention_tiles_forward(s, &tile, b, h, q, k, v, o, lse, largest);
        return;
    }
    (tile.n_rows <= 16   ? forward_16
     : tile.n_rows <= 32 ? forward_32
                         : forward_64)(s, &tile, b, h, q, k, v, o, lse, largest);
}

bool attention_forward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                       void *o, float *lse, float *largest) {
    if (is_longer(shape, ATTENTION_MAX_READ_HEAD)) return false;
    const int64_t n_tiles = (shape->seq * shape->group + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
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
    float qt[ATTENTION_MAX_HEAD][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* scale q, transposed */
    float dot[ATTENTION_MAX_HEAD][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* gradient of o, transposed */
    float dqt[ATTENTION_MAX_HEAD][ATTENTION_ROWS] __attribute__((aligned(64)));
    float p[ATTENTION_KEYS][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* softmax of the scores */
    float ds[ATTENTION_KEYS][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* gradient of the scores */
    float kept[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
    RowStatistics statistics;
    /* Rows as they are, padded to whole vectors: [ATTENTION_ROWS][padded head or values]. */
    float q[ATTENTION_ROWS * ATTENTION_MAX_HEAD] __attribute__((aligned(64)));
    float d_o[ATTENTION_ROWS * ATTENTION_MAX_HEAD] __attribute__((aligned(64)));
    float block[ATTENTION_KEYS * ATTENTION_MAX_HEAD] __attribute__((aligned(64))); /* of dk or dv */
    float wide[ATTENTION_KEYS * ATTENTION_MAX_HEAD]
        __attribute__((aligned(64))); /* keys or values */
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

/* sums[first + j] += sum over rows of weights[j][row] x[row] */
static void add_gradient(const HeadSums *sums, int rows, int64_t first, int n_keys,
                         float weights[][ATTENTION_ROWS], const float *x, float *block) {
    const int width = padded(sums->width);
    tile_multiply(false, n_keys, width, rows, weights[0], ATTENTION_ROWS, 1, x, width, block,
                  width);
    add_block(sums->width, n_keys, block, width, sums->rows + first * sums->stride, sums->stride);
}

/* Keys [first, first + n_keys), whose rows begin at `row` of k and v. */
VEC_INLINE void backward_block(const AttentionShape *s, const RowTile *tile, const int rows,
                               BackwardTile *t, int64_t first, int n_keys, const BackwardHead *x,
                               const BackwardPart *part) {
    const int64_t row = key_row(s, x->b, x->h, first);
    const int head = (int)s->head, n_values = (int)count_values(s);
    const KeyBlock values = read_keys(s, x->v, n_values, row, n_keys, t->wide);
    tile_multiply(false, n_keys, rows, n_values, values.rows, values.stride, 1, t->dot[0],
                  ATTENTION_ROWS, t->ds[0], ATTENTION_ROWS);
    if (s->drop.threshold) {
        draw_kept(s, tile, rows, first, n_keys, t->kept);
        multiply_kept(rows, n_keys, t->kept, t->ds);
    }
    const KeyBlock keys =
        read_keys(s, x->k, head, row, n_keys, t->wide); /* takes the place of the values */
    tile_multiply(false, n_keys, rows, head, keys.rows, keys.stride, 1, t->qt[0], ATTENTION_ROWS,
                  t->p[0], ATTENTION_ROWS);
    if (s->softcap != 0) {
        cap_scores(s, rows, n_keys, t->p);
        scale_capped(s, rows, n_keys, &t->statistics, t->p, t->ds);
    }
    mask_scores(s, tile, first, n_keys, t->p);
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            t->p[j][i] = weight_of(t->p[j][i] - t->statistics.lse[i]);
            t->ds[j][i] = t->p[j][i] * (t->ds[j][i] - t->statistics.delta[i]);
        }
    if (part->dq)
        tile_multiply(true, head, rows, n_keys, keys.rows, 1, keys.stride, t->ds[0], ATTENTION_ROWS,
                      t->dqt[0], ATTENTION_ROWS);
    if (!part->dkv) return;
    if (s->drop.threshold) multiply_kept(rows, n_keys, t->kept, t->p);
    add_gradient(&x->sums.dv, rows, first, n_keys, t->p, t->d_o, t->block);
    /* t->q carries the scale, so dk needs none. */
    add_gradient(&x->sums.dk, rows, first, n_keys, t->ds, t->q, t->block);
}

/* In place, or in `sums`, and stored by close_keys. */
static HeadSums place_sums(const AttentionShape *s, int64_t b, int64_t h, int64_t width, void *out,
                           float *sums) {
    const bool low = dtype_is_low(s->dtype);
    return (HeadSums){.rows = low ? sums : (float *)out + key_row(s, b, h, 0) * width,
                      .stride = low ? width : s->kv_heads * width,
                      .width = width};
}

/* The head of a pair of batch row and head, with its part of the workspace: of dk, then of dv. */
static BackwardHead open_head(const BackwardHead *of, int64_t pair, void *dk, void *dv) {
    const AttentionShape *s = of->shape;
    const int64_t n_values = count_values(s), keys = count_keys(s);
    BackwardHead head = *of;
    head.b = pair / s->kv_heads, head.h = pair % s->kv_heads;
    float *own = NULL, *own_values = NULL;
    if (dtype_is_low(s->dtype)) {
        own = of->workspace + pair * keys * (s->head + n_values);
        own_values = own + keys * s->head;
    }
    head.sums.dk = place_sums(s, head.b, head.h, s->head, dk, own);
    head.sums.dv = place_sums(s, head.b, head.h, n_values, dv, own_values);
    return head;
}

static void clear_keys(const KeySums *sums, int64_t first, int64_t end) {
    for (int64_t key = first; key < end; key++) {
        memset(sums->dk.rows + key * sums->dk.stride, 0, (size_t)sums->dk.width * sizeof(float));
        memset(sums->dv.rows + key * sums->dv.stride, 0, (size_t)sums->dv.width * sizeof(float));
    }
}

static void store_sums(const BackwardHead *x, const HeadSums *sums, int64_t first, int64_t end,
                       void *out) {
    for (int64_t key = first; key < end; key++)
        vec_low_store(x->shape->dtype, sums->rows + key * sums->stride,
                      (uint16_t *)out + key_row(x->shape, x->b, x->h, key) * sums->width,
                      sums->width);
}

static void close_keys(const BackwardHead *x, int64_t first, int64_t end, void *dk, void *dv) {
    if (!dtype_is_low(x->shape->dtype)) return;
    store_sums(x, &x->sums.dk, first, end, dk);
    store_sums(x, &x->sums.dv, first, end, dv);
}

/* One tile of at most `rows` query rows, as forward_rows. */
VEC_INLINE void backward_rows(const BackwardHead *x, const RowTile *tile, const int rows,
                              const BackwardPart *part, BackwardTile *t) {
    const AttentionShape *s = x->shape;
    const int64_t b = x->b, h = x->h;
    float scales[ATTENTION_ROWS];
    for (int i = 0; i < rows; i++) scales[i] = s->scale;
    load_transposed(s, tile, rows, b, h, x->q, s->head, s->scale, t->qt);
    load_transposed(s, tile, rows, b, h, x->d_o, count_values(s), 1.0f, t->dot);
    load_rows(s, tile, rows, b, h, x->q, s->head, s->scale, t->q);
    load_rows(s, tile, rows, b, h, x->d_o, count_values(s), 1.0f, t->d_o);
    load_statistics(s, tile, rows, b, h, x->o, x->d_o, x->lse, &t->statistics);
    memset(t->dqt, 0, (size_t)s->head * sizeof t->dqt[0]);
    const int64_t end = part_end(part, tile);
    for (int64_t first = part_first(part, tile), next; first < end; first = next) {
        next = block_end(first, end);
        const int n_keys = (int)(next - first);
        backward_block(s, tile, rows, t, first, n_keys, x, part);
    }
    if (part->dq) store_transposed(s, tile, b, h, t->dqt, scales, x->dq, s->head);
}

#define BACKWARD_ROWS(rows)                                                                        \
    static void backward_##rows(const BackwardHead *x, const RowTile *tile,                        \
                                const BackwardPart *part, BackwardTile *t) {                       \
        backward_rows(x, tile, rows, part, t);                                                     \
    }
BACKWARD_ROWS(16)
BACKWARD_ROWS(32)
BACKWARD_ROWS(64)

/* Not inline: its caller's frame is the stack of attention_tiles_backward, too. */
static __attribute__((noinline)) void
backward_by_vectors(const BackwardHead *x, const RowTile *tile, const BackwardPart *part) {
    BackwardTile t;
    (tile->n_rows <= 16   ? backward_16
     : tile->n_rows <= 32 ? backward_32
                          : backward_64)(x, tile, part, &t);
}

static void backward_tile(const BackwardHead *x, int64_t index, const BackwardPart *part) {
    const RowTile tile = make_row_tile(x->shape, x->b, x->h, index);
    if (part_first(part, &tile) >= part_end(part, &tile) && !part->dq) return;
    (attention_tiles_do(x->shape) ? attention_tiles_backward : backward_by_vectors)(x, &tile, part);
}

static int64_t count_tiles(const AttentionShape *s) {
    return (s->seq * s->group + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
}

/* A task for each head: every score is computed once. */
static void backward_heads(const BackwardHead *of, void *dk, void *dv) {
    const AttentionShape *s = of->shape;
    const int64_t n_pairs = s->batch * s->kv_heads, keys = count_keys(s);
    const BackwardPart all = {.dq = true, .dkv = true, .end = keys};
#pragma omp parallel for schedule(dynamic, 1) if (n_pairs > 1)
    for (int64_t pair = 0; pair < n_pairs; pair++) {
        const BackwardHead head = open_head(of, pair, dk, dv);
        clear_keys(&head.sums, 0, keys);
        for (int64_t index = 0; index < count_tiles(s); index++) backward_tile(&head, index, &all);
        close_keys(&head, 0, keys, dk, dv);
    }
}

/* More threads than heads: a task for each tile of queries, then for some keys of each head. Scores
 * are computed twice, which are two fifths of the products; the sums are the same, in the same
 * order. */
static void backward_parts(const BackwardHead *of, void *dk, void *dv) {
    enum { PART = 2 * ATTENTION_KEYS };
    const AttentionShape *s = of->shape;
    const int64_t n_pairs = s->batch * s->kv_heads, keys = count_keys(s);
    const int64_t n_tiles = count_tiles(s), n_parts = (keys + PART - 1) / PART;
    const BackwardPart queries = {.dq = true, .end = keys};
#pragma omp parallel
    {
        /* The later a tile and the earlier a key, the more it takes if causal. */
#pragma omp for schedule(dynamic, 1) nowait
        for (int64_t task = 0; task < n_pairs * n_tiles; task++) {
            const BackwardHead head = open_head(of, task % n_pairs, dk, dv);
            backward_tile(&head, n_tiles - 1 - task / n_pairs, &queries);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < n_pairs * n_parts; task++) {
            const BackwardHead head = open_head(of, task % n_pairs, dk, dv);
            const int64_t first = task / n_pairs * PART;
            const BackwardPart part = {
                .dkv = true, .first = first, .end = first + PART < keys ? first + PART : keys};
            clear_keys(&head.sums, first, part.end);
            for (int64_t index = 0; index < n_tiles; index++) backward_tile(&head, index, &part);
            close_keys(&head, first, part.end, dk, dv);
        }
    }
}

bool attention_backward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                        const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                        void *dv, float *workspace) {
    if (is_longer(shape, ATTENTION_MAX_HEAD)) return false;
    const BackwardHead of = {.shape = shape,
                             .q = q,
                             .k = k,
                             .v = v,
                             .o = o,
                             .d_o = d_o,
                             .lse = lse,
                             .dq = dq,
                             .workspace = workspace};
    const int n_threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const bool few = 2 * shape->batch * shape->kv_heads <= n_threads && count_tiles(shape) > 2;
    (few ? backward_parts : backward_heads)(&of, dk, dv);
    return true;
}
