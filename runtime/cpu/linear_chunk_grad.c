/* The gradient by chunks, which stores no states: backwards with the state's gradient D, which has
 * all that is of pairs, what was written and what errors get; then forwards with the state S, for
 * what was read of the state before a chunk.
 *
 * A decay's gradient at t is the sum over all i >= t > j of what i reads of j. Of a chunk's pairs
 * that is T_t, a sum of rows less columns in f64 from one matrix of f32; the rest is, as position
 * by position, the sum over all later positions of what they read of states before their chunk,
 * less what states behind theirs have of them. ddecay is in turn the chunk's own part of either
 * sum, from both sweeps, and at last the whole.
 */
#include "runtime/cpu/linear_chunk_parts.h" /* first: it widens the vectors of this file */

typedef struct Backward {
    Chunk c;
    const LinearChunkRun *run;
    Rows q, k, qt, kt; /* the last two: [key_width, CHUNK] */
    Rows u, dout, du;  /* of a head: what was written, gradients; du also those of the errors */
    Rows turned;       /* one of these, [width, CHUNK] */
    Rows product, dqt, dkt;
    Pairs scores, products, weights, mixed, dpairs, dscores, dproducts;
    Decays decays;
    double parts[CHUNK]; /* of the decays' gradients */
    float states[MOST_STATES] __attribute__((aligned(64)));
} Backward;

static void clear_rows(const Chunk *c, Rows *x) {
    memset(x, 0, (size_t)(c->key_width * CHUNK) * sizeof x->at[0]);
}

/* to [seq, keys] (+)= rows */
static void add_rows(const Chunk *c, bool add, const Rows *rows, float *to) {
    for (int t = 0; t < c->n; t++) {
        const float *from = rows->at + t * c->key_width;
        float *row = to + (c->first + t) * c->keys;
        if (!add) memcpy(row, from, (size_t)c->keys * sizeof *row);
        for (int i = 0; add && i < c->keys; i++) row[i] += from[i];
    }
}

static void load_written(Backward *b, int head) {
    const Chunk *c = &b->c;
    chunk_load_values(c, head, c->in->v, b->u.at);
    if (c->in->write) chunk_scale_values(c, 1, b->decays.write, b->u.at);
}

static void turn_values(Backward *b, const Rows *x) {
    tile_transpose(b->c.length, b->c.width, x->at, b->c.width, b->turned.at, CHUNK);
}

/* sums += dpairs; parts += what pairs give to the decays between them. */
static void add_pairs(Backward *b, const Pairs *of, Pairs *sums) {
    const Chunk *c = &b->c;
    for (int i = 0; i < c->length; i++) {
        const float *d = b->dpairs.at[i], *x = of->at[i];
        float *to = sums->at[i];
        double row = 0;
#pragma omp simd reduction(+ : row)
        for (int j = 0; j < i; j++) {
            const double product = (double)(d[j] * x[j]);
            row += product;
            b->parts[j] -= product;
        }
        for (int j = 0; j <= i; j++) to[j] += d[j];
        b->parts[i] += row;
    }
}

/* Of state `turned`', weighed by factor shares[t] of position t: added to `sums` [keys, CHUNK], and
 * its product with `along` to the parts, of `sign`. */
static void add_keys(Backward *b, const float *state, float factor, const float *shares,
                     const Rows *along, double sign, Rows *sums) {
    const Chunk *c = &b->c;
    float weights[CHUNK], products[CHUNK] = {0};
    for (int t = 0; t < c->length; t++) weights[t] = factor * shares[t];
    tile_multiply(false, c->keys, c->length, c->width, state, c->width, 1, b->turned.at, CHUNK,
                  b->product.at, CHUNK);
    for (int i = 0; i < c->keys; i++) {
        const float *from = b->product.at + i * CHUNK, *of = along->at + i * CHUNK;
        float *to = sums->at + i * CHUNK;
        for (int t = 0; t < c->length; t++) {
            const float x = from[t] * weights[t];
            to[t] += x;
            products[t] += x * of[t];
        }
    }
    for (int t = 0; t < c->length; t++) b->parts[t] += sign * (double)products[t];
}

/* du_j = x_j - sum over i > j of L_ij b_i du_i, from the last to the first, each rounded as it is
 * stored before it is used. b->du: x, becomes du; de: b du */
