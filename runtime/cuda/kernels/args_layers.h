/* Arguments of the layers' kernels: norms, losses, embedding, rotary. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_LAYERS_H
#define RUNTIME_CUDA_KERNELS_ARGS_LAYERS_H

#include "runtime/cuda/kernels/state.h"

/* norm.cu: x, y [rows, n], f32, bf16 or f16; gain, bias [n]; mean, inv [rows], f32. */
typedef struct NormArgs {
    int64_t rows;
    int32_t n;
    float eps;
    const void *x;
    const float *gain, *bias; /* no bias, no mean: rmsnorm */
    void *y;
    float *mean, *inv;
} NormArgs;

/* Block b sums gain and bias gradients over rows b rows_per_group on: partial [groups, 2 n], of
 * rmsnorm [groups, n], of layernorm_grad_sum_* [groups, 3 n], dx last. dx may be the memory of dy,
 * x or addend. */
typedef struct NormGradArgs {
    int64_t rows, rows_per_group;
    int32_t n;
    const void *x;
    const float *gain, *mean, *inv;
    const void *dy;
    const void *addend; /* like dx, added to it; NULL: nothing is */
    void *dx;
    float *partial;
} NormGradArgs;

/* dgain [n], dbias [n] of width 2 n, and dsum [n] of 3 n = sums over groups of partial [groups,
 * width]; added to what is there where add_gain and so on say so. */
typedef struct NormJoinArgs {
    int64_t groups;
    int32_t n, width;
    int32_t add_gain, add_bias, add_sum;
    const float *partial;
    float *dgain, *dbias, *dsum;
} NormJoinArgs;
enum { NORM_JOIN_COLUMNS = 32 };         /* of a block */
enum { NORM_GRAD_NARROW_THREADS = 256 }; /* at most, of *_grad_narrow_* */

/* softmax.cu: x [rows, n_local], f32, bf16 or f16, of which the first n_valid columns exist; column
 * 0 is number `offset` of the whole axis. out: f32 [rows], or like x, and perhaps x itself. */
typedef struct SoftmaxArgs {
    int64_t rows, offset;
    int32_t n_local, n_valid;
    const void *x;
    const int32_t *index;
    const float *lse, *dloss, *dlse; /* dlse: may be NULL */
    void *out;
} SoftmaxArgs;

/* softmax.cu: x as above, with all of the axis; becomes its gradient where each row's loss has the
 * gradient dloss. lse, picked: [rows]. A row lies in shared memory. */
typedef struct CrossEntropyArgs {
    int64_t rows;
    int32_t n_local, n_valid;
    float dloss;
    void *x;
    const int32_t *labels;
    float *lse, *picked;
} CrossEntropyArgs;
enum { CROSS_ENTROPY_THREADS = 512 }; /* at most, of all of these but pick_* */

/* divergence.cu: s, t and out as x above; value, needed of a rank's words, whole_needed of all
 * (runtime/cpu/divergence.h). */
typedef struct DivergenceArgs {
    int64_t rows;
    int32_t n_local, n_valid;
    float beta;
    const void *s, *t;
    const float *lse_s, *lse_t, *whole_needed, *dvalue;
    float *value, *needed;
    void *out;
} DivergenceArgs;

/* stored.cu: s and out as x above; words, logprobs [rows, n_words]; the others [rows] (runtime/cpu/
 * stored.h). */
typedef struct StoredArgs {
    int64_t rows, offset;
    int32_t n_local, n_valid, n_words;
    const void *s;
    const int32_t *words;
    const float *logprobs, *lse, *on, *off, *dvalue;
    float *sum, *tail, *known;
    void *out;
} StoredArgs;
enum { STORED_TILE = 4096 }; /* columns that are looked at together */

/* documents.cu: tokens [rows, n]; starts, places, or ends, or hashes of `by` tokens less than
 * `count` (ir/ngram.h), [rows, kept] (runtime/cpu/documents.h). What is kept are positions `first`
 * on, from number `split` of them on those `second` on. */
typedef struct DocumentsArgs {
    int64_t rows;
    int32_t n, kept, split, first, second, separator, apart;
    const int32_t *tokens;
    int32_t *starts, *places; /* of documents, */
    int32_t *ends;            /* and of document_ends */
    int32_t *hashes, by, count;
    uint32_t seed;
    int32_t *numbers; /* of occurrence, of the token `separator` */
} DocumentsArgs;
enum { DOCUMENTS_THREADS = 256, DOCUMENTS_EACH = 8 };

/* quantize.cu: x [rows, columns] and its values, which _turned kernels store [columns, rows].
 * Scales one for each of `count` blocks of 128 in a row (_rows), of 128 in a column (_columns), or
 * of 128 x 128 (_tiles): that of block (i, j) is number i scale_down + j scale_right, and with
 * `each` the 127 after it, too. across: blocks of a row (_rows), blocks of threads that a strip of
 * 128 rows takes (the others). */
