/* What linear attention by chunks and its gradient share (linear_chunk.h): a chunk's operands,
 * decays and sums over pairs. Matrices of pairs are [i][j], i the later position; rows are padded
 * with zeros to whole vectors, chunks to whole blocks.
 */
#ifndef RUNTIME_CPU_LINEAR_CHUNK_PARTS_H
#define RUNTIME_CPU_LINEAR_CHUNK_PARTS_H

#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of its includer */

#include "runtime/cpu/linear_chunk.h"
#include "runtime/cpu/tile.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 64,
    BLOCK = 16, /* pairs within a block of positions are multiplied all, later blocks not at all */
    LONGEST = LINEAR_ATTENTION_MAX_KEYS, /* of keys and values alike */
    MOST_HEADS = 4,                      /* of a group that go along a sequence together, */
    MOST_STATES = LONGEST * LONGEST      /* whose states have so many numbers */
};

/* Pairs of positions of a chunk. */
typedef struct Pairs {
    float at[CHUNK][CHUNK] __attribute__((aligned(64)));
} Pairs;
/* A chunk's rows of keys or values, `width` apart; or the same transposed, CHUNK apart. */
typedef struct Rows {
    float at[CHUNK * LONGEST] __attribute__((aligned(64)));
} Rows;

/* Which positions of which row and group. */
typedef struct Chunk {
    const LinearAttentionShape *s;
    const LinearAttentionInputs *in;
    int64_t batch, group, first;
    int n, length; /* positions, and up to whole blocks */
    int keys, key_width, values, width;
} Chunk;

VEC_INLINE int up_to_vectors(int64_t n) {
    return ((int)n + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
}

VEC_INLINE Chunk chunk_of_row(const LinearAttentionShape *s, const LinearAttentionInputs *in,
                              int64_t batch, int64_t group) {
    return (Chunk){.s = s,
                   .in = in,
                   .batch = batch,
                   .group = group,
                   .keys = (int)s->keys,
                   .key_width = up_to_vectors(s->keys),
                   .values = (int)s->values,
                   .width = up_to_vectors(s->values)};
}

/* The chunk that begins at position `first` of `seq`. */
VEC_INLINE void chunk_begin(Chunk *c, int64_t first, int64_t seq) {
    c->first = first;
    c->n = (int)(seq - first < CHUNK ? seq - first : CHUNK);
    c->length = (c->n + BLOCK - 1) / BLOCK * BLOCK;
}

VEC_INLINE int64_t chunk_group_row(const Chunk *c, int t) {
    return (c->batch * c->s->seq + c->first + t) * c->s->groups + c->group;
}

VEC_INLINE int64_t chunk_head_row(const Chunk *c, int head, int t) {
    return chunk_group_row(c, t) * c->s->heads + head;
}

/* Heads that go together: of `left` */
VEC_INLINE int chunk_heads(const Chunk *c, int64_t left) {
    const int size = c->keys * c->width, fit = MOST_STATES / size;
    const int most = fit < MOST_HEADS ? fit : MOST_HEADS;
    return left < most ? (int)left : most;
}

/* Short rows, for which a call of memcpy takes long. */
VEC_INLINE void chunk_copy(const float *from, int n, float *to) {
    int i = 0;
    for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        const Vec x = vec_load(from + i), y = vec_load(from + i + VEC_LANES);
        vec_store(to + i + VEC_LANES, y);
        vec_store(to + i, x);
    }
    for (; i + VEC_LANES <= n; i += VEC_LANES) vec_store(to + i, vec_load(from + i));
    if (i < n) memcpy(to + i, from + i, (size_t)(n - i) * sizeof *to);
}

/* A row as f32, the rest up to `width` zero. */
VEC_INLINE void chunk_widen(DType dtype, const void *x, int64_t at, int n, int width, float *to) {
    if (dtype_is_low(dtype)) {
        vec_low_load(dtype, (const uint16_t *)x + at, to, n);
    } else {
        chunk_copy((const float *)x + at, n, to);
    }
    if (n < width) memset(to + n, 0, (size_t)(width - n) * sizeof *to);
}

VEC_INLINE void chunk_narrow(DType dtype, const float *from, int n, void *x, int64_t at) {
    if (dtype_is_low(dtype)) {
        vec_low_store(dtype, from, (uint16_t *)x + at, n);
    } else {
        chunk_copy(from, n, (float *)x + at);
    }
}

/* Queries or keys. */
VEC_INLINE void chunk_load_keys(const Chunk *c, const void *x, float *to) {
    for (int t = 0; t < c->length; t++) {
        float *row = to + t * c->key_width;
        if (t < c->n) {
            chunk_widen(c->s->dtype, x, chunk_group_row(c, t) * c->keys, c->keys, c->key_width,
                        row);
        } else {
            memset(row, 0, (size_t)c->key_width * sizeof *row);
        }
    }
}

/* A head's values, or what is like them. */
VEC_INLINE void chunk_load_values(const Chunk *c, int head, const void *x, float *to) {
    for (int t = 0; t < c->length; t++) {
        float *row = to + t * c->width;
        if (t < c->n) {
            chunk_widen(c->s->dtype, x, chunk_head_row(c, head, t) * c->values, c->values, c->width,
                        row);
        } else {
            memset(row, 0, (size_t)c->width * sizeof *row);
        }
    }
}

