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
 * write; operands as they come; sums over a warp's columns, `sums` for each row and position. */
#define LINEAR_ATTENTION_SHARED(keys, inputs, results, sums)                                       \
    (LINEAR_ATTENTION_RUN(keys) *                                                                  \
     (4 * (keys) + (2 * (inputs) + (results)) * LINEAR_ATTENTION_TILE(keys) + 2 +                  \
      (sums)*LINEAR_ATTENTION_WARPS(keys) * (keys)))

/* q, k [batch, seq, groups, keys]; v, o [batch, seq, groups, heads, values]; decay, write [batch,
 * seq, groups, heads] f32. `tiles` of values for each head, a block each: (batch, group, head,
 * tile). */
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
    float *decays;  /* [blocks, seq]: what decays' gradients are sums of */
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