typedef struct QuantizeArgs {
    int64_t count, rows, columns, scale_down, scale_right;
    uint32_t across, each;
    const void *x;
    uint8_t *values;
    float *scales;
} QuantizeArgs;

/* values, as they lie, are [.., columns]; out: bf16. */
typedef struct DequantizeArgs {
    int64_t count, columns, scale_down, scale_right;
    uint32_t across;
    const uint8_t *values;
    const float *scales;
    void *out;
} DequantizeArgs;
enum { QUANTIZE_THREADS = 256, SCALES_BLOCK = 128, LEAST_EXPONENT = -117 };

/* widen.cu: n numbers, in blocks of 64 with their scales. */
typedef struct WidenArgs {
    int64_t n;
    const void *from;
    void *to;
} WidenArgs;
enum { WIDEN_THREADS = 256 };

/* round_blocks.cu: a thread has a block of 32 numbers of a row, or of f16 one number. */
typedef struct RoundBlocksArgs {
    int64_t count; /* threads with something to do */
    const float *from;
    void *to;
    int32_t dtype;       /* of `to`, a DType */
    int32_t eight;       /* q8_0, else q4_0 */
    int32_t by_rows;     /* neighbouring threads have neighbouring rows, else neighbouring blocks */
    FastDivisor each;    /* how many of these there are */
    IndexMap row, other; /* where a number of a row lies, and where rows begin */
} RoundBlocksArgs;
enum { ROUND_THREADS = 128, ROUND_NUMBERS = 32 };

/* embedding.cu */

/* Tokens vocab_offset .. vocab_offset + vocab_local - 1 have a row here; others give zeros. */
typedef struct EmbeddingArgs {
    int64_t n, row_bytes, vocab_local, vocab_offset;
    const int32_t *tokens;
    const void *table;
    void *out;
} EmbeddingArgs;

/* Tokens that have a row, sorted by row, then by place: the first *count of order (places) and
 * rows. Block b sorts those of rows b block_rows on. */
typedef struct EmbeddingSortArgs {
    int64_t n, vocab_local, vocab_offset;
    int32_t block_rows; /* at most EMBEDDING_SORT_ROWS */
    const int32_t *tokens;
    int32_t *order, *rows, *count;
} EmbeddingSortArgs;
enum { EMBEDDING_SORT_ROWS = 4096, EMBEDDING_SORT_THREADS = 512 };

/* Sums of dy [n, model] over runs of equal rows, a chunk of sorted places per block. A run that
 * goes beyond its chunk leaves a part per chunk in partial [chunks, 2, model]: 0 where it came from
 * the chunk before, 1 where it began here. */
typedef struct EmbeddingSumArgs {
    int64_t model;
    int32_t chunk, accumulate;
    const int32_t *order, *rows, *count;
    const void *dy;
    float *partial, *dtable;
} EmbeddingSumArgs;

/* relative.cu: scores [outer, heads, seq, keys], table [buckets, heads]; n buckets of a side, the
 * k-th of which begins from[k] positions away. The query of row s is as in rotary.cu. */
enum { RELATIVE_MOST = 128, RELATIVE_THREADS = 256 };
typedef struct RelativeArgs {
    int64_t outer, heads, seq, keys, split, first, second;
    int32_t causal, n;
    float hidden;        /* the score of a key that is not seen */
    const float *scores; /* or their gradient, */
    const float *table;  /* which reads none */
    float *out;          /* like scores, or the table's gradient */
    int32_t from[RELATIVE_MOST + 1];
} RelativeArgs;

/* rotary.cu: x, y [batch, seq, inner, head], `row` numbers from a position to the next: inner head,
 * or more, and then whole vectors where heads are; position of row s is first + s, from split on
 * second + s, or places [batch, seq] say it, a block for each of them; pair i turns by
 * 2^(i log2_step) radians per position, stretched as ir/ops/rotary.h says. y may be x. The sines
 * and cosines are times `scale`. */
enum { ROTARY_FACTORS = 128 };
typedef struct RotaryArgs {
    int64_t batch, seq, inner, row, split, first, second;
    int32_t head, turned, ramp; /* the first `turned` of a head turn, the others stay */
    float direction;            /* 1 or -1 */
    double log2_step;
    double factor, few, many, context; /* context 0: all pairs alike */
    const int32_t *places;             /* or NULL */
    const void *x;
    void *y;
    float scale;
    int32_t n_factors; /* 0, or of each pair, in place of the four above */
    double factors[ROTARY_FACTORS];
} RotaryArgs;

#endif