VEC_INLINE void chunk_store_values(const Chunk *c, int head, const float *from, void *x) {
    for (int t = 0; t < c->n; t++) {
        chunk_narrow(c->s->dtype, from + t * c->width, c->values, x,
                     chunk_head_row(c, head, t) * c->values);
    }
}

/* row t of [length, width] *= factor shares[t] */
VEC_INLINE void chunk_scale_values(const Chunk *c, float factor, const float *shares, float *x) {
    const int width = c->width;
    for (int t = 0; t < c->length; t++) {
        const float share = factor * shares[t];
        for (int i = 0; i < width; i++) x[t * width + i] *= share;
    }
}

/* What is left behind decays whose logarithms sum up to x. Less than e^-60 is nothing beside a
 * position's own: it is 0, as denormal numbers, which such shares and their products become, take
 * processors many times as long. */
VEC_INLINE float chunk_share(float x) {
    const float share = vmath_exp(x);
    return x < -60.0f ? 0.0f : share;
}

/* A head's decays within a chunk. */
typedef struct Decays {
    double sum[CHUNK];   /* of logarithms since the chunk began, but for those to nothing */
    int begin[CHUNK];    /* the last position so far that has nothing of those before, or 0 */
    float start[CHUNK];  /* of the state before the chunk */
    float end[CHUNK];    /* what the state behind has of a position */
    float write[CHUNK];  /* 1 without the delta rule */
    float carry;         /* what it has of the state before */
    bool nothing[CHUNK]; /* none of those before is left there */
} Decays;

/* exp(G_i - G_j), zero of later positions and of those behind a decay to nothing. */
VEC_INLINE void chunk_weights(const Chunk *c, const Decays *d, Pairs *out) {
    for (int i = 0; i < c->length; i++) {
        const int begin = d->begin[i], end = i / BLOCK * BLOCK + BLOCK;
        const double sum = d->sum[i];
        float *row = out->at[i];
#pragma omp simd
        for (int j = 0; j < end; j++) {
            const float share = chunk_share((float)(sum - d->sum[j]));
            row[j] = j >= begin && j <= i ? share : 0.0f;
        }
    }
}

/* Later and earlier positions, [i] >= [j]: pairs = rows x' of which xt is the other, transposed. */
VEC_INLINE void chunk_pairs(const Chunk *c, int width, const float *x, const float *yt,
                            Pairs *out) {
    for (int i = 0; i < c->length; i += BLOCK)
        tile_multiply(false, BLOCK, i + BLOCK, width, x + i * width, width, 1, yt, CHUNK,
                      out->at[i], CHUNK);
}

/* out = factor weights of = pairs; `strict`: but for those of a position with itself */
VEC_INLINE void chunk_weigh(const Chunk *c, float factor, const bool strict, const Pairs *weights,
                            const Pairs *of, Pairs *out) {
    for (int i = 0; i < c->length; i++) {
        const int end = i / BLOCK * BLOCK + BLOCK;
        for (int j = 0; j < end; j++) {
            const float x = factor * weights->at[i][j] * of->at[i][j];
            out->at[i][j] = j < i + !strict ? x : 0.0f;
        }
    }
}

/* to[i] (+)= sum over j <= i of pairs[i][j] x[j] */
VEC_INLINE void chunk_read_earlier(const Chunk *c, bool add, int width, const Pairs *pairs,
                                   const float *x, float *to) {
    for (int i = 0; i < c->length; i += BLOCK)
        tile_multiply(add, BLOCK, width, i + BLOCK, pairs->at[i], CHUNK, 1, x, width,
                      to + i * width, width);
}

/* to[j] (+)= sum over i >= j of pairs[i][j] x[i] */
VEC_INLINE void chunk_read_later(const Chunk *c, bool add, int width, const Pairs *pairs,
                                 const float *x, float *to) {
    for (int j = 0; j < c->length; j += BLOCK)
        tile_multiply(add, BLOCK, width, c->length - j, &pairs->at[j][j], 1, CHUNK, x + j * width,
                      width, to + j * width, width);
}

/* state = carry state + x' u, [keys, width], x [length, key_width], u [length, width] */
VEC_INLINE void chunk_add_state(const Chunk *c, float *state, const float *x, const float *u) {
    tile_multiply(true, c->keys, c->width, c->length, x, 1, c->key_width, u, c->width, state,
                  c->width);
}

VEC_INLINE void chunk_decay_state(const Chunk *c, float *state, float carry) {
    const int size = c->keys * c->width;
    if (carry == 0) {
        memset(state, 0, (size_t)size * sizeof *state);
        return;
    }
    for (int i = 0; i < size; i++) state[i] *= carry;
}

/* As stored. */
VEC_INLINE void chunk_round(DType dtype, float *row, int n) {
    uint16_t low[LONGEST];
    if (!dtype_is_low(dtype)) return;
    vec_low_store(dtype, row, low, n);
    vec_low_load(dtype, low, row, n);
}

/* What begins a text begins anew, as behind a decay to nothing. */
void linear_chunk_decays(const Chunk *c, int head, Decays *d);

#endif
