/* How far the softmax of s is from probabilities that are stored of some words of each row, along a
 * last axis that may be sharded and padded (ir/ops/stored.c says what is computed; runtime/cpu/
 * softmax.h how rows lie).
 *
 * s [rows, n_local] is of `dtype`; words are numbers of the whole axis, of which column 0 here is
 * `offset`; those of other shards, or of none, count for nothing here. Results do not depend on the
 * number of threads.
 */
#ifndef RUNTIME_CPU_STORED_H
#define RUNTIME_CPU_STORED_H

#include "ir/type.h"

#include <stdint.h>

typedef struct Stored {
    DType dtype;
    int64_t rows, n_local, n_valid, offset;
    int64_t n_words; /* of each row */
    const void *s;
    const int32_t *words;  /* [rows, n_words] */
    const float *logprobs; /* likewise */
    const float *lse;      /* [rows], of the whole axis */
} Stored;

/* Of the columns here, for each row: sum of q (log q - log p) over stored words, of p over others,
 * and of q. */
void stored_rows(const Stored *d, float *sum, float *tail, float *known);

/* ds = dvalue (p on - q) at stored words, dvalue p off at others; padding columns 0. on, off and
 * dvalue are [rows]. ds may be s. */
void stored_grad(const Stored *d, const float *on, const float *off, const float *dvalue, void *ds);

#endif
