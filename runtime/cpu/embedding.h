/* Token embedding over a table whose rows may be one rank's share of the vocabulary.
 *
 * tokens [n] i32; table [vocab_local, model] holds the rows of tokens vocab_offset ..
 * vocab_offset + vocab_local - 1. Other tokens, negative ones included, belong to another rank:
 * they give zero rows and no gradient. Results do not depend on the number of threads.
 */
#ifndef RUNTIME_CPU_EMBEDDING_H
#define RUNTIME_CPU_EMBEDDING_H

#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

/* out[i] = table[tokens[i] - vocab_offset], out [n, model], both of `dtype`: f32, bf16 or f16. */
void embedding_forward(DType dtype, int64_t n, int64_t model, int64_t vocab_local,
                       int64_t vocab_offset, const int32_t *tokens, const void *table, void *out);

/* dtable[tokens[i] - vocab_offset] += dy[i], in the order of i; dtable is f32, dy of
 * `dtype`. Without `accumulate` dtable is zeroed first; with it only the rows of tokens that occur
 * are touched. */
void embedding_backward(DType dtype, int64_t n, int64_t model, int64_t vocab_local,
                        int64_t vocab_offset, const int32_t *tokens, const void *dy,
                        bool accumulate, float *dtable);

#endif
