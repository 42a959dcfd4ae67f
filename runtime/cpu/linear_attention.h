/* Attention as a state that decays, takes up keys with values and is read by queries
 * (ir/ops/linear_attention.c has the equations and papers).
 *
 * q, k [batch, seq, groups, keys]; v, o, errors and their gradients [batch, seq, groups, heads,
 * values]; decay (logarithms), write and their gradients [batch, seq, groups, heads], always f32;
 * or decay and its gradient [batch, seq, groups, heads, keys] (`by_keys`). Of f32, bf16 or f16
 * (`dtype`); states and sums are f32. keys and values <= LINEAR_ATTENTION_MAX_KEYS. Results do not
 * depend on the number of threads. Large states go by chunks of positions (linear_chunk.h), small
 * ones position by position, of which a thread's stack holds one of up to 64 values: 64 KiB.
 */
#ifndef RUNTIME_CPU_LINEAR_ATTENTION_H
#define RUNTIME_CPU_LINEAR_ATTENTION_H

#include "ir/type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINEAR_ATTENTION_MAX_KEYS = 256 };

typedef struct LinearAttentionShape {
    int64_t batch, seq, groups, heads, keys, values; /* heads: of each group */
    float scale;                                     /* of the results */
    DType dtype;
    bool by_keys; /* a decay for each key, not one for each head */
} LinearAttentionShape;

/* States that last from call to call: [sequences, groups, heads, keys, values]; rows [batch] says
 * which of them each row of the batch goes on with, places [batch, seq] where its positions are.
 * The first, 0, begins with a state of zero; from one that is negative on a row has no more of
 * them. */
typedef struct LinearAttentionStates {
    float *states;
    int64_t sequences;
    const int32_t *rows, *places;
} LinearAttentionStates;

typedef struct LinearAttentionInputs {
    const void *q, *k;
    const void *v; /* for the gradient with `write`: the errors that the forward gave */
    const float *decay;
    const float *write;                  /* NULL: values are added as they are */
    const LinearAttentionStates *states; /* NULL: zero at first, of no use after; forward alone */
} LinearAttentionInputs;

/* `errors` with in->write only: v - S' k, as stored, which is what is then written; NULL: not kept.
 */
void linear_attention_forward(const LinearAttentionShape *shape, const LinearAttentionInputs *in,
                              void *o, void *errors);

/* du: the gradient of what is written, v or write times the errors. The state runs twice, backwards
 * for du and forwards for dq; both have their part of dk, and the decays' gradients follow from
 * sums of q dq and k dk (Yang et al. 2024, arXiv 2312.06635, section 4.4). */
void linear_attention_backward(const LinearAttentionShape *shape, const LinearAttentionInputs *in,
                               const void *d_o, void *dq, void *dk, void *du, float *ddecay,
                               void *workspace);
size_t linear_attention_workspace_bytes(const LinearAttentionShape *shape);

#endif
