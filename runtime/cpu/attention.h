/* o = softmax(scale q k^T + mask) v, blockwise: no [seq, seq] matrix exists   (Dao 2023)
 *
 * q [batch, seq, kv_heads, group, head]; k [batch, keys, kv_heads, head] and v [batch, keys,
 * kv_heads, values]: each key/value head serves `group` query heads (Ainslie et al. 2023; group 1
 * is multi-head attention, kv_heads 1 multi-query). o and its gradient [batch, seq, kv_heads,
 * group, values]; `values` may differ from `head` (DeepSeek-V2, arXiv 2405.04434, section 2.1). lse
 * [batch, seq, kv_heads, group] is the natural logarithm of each softmax's denominator, kept for
 * the gradient. With a soft cap of c, scaled scores x become c tanh(x / c) first   (Gemma Team
 * 2024, Gemma 2). With `causal`, position s attends to positions 0..s; with a window of n, to those
 * of them that are less than n away; with documents, to those of its own. Blocks of which nothing
 * is seen are skipped. Probabilities may be dropped. f32, or all but lse bf16 or f16 (`dtype`);
 * sums are f32. In bf16 on a processor's tiles (attention_tiles.h) weights and the gradients of
 * scores are rounded to bf16 for products. head and values <= ATTENTION_MAX_HEAD; any seq, 0
 * included. Results do not depend on the number of threads. Uses as much of each thread's stack as
 * rows of these need: about 500 KiB at most.
 */
#ifndef RUNTIME_CPU_ATTENTION_H
#define RUNTIME_CPU_ATTENTION_H

#include "ir/type.h"
#include "runtime/attention_drop.h"
#include "runtime/cpu/philox.h"

#include <stdbool.h>
#include <stdint.h>

#define ATTENTION_MAX_HEAD 256
#define ATTENTION_MAX_READ_HEAD                                                                    \
    640 /* forward alone: ATTENTION_LONGEST_SHARED, caches of latents                              \
         */

typedef struct AttentionShape {
    int64_t batch, seq, kv_heads, group, head;
    bool causal;
    float scale;    /* of the scores; usually 1 / sqrt(head) */
    DType dtype;    /* of q, k, v, o and their gradients: f32, bf16 or f16 */
    int64_t window; /* 0: none */
    float softcap;  /* 0: none */
    /* Where there is a part of the queries only: how many keys there are (0: seq), and where the
     * queries are among them. */
    int64_t keys;
    DimSpan place;
    /* [batch, seq]: the key at which a query's document begins, never less than for the query
     * before, and, where not `causal`, the key after its last, likewise. What is neither that nor
     * within the row hides other keys, but never a query's own. NULL: all is one document. */
    const int32_t *starts, *ends;
    int64_t values; /* numbers of a head of v and o; 0: head */
    /* Which probabilities are dropped, and the random numbers that say so, of its stream. */
    AttentionDrop drop;
    PhiloxStream random;
    bool pieces; /* a query gets the same bits in whatever part of the queries (causal ones) */
} AttentionShape;

/* False when a head is longer than ATTENTION_MAX_READ_HEAD (nothing is written). largest: of each
 * row's scores, where lse lies likewise; or NULL. */
bool attention_forward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                       void *o, float *lse, float *largest);

/* The gradients of q, k and v (dk and dv summed over the group) given the forward's o and lse and
 * the gradient of o. Parallel over batch and kv_heads, and where threads are twice as many over
 * parts of them. False: longer than ATTENTION_MAX_HEAD. In 16 bits, dk and dv are added up in f32
 * in `workspace`, of as many floats as k and v have elements; else it is not read.
 */
bool attention_backward(const AttentionShape *shape, const void *q, const void *k, const void *v,
                        const void *o, const float *lse, const void *d_o, void *dq, void *dk,
                        void *dv, float *workspace);

#endif
