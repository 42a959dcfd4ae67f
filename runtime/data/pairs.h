/* Prompts for an encoder and completions for a decoder: documents (token_mask.h) become windows of
 * the same size each, [source + seq] tokens. A document's completion is its last run of tokens that
 * count; what stands before it is its prompt. Both begin their part of the window and end with
 * `eos`; the rest is padding. Only the completion counts. Prompts lose their end where they are too
 * long, completions too.
 */
#ifndef RUNTIME_DATA_PAIRS_H
#define RUNTIME_DATA_PAIRS_H

#include "runtime/data/token_buffer.h"

typedef struct PairOptions {
    int64_t source, seq;
    uint32_t eos, pad;
} PairOptions;

typedef struct PairTotals {
    int64_t n_pairs, n_cut; /* of them: of which an end is lost */
    int64_t n_left_out;     /* documents without a prompt, or without a completion */
    int64_t n_source, n_target;
} PairTotals;

void pair_add_totals(PairTotals *sum, const PairTotals *more);

/* The buffer's documents begin where TOKEN_BEGINS says; it then holds n_pairs windows. False: no
 * memory, or no pair; reported. */
bool pair_documents(TokenBuffer *buffer, const PairOptions *options, PairTotals *out, Diag *diag);

#endif
