#include "runtime/cpu/linear_chunk_parts.h" /* first: it widens the vectors of this file */

#include <omp.h>

/* States of fewer numbers stay in the first-level cache, and a chunk's pairs cost more than they
 * save (tests/bench/RESULTS.md, "Layers with a state"). */
bool linear_chunk_pays(const LinearAttentionShape *s) {
    enum { LEAST_STATE = 8192 };
    return !s->by_keys && s->seq >= BLOCK && s->keys * s->values >= LEAST_STATE;
}

void linear_chunk_decays(const Chunk *c, int head, Decays *d) {
    const LinearAttentionStates *kept = c->in->states;
    float logs[CHUNK];
    double sum = 0;
    int last = -1;
    for (int t = 0; t < c->length; t++) {
        const int64_t at = chunk_head_row(c, head, t);
        logs[t] = t < c->n ? c->in->decay[at] : 0;
        d->write[t] = t >= c->n ? 0 : c->in->write ? c->in->write[at] : 1;
    }
    for (int t = 0; t < c->length; t++) d->start[t] = vmath_exp(logs[t]);
    for (int t = 0; t < c->length; t++) {
        d->nothing[t] = d->start[t] == 0;
        if (kept && t < c->n) {
            d->nothing[t] |= kept->places[c->batch * c->s->seq + c->first + t] == 0;
        }
        if (d->nothing[t]) {
            last = t;
        } else {
            sum += (double)logs[t];
        }
        d->sum[t] = sum;
        d->begin[t] = last < 0 ? 0 : last;
        d->start[t] = last < 0 ? (float)sum : -INFINITY;
        d->end[t] = -INFINITY;
    }
    for (int t = last < 0 ? 0 : last; t < c->length; t++) d->end[t] = (float)(sum - d->sum[t]);
    for (int t = 0; t < c->length; t++) {
        d->start[t] = chunk_share(d->start[t]);
        d->end[t] = chunk_share(d->end[t]);
    }
    d->carry = d->start[c->length - 1];
}

/* What some heads need on their way along a sequence. */
typedef struct Forward {
    Chunk c;
    Rows q, k, kt; /* kt: [key_width, CHUNK] */
    Pairs scores, products, weights, mixed;
    Rows v, u, o; /* of a head; v becomes the errors */
    Decays decays;
    float states[MOST_STATES] __attribute__((aligned(64))); /* [heads][keys][width] */
} Forward;

/* e_i = r_i - sum over j < i of L_ij b_j e_j, L the weighed products of keys: by blocks, then row
 * by row, each rounded as it is stored before it is used. f->v: r, becomes e; f->u: b e */
static void solve_errors(Forward *f) {
    const Chunk *c = &f->c;
    const int width = c->width;
    chunk_weigh(c, -1, true, &f->weights, &f->products, &f->mixed);
    for (int i = 0; i < c->length; i++) {
        const int block = i / BLOCK * BLOCK;
        float *e = f->v.at + i * width, *u = f->u.at + i * width;
        if (i == block && i > 0) {
            tile_multiply(true, BLOCK, width, i, f->mixed.at[i], CHUNK, 1, f->u.at, width, e,
                          width);
        }
        if (i > block) {
            tile_multiply(true, 1, width, i - block, &f->mixed.at[i][block], CHUNK, 1,
                          f->u.at + block * width, width, e, width);
        }
        chunk_round(c->s->dtype, e, width);
        for (int j = 0; j < width; j++) u[j] = f->decays.write[i] * e[j];
    }
}

/* One head's chunk. state: NULL where it is zero so far; the state at the end is needed if `on`. */
static void forward_chunk(Forward *f, int head, float *state, bool zero, bool on, void *o,
                          void *errors) {
    const Chunk *c = &f->c;
    const int width = c->width;
    Decays *d = &f->decays;
    linear_chunk_decays(c, head, d);
    chunk_weights(c, d, &f->weights);
    chunk_load_values(c, head, c->in->v, c->in->write ? f->v.at : f->u.at);
    if (c->in->write) {
        if (!zero) {
            tile_multiply(false, c->length, width, c->keys, f->k.at, c->key_width, 1, state, width,
                          f->o.at, width);
            for (int t = 0; t < c->length; t++)
                for (int i = 0; i < width; i++)
                    f->v.at[t * width + i] -= d->start[t] * f->o.at[t * width + i];
        }
        solve_errors(f);
        if (errors) chunk_store_values(c, head, f->v.at, errors);
    }
    if (!zero) {
        tile_multiply(false, c->length, width, c->keys, f->q.at, c->key_width, 1, state, width,
                      f->o.at, width);
        chunk_scale_values(c, c->s->scale, d->start, f->o.at);
    }
    chunk_weigh(c, c->s->scale, false, &f->weights, &f->scores, &f->mixed);
    chunk_read_earlier(c, !zero, width, &f->mixed, f->u.at, f->o.at);
    chunk_store_values(c, head, f->o.at, o);
    if (!on) return;
    chunk_scale_values(c, 1, d->end, f->u.at);
    chunk_decay_state(c, state, d->carry);
    chunk_add_state(c, state, f->k.at, f->u.at);
}

