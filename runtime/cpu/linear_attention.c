/* Values are columns of a state that know nothing of each other, but for the sums over them that
 * gradients of queries and keys are. So a head's state is worked on in tiles of columns that stay
 * in L1, position by position: each row of it is loaded and stored once for some five operations on
 * it. Where a state is larger, or there are many, chunks of products do more with what they load
 * (linear_chunk.c).
 */
#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/linear_attention.h"

#include "ir/op.h"
#include "runtime/cpu/linear_chunk.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

enum { MAX_KEYS = LINEAR_ATTENTION_MAX_KEYS, MOST_VECS = 4, MOST_COLUMNS = MOST_VECS * VEC_LANES };

/* Columns of one head's values. */
typedef struct Tile {
    const LinearAttentionShape *s;
    const LinearAttentionInputs *in;
    int64_t batch, group, head; /* head: of its group */
    int64_t first;
    int n; /* the rest, up to whole vectors, is zero */
} Tile;

/* One position's operands, f32. */
typedef struct Position {
    const float *q, *k;
    float decay, write;
    float rows[2][MAX_KEYS]; /* where q and k are widened */
    float decays[MAX_KEYS];  /* of each key, where they differ */
} Position;

typedef struct State {
    float row[MAX_KEYS][MOST_COLUMNS] __attribute__((aligned(64)));
} State;

static int64_t row_of(const Tile *tile, int64_t t) {
    return (tile->batch * tile->s->seq + t) * tile->s->groups + tile->group;
}

static int64_t head_of(const Tile *tile, int64_t t) {
    return row_of(tile, t) * tile->s->heads + tile->head;
}

static void read_position(const Tile *tile, int64_t t, Position *out) {
    const LinearAttentionShape *s = tile->s;
    int64_t at = row_of(tile, t) * s->keys, head = head_of(tile, t);
    out->q = vec_tile(tile->in->q, s->dtype, at, s->keys, out->rows[0]);
    out->k = vec_tile(tile->in->k, s->dtype, at, s->keys, out->rows[1]);
    if (s->by_keys) {
        const float *decay = tile->in->decay + head * s->keys;
        for (int64_t i = 0; i < s->keys; i++) out->decays[i] = vmath_exp(decay[i]);
    } else {
        out->decay = expf(tile->in->decay[head]);
    }
    out->write = tile->in->write ? tile->in->write[head] : 1;
}

VEC_INLINE float decay_of(const bool by_keys, const Position *p, int64_t key) {
    return by_keys ? p->decays[key] : p->decay;
}

/* The tile's columns of x at a position. */
VEC_INLINE void load_columns(const int vecs, const Tile *tile, const void *x, int64_t t, Vec *out) {
    float widened[MOST_COLUMNS], row[MOST_COLUMNS] = {0};
    int64_t at = head_of(tile, t) * tile->s->values + tile->first;
    const float *from = vec_tile(x, tile->s->dtype, at, tile->n, widened);
    memcpy(row, from, sizeof(float) * (size_t)tile->n);
    for (int w = 0; w < vecs; w++) out[w] = vec_load(row + w * VEC_LANES);
}

VEC_INLINE void store_columns(const int vecs, const Tile *tile, void *x, int64_t t, const Vec *in) {
    float row[MOST_COLUMNS];
    int64_t at = head_of(tile, t) * tile->s->values + tile->first;
    for (int w = 0; w < vecs; w++) vec_store(row + w * VEC_LANES, in[w]);
    if (dtype_is_low(tile->s->dtype)) {
        vec_low_store(tile->s->dtype, row, (uint16_t *)x + at, tile->n);
    } else {
        memcpy((float *)x + at, row, sizeof(float) * (size_t)tile->n);
    }
}

/* S *= decay; returns S' k. */
VEC_INLINE void decay_and_read(const int vecs, const bool by_keys, State *state, int64_t keys,
                               const Position *p, Vec *out) {
    for (int w = 0; w < vecs; w++) out[w] = (Vec){0};
    for (int64_t i = 0; i < keys; i++) {
        float *row = state->row[i], decay = decay_of(by_keys, p, i);
        for (int w = 0; w < vecs; w++) {
            Vec x = vec_load(row + w * VEC_LANES) * decay;
            vec_store(row + w * VEC_LANES, x);
            out[w] += x * p->k[i];
        }
    }
}