static void solve_gradients(Backward *b, float *de) {
    const Chunk *c = &b->c;
    const int width = c->width;
    chunk_weigh(c, -1, true, &b->weights, &b->products, &b->mixed);
    for (int j = c->length - 1; j >= 0; j--) {
        const int block = j / BLOCK * BLOCK, end = block + BLOCK;
        float *du = b->du.at + j * width;
        if (j == end - 1 && end < c->length) {
            tile_multiply(true, BLOCK, width, c->length - end, &b->mixed.at[end][block], 1, CHUNK,
                          de + end * width, width, b->du.at + block * width, width);
        }
        if (j < end - 1) {
            tile_multiply(true, 1, width, end - 1 - j, &b->mixed.at[j + 1][j], 1, CHUNK,
                          de + (j + 1) * width, width, du, width);
        }
        chunk_round(c->s->dtype, du, width);
        for (int i = 0; i < width; i++) de[j * width + i] = b->decays.write[j] * du[i];
    }
}

/* The parts' sums over later positions of the chunk, up to a decay to nothing, are added to what
 * ddecay has of them. */
static void add_decays(Backward *b, int head, bool first) {
    const Chunk *c = &b->c;
    double sum = 0;
    for (int t = c->n - 1; t >= 0; t--) {
        float *to = b->run->ddecay + chunk_head_row(c, head, t);
        sum += b->parts[t];
        if (b->decays.nothing[t]) sum = 0;
        *to = (float)(first ? sum : (double)*to + sum);
    }
}

static void sum_decays(Backward *b, int head) {
    Chunk *c = &b->c;
    double later = 0;
    const int64_t last = (c->s->seq - 1) / CHUNK * CHUNK;
    for (int64_t first = last; first >= 0; first -= CHUNK) {
        double own = 0;
        chunk_begin(c, first, c->s->seq);
        for (int t = c->n - 1; t >= 0; t--) {
            const int64_t at = chunk_head_row(c, head, t);
            if (vmath_exp(c->in->decay[at]) == 0) later = 0;
            own = (double)b->run->ddecay[at];
            b->run->ddecay[at] = (float)(own + later);
        }
        later += own;
    }
}

/* zero: D is zero so far; it is needed for chunks before this one if `on`. */
static void reverse_chunk(Backward *b, int head, float *state, bool zero, bool on) {
    const Chunk *c = &b->c;
    const LinearAttentionShape *s = c->s;
    const bool write = c->in->write != NULL;
    const int width = c->width;
    Decays *d = &b->decays;
    float *de = b->product.at;
    linear_chunk_decays(c, head, d);
    chunk_weights(c, d, &b->weights);
    memset(b->parts, 0, sizeof b->parts);
    load_written(b, head);
    chunk_load_values(c, head, b->run->d_o, b->dout.at);
    turn_values(b, &b->u);
    chunk_pairs(c, width, b->dout.at, b->turned.at, &b->dpairs);
    chunk_weigh(c, s->scale, false, &b->weights, &b->dpairs, &b->dpairs);
    add_pairs(b, &b->scores, &b->dscores);

    if (!zero) {
        tile_multiply(false, c->length, width, c->keys, b->k.at, c->key_width, 1, state, width,
                      b->du.at, width);
        chunk_scale_values(c, 1, d->end, b->du.at);
    }
    chunk_weigh(c, s->scale, false, &b->weights, &b->scores, &b->mixed);
    chunk_read_later(c, !zero, width, &b->mixed, b->dout.at, b->du.at);
    if (write) {
        solve_gradients(b, de);
        chunk_pairs(c, width, de, b->turned.at, &b->dpairs);
        chunk_weigh(c, -1, true, &b->weights, &b->dpairs, &b->dpairs);
        add_pairs(b, &b->products, &b->dproducts);
    }
    chunk_store_values(c, head, b->du.at, b->run->du);
    if (write) memcpy(b->du.at, de, (size_t)(c->length * width) * sizeof *de);
    if (!zero) add_keys(b, state, 1, d->end, &b->kt, -1, &b->dkt);
    add_decays(b, head, true);
    if (!on) return;
    chunk_decay_state(c, state, d->carry);
    chunk_scale_values(c, s->scale, d->start, b->dout.at);
    chunk_add_state(c, state, b->q.at, b->dout.at);
    if (!write) return;
    chunk_scale_values(c, -1, d->start, b->du.at);
    chunk_add_state(c, state, b->k.at, b->du.at);
}

static void load_keys(Backward *b) {
    const Chunk *c = &b->c;
    chunk_load_keys(c, c->in->q, b->q.at);
    chunk_load_keys(c, c->in->k, b->k.at);
    tile_transpose(c->length, c->key_width, b->k.at, c->key_width, b->kt.at, CHUNK);
}