/* The head's state that lasts, or NULL: there is none. */
static float *kept_state(const Chunk *c, int head) {
    const LinearAttentionStates *kept = c->in->states;
    const int64_t row = kept ? kept->rows[c->batch] : -1;
    if (row < 0 || row >= (kept ? kept->sequences : 0)) return NULL;
    const int64_t of = (row * c->s->groups + c->group) * c->s->heads + head;
    return kept->states + of * c->keys * c->values;
}

/* Positions of the row: all, or those that a text that grows has. */
static int64_t count_positions(const Chunk *c) {
    const LinearAttentionStates *kept = c->in->states;
    int64_t n = 0;
    if (!kept) return c->s->seq;
    if (!kept_state(c, 0)) return 0;
    while (n < c->s->seq && kept->places[c->batch * c->s->seq + n] >= 0) n++;
    return n;
}

static void load_states(Forward *f, int first, int heads) {
    const Chunk *c = &f->c;
    memset(f->states, 0, (size_t)(heads * c->keys * c->width) * sizeof f->states[0]);
    if (!c->in->states || c->in->states->places[c->batch * c->s->seq] == 0) return;
    for (int h = 0; h < heads; h++) {
        const float *from = kept_state(c, first + h);
        for (int i = 0; from && i < c->keys; i++)
            memcpy(f->states + (h * c->keys + i) * c->width, from + i * c->values,
                   (size_t)c->values * sizeof *from);
    }
}

static void store_states(const Forward *f, int first, int heads) {
    const Chunk *c = &f->c;
    for (int h = 0; h < heads; h++) {
        float *to = kept_state(c, first + h);
        for (int i = 0; to && i < c->keys; i++)
            memcpy(to + i * c->values, f->states + (h * c->keys + i) * c->width,
                   (size_t)c->values * sizeof *to);
    }
}

/* Zeros where the row has no more positions. */
static void clear_rest(const Chunk *c, int64_t from, int first, int heads, void *o) {
    const size_t bytes = (size_t)c->values * vec_bytes(c->s->dtype);
    for (int64_t t = from; t < c->s->seq; t++)
        for (int h = 0; h < heads; h++) {
            const int64_t row =
                ((c->batch * c->s->seq + t) * c->s->groups + c->group) * c->s->heads + first + h;
            memset((char *)o + (size_t)row * bytes, 0, bytes);
        }
}

static void forward_heads(const Chunk *row, int first, int heads, void *o, void *errors) {
    Forward f;
    Chunk *c = &f.c;
    f.c = *row;
    const int64_t n = count_positions(c);
    const int size = c->keys * c->width;
    const bool kept = c->in->states != NULL;
    if (n > 0) load_states(&f, first, heads);
    for (int64_t at = 0; at < n; at += CHUNK) {
        chunk_begin(c, at, n);
        chunk_load_keys(c, c->in->q, f.q.at);
        chunk_load_keys(c, c->in->k, f.k.at);
        tile_transpose(c->length, c->key_width, f.k.at, c->key_width, f.kt.at, CHUNK);
        chunk_pairs(c, c->key_width, f.q.at, f.kt.at, &f.scores);
        if (c->in->write) chunk_pairs(c, c->key_width, f.k.at, f.kt.at, &f.products);
        for (int h = 0; h < heads; h++) {
            forward_chunk(&f, first + h, f.states + h * size, at == 0 && !kept,
                          kept || at + CHUNK < n, o, errors);
        }
    }
    if (n > 0 && kept) store_states(&f, first, heads);
    clear_rest(c, n, first, heads, o);
}

void linear_chunk_forward(const LinearAttentionShape *s, const LinearAttentionInputs *in, void *o,
                          void *errors) {
    Chunk any = chunk_of_row(s, in, 0, 0);
    const int64_t rows = s->batch * s->groups, threads = omp_get_max_threads();
    int64_t each = chunk_heads(&any, s->heads);
    /* Fewer together where that gives each thread work. */
    while (each > 1 && rows * ((s->heads + each - 1) / each) < 2 * threads) each--;
    const int64_t parts = (s->heads + each - 1) / each, n_tasks = rows * parts;
#pragma omp parallel for schedule(dynamic, 1) if (n_tasks > 1)
    for (int64_t task = 0; task < n_tasks; task++) {
        const int64_t row = task / parts, first = task % parts * each;
        const Chunk c = chunk_of_row(s, in, row / s->groups, row % s->groups);
        const int64_t left = s->heads - first;
        forward_heads(&c, (int)first, (int)(left < each ? left : each), o, errors);
    }
}