/* S = decay S + k u'; returns S' q. */
VEC_INLINE void write_and_read(const int vecs, const bool by_keys, State *state, int64_t keys,
                               const Position *p, const Vec *u, Vec *out) {
    for (int w = 0; w < vecs; w++) out[w] = (Vec){0};
    for (int64_t i = 0; i < keys; i++) {
        float *row = state->row[i], decay = decay_of(by_keys, p, i);
        for (int w = 0; w < vecs; w++) {
            Vec x = vec_load(row + w * VEC_LANES) * decay + p->k[i] * u[w];
            vec_store(row + w * VEC_LANES, x);
            out[w] += x * p->q[i];
        }
    }
}

/* The tile's columns of its row's state, or NULL: there is none. */
static float *kept_state(const Tile *tile) {
    const LinearAttentionStates *kept = tile->in->states;
    const LinearAttentionShape *s = tile->s;
    int64_t row = kept ? kept->rows[tile->batch] : -1;
    if (row < 0 || row >= (kept ? kept->sequences : 0)) return NULL;
    int64_t head = (row * s->groups + tile->group) * s->heads + tile->head;
    return kept->states + head * s->keys * s->values + tile->first;
}

static void load_state(const Tile *tile, State *out) {
    const float *from = kept_state(tile);
    memset(out, 0, sizeof(out->row[0]) * (size_t)tile->s->keys);
    for (int64_t i = 0; from && i < tile->s->keys; i++) {
        memcpy(out->row[i], from + i * tile->s->values, sizeof(float) * (size_t)tile->n);
    }
}

static void store_state(const Tile *tile, const State *state) {
    float *to = kept_state(tile);
    for (int64_t i = 0; to && i < tile->s->keys; i++) {
        memcpy(to + i * tile->s->values, state->row[i], sizeof(float) * (size_t)tile->n);
    }
}

/* False: the row has no more positions. At the first one of a sequence the state is zero. */
static bool take_place(const Tile *tile, int64_t t, State *state) {
    if (!tile->in->states) return true;
    int32_t place = tile->in->states->places[tile->batch * tile->s->seq + t];
    if (place == 0) memset(state, 0, sizeof(state->row[0]) * (size_t)tile->s->keys);
    return place >= 0 && kept_state(tile);
}

/* To what is stored of them. */
VEC_INLINE void round_columns(const int vecs, const DType dtype, Vec *x) {
    uint16_t low[MOST_COLUMNS];
    float row[MOST_COLUMNS];
    if (!dtype_is_low(dtype)) return;
    for (int w = 0; w < vecs; w++) vec_store(row + w * VEC_LANES, x[w]);
    vec_low_store(dtype, row, low, vecs * VEC_LANES);
    vec_low_load(dtype, low, row, vecs * VEC_LANES);
    for (int w = 0; w < vecs; w++) x[w] = vec_load(row + w * VEC_LANES);
}

VEC_INLINE void forward_tile(const int vecs, const bool by_keys, const Tile *tile, void *o,
                             void *errors) {
    State state;
    Position p;
    Vec u[MOST_VECS], out[MOST_VECS];
    const int64_t keys = tile->s->keys;
    int64_t t = 0;
    load_state(tile, &state);
    for (; t < tile->s->seq && take_place(tile, t, &state); t++) {
        read_position(tile, t, &p);
        load_columns(vecs, tile, tile->in->v, t, u);
        if (tile->in->write) {
            decay_and_read(vecs, by_keys, &state, keys, &p, out);
            for (int w = 0; w < vecs; w++) u[w] -= out[w];
            /* What is written are the errors as they are kept, as the gradient has them. */
            round_columns(vecs, tile->s->dtype, u);
            if (errors) store_columns(vecs, tile, errors, t, u);
            for (int w = 0; w < vecs; w++) u[w] *= p.write;
            p.decay = 1;
            write_and_read(vecs, false, &state, keys, &p, u, out);
        } else {
            write_and_read(vecs, by_keys, &state, keys, &p, u, out);
        }
        for (int w = 0; w < vecs; w++) out[w] *= tile->s->scale;
        store_columns(vecs, tile, o, t, out);
    }
    store_state(tile, &state);
    for (int w = 0; w < vecs; w++) out[w] = (Vec){0};
    for (; t < tile->s->seq; t++) store_columns(vecs, tile, o, t, out);
}

