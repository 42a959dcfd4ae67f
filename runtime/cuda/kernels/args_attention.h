/* Arguments of attention_forward.cu, attention_backward.cu, the same on wgmma, attention_any.cu. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_ATTENTION_H
#define RUNTIME_CUDA_KERNELS_ARGS_ATTENTION_H

#include "runtime/attention_drop.h"
#include "runtime/cuda/kernels/state.h"

/* q [batch, seq, kv_heads, group, head] and k, v [batch, keys, kv_heads, head]. For one key/value
 * head the query rows are all (position, group member) pairs: row = position * group + member.
 * Where there is a part of the queries only, in two runs, its position among the keys is that and
 * `first`, from split_rows on that and `second`. */
typedef struct AttentionSizes {
    int32_t batch, seq, kv_heads, group, head;
    int32_t values; /* numbers of a head of v, o and their gradients; up to heads of 128, head */
    int32_t keys, split_rows, first, second;
    int32_t causal;
    int32_t before, after;              /* positions around its own that a row sees; seq: all */
    int32_t rows;                       /* seq * group */
    int32_t rows_padded;                /* to ATTENTION_ROW_PAD: a head's part of the workspace */
    uint32_t group_factor, group_shift; /* row / group: attention_position */
    float scale;                        /* of scores */
    float cap_factor;                   /* scores are tanh of q k times it; 0: they are q k, */
    float lse_scale, scale_log2;        /* times this, for e^x and for 2^x */
    int32_t tiles;                      /* of this kernel per key/value head */
    int32_t heads_together;             /* whose tiles run together, so that L2 holds their keys */
    const int32_t *starts;              /* [batch, seq]: runtime/cpu/attention.h; or NULL */
    int64_t to_ends; /* bytes from there to where documents end, which lie alike: one address less
                      * to keep than with another pointer; 0: they have no ends */
    AttentionDrop drop;
    const DeviceState *state; /* read where probabilities are dropped */
} AttentionSizes;

/* AttentionForwardArgs' raise_at where nobody asks: rescaling is then rare. */
#define ATTENTION_RAISE_AT 8.0f

enum {
    ATTENTION_TILE = 128,            /* rows or keys that a block owns, */
    ATTENTION_STEP = 64,             /* and keys or rows that it passes over at a time; */
    ATTENTION_QUERIES_STEP = 32,     /* in attention_queries_* */
    ATTENTION_WIDE_STEP = 32,        /* Heads over 128: in all but attention_queries_*, */
    ATTENTION_QUERIES_STEP_192 = 64, /* where they are as many as shared memory has room for; */
    ATTENTION_QUERIES_STEP_256 = 16,
    ATTENTION_KEYS_TILE_256 = 64, /* and heads of 256 have fewer keys in a block. */
    ATTENTION_ANY_TILE = 32,      /* both in attention_any_* */
    ATTENTION_ANY_HEAD = 256,     /* the longest head of attention_any_* */
    ATTENTION_ROW_PAD = 128,      /* a multiple of every tile of rows */
    ATTENTION_DELTA_LANES = 8,    /* threads per row in attention_delta_* */

    ATTENTION_WGMMA_THREADS = 256, /* of all of attention_*_wgmma_*; tiles are ATTENTION_TILE; */
    ATTENTION_JOINT_THREADS = 384, /* with those that help in attention_joint_*. */
    ATTENTION_WGMMA_STEP_64 = 64, /* Keys at a time forward, by the heads that the kernel is for, */
    ATTENTION_WGMMA_STEP_128 = 128,
    ATTENTION_WGMMA_STEP_192 = 128,
    ATTENTION_WGMMA_QUERIES_STEP_64 = 64, /* in attention_queries_*, */
    ATTENTION_WGMMA_QUERIES_STEP_128 = 128,
    ATTENTION_WGMMA_QUERIES_STEP_192 = 64,
    ATTENTION_WGMMA_KEYS_STEP =
        64,                      /* and rows at a time in attention_keys_* and attention_joint_*, */
    ATTENTION_JOINT_BUFFERS = 3, /* where tiles of so many are there, */
    ATTENTION_JOINT_TAKEN = 4,   /* which tiles of keys a block has taken: of those the latest; */
    ATTENTION_PAIRED_THREADS = 384, /* of attention_paired_*, those that copy included, */
    ATTENTION_JOINT_BLOCKS = 132,   /* of both, a block for each processor of the largest sm_90. */
};

/* q, k, v, o of the kernel's dtype. */
typedef struct AttentionForwardArgs {
    AttentionSizes sizes;
    const void *q, *k, *v;
    void *o;
    float *lse;     /* [batch, seq, kv_heads, group], natural logarithm */
    float *largest; /* likewise, of scores as the softmax sees them; or NULL */
    float raise_at; /* by so much, in base 2, a row's maximum may lag: 0 where `largest` is */
} AttentionForwardArgs;

/* lse2 and delta: workspace, [batch, kv_heads, rows_padded] f32. */
typedef struct AttentionBackwardArgs {
    AttentionSizes sizes;
    const void *q, *k, *v, *o, *d_o;
    const float *lse;
    void *dq, *dk, *dv;
    /* Numbers from a position's to the next's: as of q, k and v, or more, where those of others lie
     * beside them. */
    int32_t dq_row, dk_row, dv_row;
    float *lse2;  /* lse in base 2; infinite in the padding, so that its rows get no weights */
    float *delta; /* sum over head of o do; 0 in the padding */
    /* In one pass, else NULL: of each 64 rows that the keys of several blocks are seen by, the sum
     * of dq so far, f32 [batch, kv_heads, those, 64, head], as threads have it; and which tile of
     * keys is the next to add to it, [batch, kv_heads, rows_padded / 64]; and how many tiles of
     * keys blocks have taken. */
    float *dq_sums;
    uint32_t *turns, *taken;
} AttentionBackwardArgs;

#endif
