/* Arguments of the kernels that go along a sequence: linear attention, convolutions. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_RECURRENT_H
#define RUNTIME_CUDA_KERNELS_ARGS_RECURRENT_H

#include "runtime/cuda/kernels/state.h"

/* linear_attention.cu, linear_attention_grad.cu: how a block has the state [keys, tile of values]
 * in registers, by the keys that its kernel is for (16, 32, 64, 128, 256). A thread has keys /
 * LANES rows of 4 columns; the LANES that share columns are neighbours, 32 / LANES groups of them
 * make a warp, and as many warps as there are columns a block. */
#define LINEAR_ATTENTION_LANES(keys) ((keys) <= 32 ? 4 : (keys) <= 128 ? 8 : 16)
#define LINEAR_ATTENTION_TILE(keys)  ((keys) <= 128 ? 64 : 32) /* columns at most */
#define LINEAR_ATTENTION_RUN(keys)   ((keys) <= 128 ? 8 : 4)   /* positions in shared memory */
#define LINEAR_ATTENTION_COLUMNS     4
#define LINEAR_ATTENTION_WARP_COLUMNS(keys)                                                        \
    (32 / LINEAR_ATTENTION_LANES(keys) * LINEAR_ATTENTION_COLUMNS)
#define LINEAR_ATTENTION_WARPS(keys)                                                               \
    (LINEAR_ATTENTION_TILE(keys) / LINEAR_ATTENTION_WARP_COLUMNS(keys))
#define LINEAR_ATTENTION_THREADS(keys) (32 * LINEAR_ATTENTION_WARPS(keys))
/* Shared memory, f32 numbers: of a run q, k, `inputs` operands and `results` of columns, decay and
 * write; operands as they come; sums over a warp's columns, `sums` for each row and position; with
 * decays of keys these as they come, and their powers. */
#define LINEAR_ATTENTION_KEY_DECAYS(keys) (2 * LINEAR_ATTENTION_RUN(keys) * (keys))
#define LINEAR_ATTENTION_SHARED(keys, inputs, results, sums)                                       \
    (LINEAR_ATTENTION_RUN(keys) *                                                                  \
     (4 * (keys) + (2 * (inputs) + (results)) * LINEAR_ATTENTION_TILE(keys) + 2 +                  \
      (sums)*LINEAR_ATTENTION_WARPS(keys) * (keys)))

/* q, k [batch, seq, groups, keys]; v, o [batch, seq, groups, heads, values]; decay, write [batch,
 * seq, groups, heads] f32, or decay [batch, seq, groups, heads, keys]. `tiles` of values for each
 * head, a block each: (batch, group, head, tile). */
typedef struct LinearAttentionSizes {
    int32_t seq, groups, heads, keys, values, tiles;
    int32_t dtype;   /* a DType, of all but decay and write */
    int32_t vectors; /* rows begin, and end, at multiples of 16 bytes */
    float scale;
    const void *q, *k;
    const float *decay, *write; /* write: NULL without the delta rule */
} LinearAttentionSizes;

typedef struct LinearAttentionArgs {
    LinearAttentionSizes sizes;
    const void *v;
    void *o, *errors;
} LinearAttentionArgs;

/* Positions [first, end) of the gradient, of which the reverse sweep makes du and the other reads
 * it. v: the errors with the delta rule. */
typedef struct LinearAttentionGradArgs {
    LinearAttentionSizes sizes;
    int32_t first, end;
    int32_t loads, saves; /* the state, which is else zero at first, is not kept */
    const void *v, *d_o;
    void *du;
    float *state;   /* of each block, as its threads have it */
    float *sums[2]; /* [blocks, end - first, keys]: dk; or dq, and with the delta rule dk */
    /* [blocks, seq]: what decays' gradients are sums of; of keys' [blocks, seq, keys], of both
     * sweeps, the first of which is the reverse one */
    float *decays;
} LinearAttentionGradArgs;

/* out [batch, positions [first, end) of seq, groups, keys] = addend + the sum of `parts` rows of
 * sums [batch, groups, parts, end - first, keys]. */
typedef struct LinearAttentionJoinArgs {
    int64_t batch;
    int32_t seq, groups, keys, parts, first, end;
    int32_t dtype; /* of out */
    const float *sums;
    const float *addend; /* like out; or NULL */
    void *out;
} LinearAttentionJoinArgs;

