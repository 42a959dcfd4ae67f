/* Lanes of vectors are query rows here, too, so scores lie [key][row], and nothing of them moves
 * between lanes: rounded, they are the rows of A in products with queries and gradients (dV = P^T
 * dO, dK = dS^T Q), and two keys' side by side the pairs of B in those with values and keys, which
 * are transposed when they are packed (O^T = V^T P^T, dQ^T = K^T dS^T). What serves all blocks of
 * keys, queries and their gradients, is packed once.
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/attention_tiles.h"

#include "runtime/cpu/tile_pack.h"

enum { MOST = ATTENTION_MAX_HEAD, LEAST_ROWS = TILE_BLOCK, LEAST_HEAD = 16 };

bool attention_tiles_do(const AttentionShape *s) {
    return s->dtype == DTYPE_BF16 && tiles_ready() && !is_longer(s, MOST) &&
           (s->pieces || s->seq * s->group >= LEAST_ROWS) && s->head >= LEAST_HEAD;
}

static int count_blocks(int64_t n) {
    return (int)((n + TILE_BLOCK - 1) / TILE_BLOCK);
}

/* All of an operand, of any extent: [blocks][steps][TILE_STEP]. */
static void pack_blocks(const TileSource *all, bool as_pairs, uint16_t *out) {
    const int64_t packed = (int64_t)count_blocks(all->k) * TILE_STEP;
    for (int i = 0; i < all->extent; i += TILE_BLOCK, out += packed) {
        TileSource part = *all;
        part.x = vec_at(all->x, all->dtype, all->along_k ? i * all->stride : i);
        part.extent = all->extent - i < TILE_BLOCK ? all->extent - i : TILE_BLOCK;
        tile_pack(&part, as_pairs, out);
    }
}

/* c [32 down][32 across] = or += (`add`) A B. */
static void multiply_blocks(int down, int across, int steps, const uint16_t *a, const uint16_t *b,
                            bool add, float *c, int64_t stride) {
    const int64_t packed = (int64_t)steps * TILE_STEP;
    for (int i = 0; i < down; i++)
        for (int j = 0; j < across; j++) {
            const TileTerm term = {a + i * packed, b + j * packed};
            tiles_multiply(1, &term, steps, add, c + (i * stride + j) * TILE_BLOCK, stride);
        }
}

/* Rows of q or of the gradient of o, one after the other; those past the end are zero. */
static void copy_rows(const AttentionShape *s, const RowTile *tile, int rows, int64_t b, int64_t h,
                      const void *x, int64_t width, uint16_t *out) {
    const size_t bytes = (size_t)width * sizeof *out;
    for (int i = 0; i < rows; i++, out += width) {
        if (i >= tile->n_rows)
            memset(out, 0, bytes);
        else
            memcpy(out, vec_at(x, s->dtype, row_place(s, b, h, tile->first + i) * width), bytes);
    }
}

/* Such rows as B: the product goes along their width, or along the rows. */
static void pack_rows(const uint16_t *x, int64_t width, int rows, bool along_width, uint16_t *out) {
    const TileSource source = {.x = x,
                               .dtype = DTYPE_BF16,
                               .stride = width,
                               .along_k = along_width,
                               .extent = along_width ? rows : (int)width,
                               .k = along_width ? width : rows};
    pack_blocks(&source, true, out);
}

/* Keys or values, the first in `row`, as A: the product goes along their width, or along keys. */
static void pack_keys(const AttentionShape *s, const void *x, int64_t width, int64_t row,
                      int n_keys, bool along_width, uint16_t *out) {
    const TileSource source = {.x = vec_at(x, s->dtype, row * width),
                               .dtype = s->dtype,
                               .stride = s->kv_heads * width,
                               .along_k = along_width,
                               .extent = along_width ? n_keys : (int)width,
                               .k = along_width ? width : n_keys};
    pack_blocks(&source, false, out);
}

/* Numbers of keys and rows, rounded: as A with the rows along the product, or as B with the keys.
 */
static void pack_scores(float x[][ATTENTION_ROWS], int rows, int n_keys, bool along_rows,
                        uint16_t *out) {
    const TileSource source = {.x = x[0],
                               .dtype = DTYPE_F32,
                               .rounded = true,
                               .stride = ATTENTION_ROWS,
                               .along_k = along_rows,
                               .extent = along_rows ? n_keys : rows,
                               .k = along_rows ? rows : n_keys};
    pack_blocks(&source, !along_rows, out);
}

VEC_INLINE void scale_scores(float scale, const int rows, int n_keys,
                             float scores[][ATTENTION_ROWS]) {
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) scores[j][i] *= scale;
}