/* Sums of neighbours: of a's in the first half, of b's in the second. */
VEC_INLINE Vec sum_neighbours(Vec a, Vec b) {
#if VEC_LANES == 16
    return VEC_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           VEC_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#elif VEC_LANES == 8
    return VEC_PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + VEC_PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
    return VEC_PICK(a, b, 0, 2, 4, 6) + VEC_PICK(a, b, 1, 3, 5, 7);
#endif
}

/* The lanes' sum of each of n vectors, n a multiple of VEC_LANES: a tree of sums of neighbours. */
static void sum_lanes(const Vec *in, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        Vec sums[VEC_LANES];
        memcpy(sums, in + i, sizeof(sums));
        for (int width = VEC_LANES / 2; width > 0; width /= 2) {
            for (int m = 0; m < width; m++) sums[m] = sum_neighbours(sums[2 * m], sums[2 * m + 1]);
        }
        vec_store(out + i, sums[0]);
    }
}

/* Sums over columns of each row of the state, in f32, and where they go. */
typedef struct RowSums {
    Vec parts[MAX_KEYS];
    float sums[MAX_KEYS];
} RowSums;

/* to += factor sums; products of these with `along` and `sign` are added to what a decay's gradient
 * is a sum of, [keys] or one for all. They are doubles, as they are subtracted from others nearly
 * as large. */