/* decay, ddecay [batch, seq, heads: of all groups]; parts, of both sweeps, [batch, heads, tiles,
 * seq]. */
typedef struct LinearAttentionDecaysArgs {
    int64_t streams; /* batch times heads */
    int32_t seq, heads, tiles;
    const float *decay;
    const float *reverse, *again;
    float *ddecay;
} LinearAttentionDecaysArgs;
enum { LINEAR_ATTENTION_STREAMS = 4 }; /* of a block, a warp each */

/* decay, ddecay [batch, seq, heads: of all groups, keys]; parts [batch, heads, tiles, seq, keys].
 */
typedef struct LinearAttentionKeyDecaysArgs {
    int64_t streams; /* batch times heads */
    int32_t seq, heads, keys, tiles;
    const float *decay, *parts;
    float *ddecay;
} LinearAttentionKeyDecaysArgs;
enum { LINEAR_ATTENTION_KEY_THREADS = 128 };

/* linear_chunk*.cu: linear attention in 16 bits on tensor cores, by chunks of positions (of which a
 * sequence's last may have fewer) and tiles of keys and of values.
 *
 * Of each head, `streams` of them: (batch, group, head), there are states [chunks, keys, values] in
 * 16 bits, those before a chunk or, of gradients, those behind one; in f16 divided by `factors`
 * [streams, chunks, tiles], powers of two. */
enum {
    LINEAR_CHUNK = 64,
    LINEAR_CHUNK_THREADS = 128,   /* but for the kernels that keep states */
    LINEAR_CHUNK_DELTA_KEYS = 128 /* with the delta rule, at most: shared memory */
};
/* Of a tile as it lies in shared memory, and of what is known of a chunk's decays. */
#define LINEAR_CHUNK_TILE_BYTES(rows, columns) ((rows) * (columns)*2)
#define LINEAR_CHUNK_SQUARE_BYTES              LINEAR_CHUNK_TILE_BYTES(LINEAR_CHUNK, LINEAR_CHUNK)
#define LINEAR_CHUNK_DECAYS_BYTES              (24 * LINEAR_CHUNK)
/* Chunks that are in shared memory at a time. */
#define LINEAR_CHUNK_BUFFERS(keys) ((keys) > 128 ? 1 : 2)
/* A warp for 16 keys of the states. */
#define LINEAR_CHUNK_STATES_THREADS(keys) (2 * (keys))
#define LINEAR_CHUNK_STATES_SHARED(keys)                                                           \
    (LINEAR_CHUNK_BUFFERS(keys) *                                                                  \
         (LINEAR_CHUNK_TILE_BYTES(LINEAR_CHUNK, keys) + LINEAR_CHUNK_SQUARE_BYTES) +               \
     LINEAR_CHUNK_TILE_BYTES(keys, LINEAR_CHUNK) + 2 * LINEAR_CHUNK_DECAYS_BYTES)
#define LINEAR_CHUNK_OUT_SHARED(keys)                                                              \
    (LINEAR_CHUNK_TILE_BYTES(LINEAR_CHUNK, keys) + LINEAR_CHUNK_SQUARE_BYTES +                     \
     LINEAR_CHUNK_BUFFERS(keys) *                                                                  \
         (LINEAR_CHUNK_TILE_BYTES(keys, LINEAR_CHUNK) + LINEAR_CHUNK_SQUARE_BYTES) +               \
     2 * LINEAR_CHUNK_DECAYS_BYTES)
#define LINEAR_CHUNK_GRAD_SHARED                                                                   \
    (10 * LINEAR_CHUNK_SQUARE_BYTES + 2 * LINEAR_CHUNK_DECAYS_BYTES + 5 * 4 * LINEAR_CHUNK)
enum { LINEAR_CHUNK_PITCH = LINEAR_CHUNK + 4 }; /* of a square of f32 numbers */
#define LINEAR_CHUNK_TRANSFORM_SHARED(keys)                                                        \
    (2 * LINEAR_CHUNK_TILE_BYTES(LINEAR_CHUNK, keys) + 2 * 4 * LINEAR_CHUNK * LINEAR_CHUNK_PITCH + \
     LINEAR_CHUNK_DECAYS_BYTES)