typedef struct ForwardWork {
    uint16_t rows[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t q[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t keys[ATTENTION_KEYS * MOST] __attribute__((aligned(64))); /* then the values */
    uint16_t weights[ATTENTION_KEYS * ATTENTION_ROWS] __attribute__((aligned(64)));
    float scores[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
    float kept[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
    float ot[MOST][ATTENTION_ROWS] __attribute__((aligned(64)));
    RunningSoftmax run;
} ForwardWork;

/* `rows`: 32 or ATTENTION_ROWS, a constant at every call. */
VEC_INLINE void forward_rows(const AttentionShape *s, const RowTile *tile, const int rows,
                             int64_t b, int64_t h, const void *q, const void *k, const void *v,
                             void *o, float *lse, float *largest) {
    ForwardWork w;
    const int64_t head = s->head, n_values = count_values(s);
    const int across = rows / TILE_BLOCK, down = count_blocks(n_values);
    copy_rows(s, tile, rows, b, h, q, head, w.rows);
    pack_rows(w.rows, head, rows, true, w.q);
    memset(w.ot, 0, (size_t)(down * TILE_BLOCK) * sizeof w.ot[0]);
    open_softmax(rows, &w.run);
    for (int64_t first = tile->first_key; first < tile->end_key; first += ATTENTION_KEYS) {
        const int n_keys =
            tile->end_key - first < ATTENTION_KEYS ? (int)(tile->end_key - first) : ATTENTION_KEYS;
        const int64_t row = key_row(s, b, h, first);
        pack_keys(s, k, head, row, n_keys, true, w.keys);
        multiply_blocks(count_blocks(n_keys), across, count_blocks(head), w.keys, w.q, false,
                        w.scores[0], ATTENTION_ROWS);
        scale_scores(s->scale, rows, n_keys, w.scores);
        if (s->softcap != 0) cap_scores(s, rows, n_keys, w.scores);
        mask_scores(s, tile, first, n_keys, w.scores);
        softmax_add_block(&w.run, rows, n_keys, w.scores);
        if (s->drop.threshold) {
            draw_kept(s, tile, rows, first, n_keys, w.kept);
            multiply_kept(rows, n_keys, w.kept, w.scores);
        }
        pack_scores(w.scores, rows, n_keys, false, w.weights);
        if (first > tile->first_key)
            for (int d = 0; d < n_values; d++)
                for (int i = 0; i < rows; i++) w.ot[d][i] *= w.run.rescale[i];
        pack_keys(s, v, n_values, row, n_keys, false, w.keys);
        multiply_blocks(down, across, count_blocks(n_keys), w.keys, w.weights, true, w.ot[0],
                        ATTENTION_ROWS);
    }
    store_forward(s, tile, rows, b, h, &w.run, w.ot, o, lse, largest);
}

static void forward_32(const AttentionShape *s, const RowTile *tile, int64_t b, int64_t h,
                       const void *q, const void *k, const void *v, void *o, float *lse,
                       float *largest) {
    forward_rows(s, tile, 32, b, h, q, k, v, o, lse, largest);
}

static void forward_64(const AttentionShape *s, const RowTile *tile, int64_t b, int64_t h,
                       const void *q, const void *k, const void *v, void *o, float *lse,
                       float *largest) {
    forward_rows(s, tile, ATTENTION_ROWS, b, h, q, k, v, o, lse, largest);
}

void attention_tiles_forward(const AttentionShape *s, const RowTile *tile, int64_t b, int64_t h,
                             const void *q, const void *k, const void *v, void *o, float *lse,
                             float *largest) {
    tiles_open();
    (tile->n_rows <= 32 ? forward_32 : forward_64)(s, tile, b, h, q, k, v, o, lse, largest);
    tiles_close();
}

typedef struct BackwardWork {
    uint16_t rows[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    /* Of B: along their width, for scores and their gradient; along the rows, for dk and dv. */
    uint16_t q[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t q_rows[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t d_o[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t d_o_rows[ATTENTION_ROWS * MOST] __attribute__((aligned(64)));
    uint16_t keys[ATTENTION_KEYS * MOST] __attribute__((aligned(64))); /* and values */
    uint16_t weights[ATTENTION_KEYS * ATTENTION_ROWS] __attribute__((aligned(64)));
    float p[ATTENTION_KEYS][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* softmax of the scores */
    float ds[ATTENTION_KEYS][ATTENTION_ROWS]
        __attribute__((aligned(64))); /* gradient of the scores */
    float kept[ATTENTION_KEYS][ATTENTION_ROWS] __attribute__((aligned(64)));
    float dqt[MOST][ATTENTION_ROWS] __attribute__((aligned(64)));
    float block[ATTENTION_KEYS * MOST] __attribute__((aligned(64))); /* of dk or dv */
    RowStatistics statistics;
} BackwardWork;

/* sums[first + j] += sum over rows of weights[j][row] x[row] */
static void add_gradient(const HeadSums *sums, int rows, int64_t first, int n_keys,
                         const uint16_t *weights, const uint16_t *x, float *block) {
    const int down = count_blocks(n_keys), across = count_blocks(sums->width);
    const int64_t width = (int64_t)across * TILE_BLOCK;
    float *to = sums->rows + first * sums->stride;
    if (n_keys % TILE_BLOCK == 0 && sums->width == width) {
        multiply_blocks(down, across, rows / TILE_BLOCK, weights, x, true, to, sums->stride);
        return;
    }
    multiply_blocks(down, across, rows / TILE_BLOCK, weights, x, false, block, width);
    add_block(sums->width, n_keys, block, width, to, sums->stride);
}

/* p becomes the softmax, ds the gradient of what the scale multiplies. */
VEC_INLINE void differentiate_scores(const AttentionShape *s, const RowTile *tile, const int rows,
                                     int64_t first, int n_keys, BackwardWork *w) {
    const RowStatistics *t = &w->statistics;
    scale_scores(s->scale, rows, n_keys, w->p);
    if (s->drop.threshold) {
        draw_kept(s, tile, rows, first, n_keys, w->kept);
        multiply_kept(rows, n_keys, w->kept, w->ds);
    }
    if (s->softcap != 0) {
        cap_scores(s, rows, n_keys, w->p);
        scale_capped(s, rows, n_keys, t, w->p, w->ds);
    }
    mask_scores(s, tile, first, n_keys, w->p);
    for (int j = 0; j < n_keys; j++)
        for (int i = 0; i < rows; i++) {
            w->p[j][i] = weight_of(w->p[j][i] - t->lse[i]);
            w->ds[j][i] = w->p[j][i] * (w->ds[j][i] - t->delta[i]) * s->scale;
        }
    if (s->drop.threshold) multiply_kept(rows, n_keys, w->kept, w->p);
}

VEC_INLINE void backward_block(const BackwardHead *x, const RowTile *tile, const int rows,
                               int64_t first, int n_keys, const BackwardPart *part,
                               BackwardWork *w) {
    const AttentionShape *s = x->shape;
    const int64_t head = s->head, n_values = count_values(s);
    const int64_t row = key_row(s, x->b, x->h, first);
    const int across = rows / TILE_BLOCK, key_blocks = count_blocks(n_keys);
    pack_keys(s, x->v, n_values, row, n_keys, true, w->keys);
    multiply_blocks(key_blocks, across, count_blocks(n_values), w->keys, w->d_o, false, w->ds[0],
                    ATTENTION_ROWS);
    pack_keys(s, x->k, head, row, n_keys, true, w->keys);
    multiply_blocks(key_blocks, across, count_blocks(head), w->keys, w->q, false, w->p[0],
                    ATTENTION_ROWS);
    differentiate_scores(s, tile, rows, first, n_keys, w);
    if (part->dkv) {
        pack_scores(w->p, rows, n_keys, true, w->weights);
        add_gradient(&x->sums.dv, rows, first, n_keys, w->weights, w->d_o_rows, w->block);
        pack_scores(w->ds, rows, n_keys, true, w->weights);
        add_gradient(&x->sums.dk, rows, first, n_keys, w->weights, w->q_rows, w->block);
    }
    if (!part->dq) return;
    pack_scores(w->ds, rows, n_keys, false, w->weights);
    pack_keys(s, x->k, head, row, n_keys, false, w->keys);
    multiply_blocks(count_blocks(head), across, key_blocks, w->keys, w->weights, true, w->dqt[0],
                    ATTENTION_ROWS);
}

VEC_INLINE void backward_rows(const BackwardHead *x, const RowTile *tile, const int rows,
                              const BackwardPart *part) {
    BackwardWork w;
    const AttentionShape *s = x->shape;
    const int64_t head = s->head, n_values = count_values(s);
    float ones[ATTENTION_ROWS];
    for (int i = 0; i < rows; i++) ones[i] = 1;
    copy_rows(s, tile, rows, x->b, x->h, x->q, head, w.rows);
    pack_rows(w.rows, head, rows, true, w.q);
    pack_rows(w.rows, head, rows, false, w.q_rows);
    copy_rows(s, tile, rows, x->b, x->h, x->d_o, n_values, w.rows);
    pack_rows(w.rows, n_values, rows, true, w.d_o);
    pack_rows(w.rows, n_values, rows, false, w.d_o_rows);
    load_statistics(s, tile, rows, x->b, x->h, x->o, x->d_o, x->lse, &w.statistics);
    memset(w.dqt, 0, (size_t)(count_blocks(head) * TILE_BLOCK) * sizeof w.dqt[0]);
    const int64_t end = part_end(part, tile);
    for (int64_t first = part_first(part, tile), next; first < end; first = next) {
        next = block_end(first, end);
        const int n_keys = (int)(next - first);
        backward_block(x, tile, rows, first, n_keys, part, &w);
    }
    if (part->dq) store_transposed(s, tile, x->b, x->h, w.dqt, ones, x->dq, head);
}

static void backward_32(const BackwardHead *x, const RowTile *tile, const BackwardPart *part) {
    backward_rows(x, tile, 32, part);
}

static void backward_64(const BackwardHead *x, const RowTile *tile, const BackwardPart *part) {
    backward_rows(x, tile, ATTENTION_ROWS, part);
}

void attention_tiles_backward(const BackwardHead *x, const RowTile *tile,
                              const BackwardPart *part) {
    tiles_open();
    (tile->n_rows <= 32 ? backward_32 : backward_64)(x, tile, part);
    tiles_close();
}