VEC_INLINE void add_rows(const bool by_keys, RowSums *rows, int64_t keys, float factor,
                         const float *along, float *to, double sign, double *products) {
    double product = 0;
    int64_t padded = (keys + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    for (int64_t i = keys; i < padded; i++) rows->parts[i] = (Vec){0};
    sum_lanes(rows->parts, padded, rows->sums);
    if (by_keys) {
#pragma omp simd
        for (int64_t i = 0; i < keys; i++) {
            float sum = factor * rows->sums[i];
            to[i] += sum;
            products[i] += sign * (double)sum * (double)along[i];
        }
        return;
    }
#pragma omp simd reduction(+ : product)
    for (int64_t i = 0; i < keys; i++) {
        float sum = factor * rows->sums[i];
        to[i] += sum;
        product += (double)sum * (double)along[i];
    }
    *products += sign * product;
}

/* D += q do' is the gradient of the state behind a position; du = D' k, and rows are D u. Then
 * D *= decay, but with the delta rule only after the errors' gradient is taken out. */
VEC_INLINE void reverse_position(const int vecs, const bool by_keys, const bool write, State *state,
                                 int64_t keys, float scale, const Position *p, const Vec *d_o,
                                 const Vec *u, Vec *du, Vec *rows) {
    for (int w = 0; w < vecs; w++) du[w] = (Vec){0};
    for (int64_t i = 0; i < keys; i++) {
        float *row = state->row[i], q = p->q[i] * scale, k = p->k[i];
        float decay = write ? 1 : decay_of(by_keys, p, i);
        Vec sum = {0};
        for (int w = 0; w < vecs; w++) {
            Vec x = vec_load(row + w * VEC_LANES) + q * d_o[w];
            du[w] += k * x;
            sum += x * u[w];
            vec_store(row + w * VEC_LANES, x * decay);
        }
        rows[i] = sum;
    }
}

/* D = decay (D - k de') */
VEC_INLINE void take_out(const int vecs, const bool by_keys, State *state, int64_t keys,
                         const Position *p, const Vec *de) {
    for (int64_t i = 0; i < keys; i++) {
        float *row = state->row[i], decay = decay_of(by_keys, p, i);
        for (int w = 0; w < vecs; w++) {
            Vec x = vec_load(row + w * VEC_LANES) - p->k[i] * de[w];
            vec_store(row + w * VEC_LANES, x * decay);
        }
    }
}

/* What a run of heads adds up: gradients of its group's queries and keys [seq, keys], and of the
 * head at hand what decays' gradients are sums of [seq], or [seq, keys]. */
typedef struct RunSums {
    float *dq, *dk;
    double *decay;
} RunSums;

static int64_t decays_of(const LinearAttentionShape *s) {
    return s->by_keys ? s->keys : 1;
}

VEC_INLINE void reverse_tile(const int vecs, const bool by_keys, const bool write, const Tile *tile,
                             const void *d_o, void *du, const RunSums *out) {
    State state;
    Position p;
    RowSums rows;
    Vec dout[MOST_VECS], u[MOST_VECS], d[MOST_VECS];
    const int64_t keys = tile->s->keys;
    memset(&state, 0, sizeof(state.row[0]) * (size_t)keys);
    for (int64_t t = tile->s->seq - 1; t >= 0; t--) {
        read_position(tile, t, &p);
        load_columns(vecs, tile, d_o, t, dout);
        load_columns(vecs, tile, tile->in->v, t, u);
        for (int w = 0; w < vecs; w++) u[w] *= p.write;
        reverse_position(vecs, by_keys, write, &state, keys, tile->s->scale, &p, dout, u, d,
                         rows.parts);
        store_columns(vecs, tile, du, t, d);
        add_rows(by_keys, &rows, keys, 1, p.k, out->dk + t * keys, -1,
                 out->decay + t * decays_of(tile->s));
        if (!write) continue;
        load_columns(vecs, tile, du, t, d); /* as stored, as it is found by the second pass */
        for (int w = 0; w < vecs; w++) d[w] *= p.write;
        take_out(vecs, by_keys, &state, keys, &p, d);
    }
}

/* The state again, with what was written: rows are S do, of the state that has decayed, S de. */
VEC_INLINE void again_tile(const int vecs, const bool by_keys, const bool write, const Tile *tile,
                           const void *d_o, const void *du, const RunSums *out) {
    State state;
    Position p;
    RowSums read, taken;
    Vec dout[MOST_VECS], u[MOST_VECS], de[MOST_VECS] = {{0}};
    const int64_t keys = tile->s->keys;
    memset(&state, 0, sizeof(state.row[0]) * (size_t)keys);
    for (int64_t t = 0; t < tile->s->seq; t++) {
        read_position(tile, t, &p);
        load_columns(vecs, tile, d_o, t, dout);
        load_columns(vecs, tile, tile->in->v, t, u);
        if (write) load_columns(vecs, tile, du, t, de);
        for (int w = 0; w < vecs; w++) u[w] *= p.write, de[w] *= p.write;
        for (int64_t i = 0; i < keys; i++) {
            float *row = state.row[i], decay = decay_of(by_keys, &p, i);
            Vec sum = {0}, lost = {0};
            for (int w = 0; w < vecs; w++) {
                Vec x = vec_load(row + w * VEC_LANES) * decay;
                if (write) lost += x * de[w];
                x += p.k[i] * u[w];
                vec_store(row + w * VEC_LANES, x);
                sum += x * dout[w];
            }
            read.parts[i] = sum;
            taken.parts[i] = lost;
        }
        double *products = out->decay + t * decays_of(tile->s);
        add_rows(by_keys, &read, keys, tile->s->scale, p.q, out->dq + t * keys, 1, products);
        if (!write) continue;
        add_rows(by_keys, &taken, keys, -1, p.k, out->dk + t * keys, 1, products);
    }
}

static void sum_decays_of_keys(const Tile *tile, const double *parts, float *ddecay) {
    const int64_t keys = tile->s->keys;
    double sums[MAX_KEYS] = {0};
    for (int64_t t = tile->s->seq - 1; t >= 0; t--) {
        const int64_t at = head_of(tile, t) * keys;
        for (int64_t i = 0; i < keys; i++) {
            sums[i] += parts[t * keys + i];
            if (vmath_exp(tile->in->decay[at + i]) == 0) sums[i] = 0;
            ddecay[at + i] = (float)sums[i];
        }
    }
}

/* The decay of a position acts on the product of the state before it with its gradient: what later
 * positions read of it, less what they wrote. Behind a decay to nothing there is neither. */
static void sum_decays(const Tile *tile, const double *parts, float *ddecay) {
    double sum = 0;
    if (tile->s->by_keys) {
        sum_decays_of_keys(tile, parts, ddecay);
        return;
    }
    for (int64_t t = tile->s->seq - 1; t >= 0; t--) {
        int64_t at = head_of(tile, t);
        sum += parts[t];
        if (expf(tile->in->decay[at]) == 0) sum = 0;
        ddecay[at] = (float)sum;
    }
}

/* A tile's vectors are a constant of its loops, as is what decays are of. */
#define FOR_VECS(n, call)                                                                          \
    do {                                                                                           \
        if ((n) > 2 * VEC_LANES) {                                                                 \
            enum { VECS = 4 };                                                                     \
            call;                                                                                  \
        } else if ((n) > VEC_LANES) {                                                              \
            enum { VECS = 2 };                                                                     \
            call;                                                                                  \
        } else {                                                                                   \
            enum { VECS = 1 };                                                                     \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

static void forward_any(const Tile *tile, void *o, void *errors) {
    if (tile->s->by_keys) {
        FOR_VECS(tile->n, forward_tile(VECS, true, tile, o, errors));
    } else {
        FOR_VECS(tile->n, forward_tile(VECS, false, tile, o, errors));
    }
}

static void reverse_any(const Tile *tile, const void *d_o, void *du, const RunSums *out) {
    const bool write = tile->in->write != NULL;
    if (tile->s->by_keys) {
        FOR_VECS(tile->n, reverse_tile(VECS, true, write, tile, d_o, du, out));
    } else {
        FOR_VECS(tile->n, reverse_tile(VECS, false, write, tile, d_o, du, out));
    }
}

static void again_any(const Tile *tile, const void *d_o, const void *du, const RunSums *out) {
    const bool write = tile->in->write != NULL;
    if (tile->s->by_keys) {
        FOR_VECS(tile->n, again_tile(VECS, true, write, tile, d_o, du, out));
    } else {
        FOR_VECS(tile->n, again_tile(VECS, false, write, tile, d_o, du, out));
    }
}

/* The next columns of the head, or false. */
static bool next_tile(Tile *tile) {
    int64_t left = tile->s->values - tile->first - tile->n;
    tile->first += tile->n;
    tile->n = (int)(left < MOST_COLUMNS ? left : MOST_COLUMNS);
    return left > 0;
}

void linear_attention_forward(const LinearAttentionShape *s, const LinearAttentionInputs *in,
                              void *o, void *errors) {
    const int64_t tiles = (s->values + MOST_COLUMNS - 1) / MOST_COLUMNS;
    const int64_t n_tasks = s->batch * s->groups * s->heads * tiles;
    if (linear_chunk_pays(s)) {
        linear_chunk_forward(s, in, o, errors);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) if (n_tasks > 1)
    for (int64_t task = 0; task < n_tasks; task++) {
        int64_t stream = task / tiles, first = task % tiles * MOST_COLUMNS;
        int64_t left = s->values - first;
        Tile tile = {.s = s,
                     .in = in,
                     .batch = stream / s->heads / s->groups,
                     .group = stream / s->heads % s->groups,
                     .head = stream % s->heads,
                     .first = first,
                     .n = (int)(left < MOST_COLUMNS ? left : MOST_COLUMNS)};
        forward_any(&tile, o, errors);
    }
}

static int64_t count_runs(const LinearAttentionShape *s) {
    return s->heads < LINEAR_ATTENTION_MOST_RUNS ? s->heads : LINEAR_ATTENTION_MOST_RUNS;
}

size_t linear_attention_workspace_bytes(const LinearAttentionShape *s) {
    int64_t rows = s->batch * s->groups * count_runs(s) * s->seq;
    return (size_t)rows *
           (sizeof(double) * (size_t)decays_of(s) + 2 * sizeof(float) * (size_t)s->keys);
}

/* A run's part of the workspace: doubles first, where they are aligned. */
static RunSums run_sums(const LinearAttentionShape *s, int64_t run, void *workspace) {
    int64_t n = s->batch * s->groups * count_runs(s), size = s->seq * s->keys;
    double *decays = workspace;
    float *sums = (float *)(decays + n * s->seq * decays_of(s));
    return (RunSums){.dq = sums + run * size,
                     .dk = sums + (n + run) * size,
                     .decay = decays + run * s->seq * decays_of(s)};
}

static void backward_run(const LinearAttentionShape *s, const LinearAttentionInputs *in,
                         int64_t run, const void *d_o, void *du, float *ddecay, void *workspace) {
    const int64_t runs = count_runs(s), group = run / runs, part = run % runs;
    RunSums sums = run_sums(s, run, workspace);
    if (linear_chunk_pays(s)) {
        const LinearChunkRun chunks = {.batch = group / s->groups,
                                       .group = group % s->groups,
                                       .head = part * s->heads / runs,
                                       .end = (part + 1) * s->heads / runs,
                                       .d_o = d_o,
                                       .du = du,
                                       .dq = sums.dq,
                                       .dk = sums.dk,
                                       .ddecay = ddecay};
        linear_chunk_backward(s, in, &chunks);
        return;
    }
    memset(sums.dq, 0, sizeof(float) * (size_t)(s->seq * s->keys));
    memset(sums.dk, 0, sizeof(float) * (size_t)(s->seq * s->keys));
    for (int64_t head = part * s->heads / runs; head < (part + 1) * s->heads / runs; head++) {
        Tile tile = {
            .s = s, .in = in, .batch = group / s->groups, .group = group % s->groups, .head = head};
        memset(sums.decay, 0, sizeof(double) * (size_t)(s->seq * decays_of(s)));
        while (next_tile(&tile)) {
            reverse_any(&tile, d_o, du, &sums);
            again_any(&tile, d_o, du, &sums);
        }
        sum_decays(&tile, sums.decay, ddecay);
    }
}

/* One row of queries' or keys' gradients, run by run. */
static void join_runs(const LinearAttentionShape *s, int64_t row, const float *sums, void *out) {
    const int64_t runs = count_runs(s), group = row % s->groups, at = row / s->groups;
    float joined[MAX_KEYS] = {0};
    for (int64_t run = 0; run < runs; run++) {
        int64_t of = (at / s->seq * s->groups + group) * runs + run;
        const float *from = sums + (of * s->seq + at % s->seq) * s->keys;
        for (int64_t i = 0; i < s->keys; i++) joined[i] += from[i];
    }
    if (dtype_is_low(s->dtype)) {
        vec_low_store(s->dtype, joined, (uint16_t *)out + row * s->keys, s->keys);
    } else {
        memcpy((float *)out + row * s->keys, joined, sizeof(float) * (size_t)s->keys);
    }
}

void linear_attention_backward(const LinearAttentionShape *s, const LinearAttentionInputs *in,
                               const void *d_o, void *dq, void *dk, void *du, float *ddecay,
                               void *workspace) {
    const int64_t n_runs = s->batch * s->groups * count_runs(s);
    const int64_t rows = s->batch * s->seq * s->groups;
    const RunSums first = run_sums(s, 0, workspace);
#pragma omp parallel for schedule(dynamic, 1) if (n_runs > 1)
    for (int64_t run = 0; run < n_runs; run++) {
        backward_run(s, in, run, d_o, du, ddecay, workspace);
    }
#pragma omp parallel for schedule(static) if (n_runs > 1)
    for (int64_t row = 0; row < rows; row++) {
        join_runs(s, row, first.dq, dq);
        join_runs(s, row, first.dk, dk);
    }
}