#define LINEAR_CHUNK_ERRORS_SHARED(keys)                                                           \
    (2 * LINEAR_CHUNK_TILE_BYTES(LINEAR_CHUNK, keys) +                                             \
     LINEAR_CHUNK_TILE_BYTES(keys, LINEAR_CHUNK) + 5 * LINEAR_CHUNK_SQUARE_BYTES +                 \
     2 * LINEAR_CHUNK_DECAYS_BYTES)

/* q, k, v and the rest as of LinearAttentionSizes. A group's heads are divided over `runs` blocks
 * of run_heads. */
typedef struct LinearChunkSizes {
    int32_t seq, groups, heads, keys, values;
    int32_t chunks, tiles; /* of a sequence, of values */
    int32_t runs, run_heads;
    float scale;
    const float *decay, *write; /* write: NULL without the delta rule */
} LinearChunkSizes;

/* States of sums of x u', x [batch, seq, groups, keys] and u [batch, seq, groups, heads, values]:
 * k and what is written; or, backwards, q and do. */
typedef struct LinearChunkStatesArgs {
    LinearChunkSizes sizes;
    int32_t backwards;
    const void *x, *u;
    void *states;
    float *factors;
} LinearChunkStatesArgs;

/* o: x and y are q and k, u is v or the errors, of states before chunks. Backwards dv, without the
 * delta rule: x and y are k and q, u is do, of gradients of states behind. */
typedef struct LinearChunkOutArgs {
    LinearChunkSizes sizes;
    int32_t backwards;
    const void *x, *y, *u, *states;
    const float *factors;
    void *out;
} LinearChunkOutArgs;

/* Of the delta rule and every chunk [positions, positions]: W, which is (I + L b)^-1 L where L are
 * products of keys and an earlier's, decayed; and, where they are wanted, those of queries and
 * keys, scaled. */
typedef struct LinearChunkTransformArgs {
    LinearChunkSizes sizes;
    const void *q, *k;
    void *transform, *scores; /* scores: or NULL */
} LinearChunkTransformArgs;

/* The states and the errors, from v; or, backwards, states' gradients and du, from do. */
typedef struct LinearChunkErrorsArgs {
    LinearChunkSizes sizes;
    const void *q, *k, *v, *transform, *scores; /* q, scores: backwards */
    void *states, *errors;
    float *factors;
} LinearChunkErrorsArgs;

/* One reading of the state: positions i get d_i, by x_i; what is written at j is u_j, by y_j. It is
 * q, do; or, with the delta rule, keys read what was there, and -b du is d. */
typedef struct LinearChunkGradArgs {
    LinearChunkSizes sizes;
    int32_t taken;       /* that of keys, which read what earlier positions wrote */
    int32_t parts, part; /* of sums; the first run's */
    const void *x, *y, *d, *u;
    const void *states, *before; /* rows: those before chunks; columns: gradients of those behind,
                                  * or NULL, and those before */
    const float *factors, *before_factors;
    float *sums;   /* [batch, groups, parts, seq, keys] */
    float *read;   /* rows: [tiles of keys, streams, seq], of what positions read
                    * in the decays' gradients */
    float *wrote;  /* columns: likewise, */
    float *passed; /* and [tiles of keys, streams, chunks] */
} LinearChunkGradArgs;

typedef struct LinearChunkDecaysArgs {
    LinearChunkSizes sizes;
    int64_t streams;
    int32_t n_read, n_wrote; /* parts of each */
    const float *read, *wrote, *passed;
    float *ddecay;
} LinearChunkDecaysArgs;

/* convolve.cu: x, dy [batch, seq, channels]; w [taps, channels]; places [batch, seq] or NULL. A
 * block walks rows_per_group of the rows; partial [groups, taps, channels]. */
enum { CONVOLVE_TAPS = 8, CONVOLVE_THREADS = 128, CONVOLVE_PACK = 4 };
typedef struct ConvolveArgs {
    int64_t rows, seq, channels, rows_per_group;
    int32_t taps;
    const int32_t *places;
    const void *x, *dy;
    const float *w;
    void *out; /* y, or dx */
    float *partial;
} ConvolveArgs;

#endif