static void reverse_heads(Backward *b, int first, int heads) {
    Chunk *c = &b->c;
    const bool write = c->in->write != NULL;
    const int width = c->key_width, size = c->keys * c->width;
    const int64_t last = (c->s->seq - 1) / CHUNK * CHUNK;
    const bool add = first > b->run->head;
    memset(b->states, 0, (size_t)(heads * size) * sizeof b->states[0]);
    for (int64_t at = last; at >= 0; at -= CHUNK) {
        chunk_begin(c, at, c->s->seq);
        load_keys(b);
        chunk_pairs(c, width, b->q.at, b->kt.at, &b->scores);
        if (write) chunk_pairs(c, width, b->k.at, b->kt.at, &b->products);
        memset(&b->dscores, 0, sizeof b->dscores);
        if (write) memset(&b->dproducts, 0, sizeof b->dproducts);
        clear_rows(c, &b->dkt);
        for (int h = 0; h < heads; h++)
            reverse_chunk(b, first + h, b->states + h * size, at == last, at > 0);
        chunk_read_earlier(c, false, width, &b->dscores, b->k.at, b->product.at);
        add_rows(c, add, &b->product, b->run->dq);
        tile_transpose(width, c->length, b->dkt.at, CHUNK, b->product.at, width);
        chunk_read_later(c, true, width, &b->dscores, b->q.at, b->product.at);
        if (write) {
            chunk_read_later(c, true, width, &b->dproducts, b->k.at, b->product.at);
            chunk_read_earlier(c, true, width, &b->dproducts, b->k.at, b->product.at);
        }
        add_rows(c, add, &b->product, b->run->dk);
    }
}

/* read: the state is not zero; on: it is needed for later chunks. */
static void again_chunk(Backward *b, int head, float *state, bool read, bool on) {
    const Chunk *c = &b->c;
    const Decays *d = &b->decays;
    linear_chunk_decays(c, head, &b->decays);
    if (read) {
        memset(b->parts, 0, sizeof b->parts);
        chunk_load_values(c, head, b->run->d_o, b->dout.at);
        turn_values(b, &b->dout);
        add_keys(b, state, c->s->scale, d->start, &b->qt, 1, &b->dqt);
        if (c->in->write) {
            chunk_load_values(c, head, b->run->du, b->du.at);
            chunk_scale_values(c, 1, d->write, b->du.at);
            turn_values(b, &b->du);
            add_keys(b, state, -1, d->start, &b->kt, 1, &b->dkt);
        }
        add_decays(b, head, false);
    }
    if (!on) return;
    load_written(b, head);
    chunk_scale_values(c, 1, d->end, b->u.at);
    chunk_decay_state(c, state, d->carry);
    chunk_add_state(c, state, b->k.at, b->u.at);
}

static void again_heads(Backward *b, int first, int heads) {
    Chunk *c = &b->c;
    const int size = c->keys * c->width;
    memset(b->states, 0, (size_t)(heads * size) * sizeof b->states[0]);
    for (int64_t at = 0; at < c->s->seq; at += CHUNK) {
        const bool read = at > 0;
        chunk_begin(c, at, c->s->seq);
        load_keys(b);
        tile_transpose(c->length, c->key_width, b->q.at, c->key_width, b->qt.at, CHUNK);
        clear_rows(c, &b->dqt);
        clear_rows(c, &b->dkt);
        for (int h = 0; h < heads; h++)
            again_chunk(b, first + h, b->states + h * size, read, at + CHUNK < c->s->seq);
        if (!read) continue;
        tile_transpose(c->key_width, c->length, b->dqt.at, CHUNK, b->product.at, c->key_width);
        add_rows(c, true, &b->product, b->run->dq);
        if (!c->in->write) continue;
        tile_transpose(c->key_width, c->length, b->dkt.at, CHUNK, b->product.at, c->key_width);
        add_rows(c, true, &b->product, b->run->dk);
    }
}

void linear_chunk_backward(const LinearAttentionShape *s, const LinearAttentionInputs *in,
                           const LinearChunkRun *run) {
    Backward b;
    b.c = chunk_of_row(s, in, run->batch, run->group);
    b.run = run;
    for (int64_t head = run->head; head < run->end;) {
        const int heads = chunk_heads(&b.c, run->end - head);
        reverse_heads(&b, (int)head, heads);
        again_heads(&b, (int)head, heads);
        for (int h = 0; h < heads; h++) sum_decays(&b, (int)head + h);
        head += heads;
    }
}
