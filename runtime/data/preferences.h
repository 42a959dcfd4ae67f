/* Pairs of answers to one prompt, of which the first is preferred: documents (token_mask.h) that
 * come in twos become windows of two rows, [2 * seq] tokens: the chosen answer behind the prompt,
 * and the rejected one behind the same.
 *
 * A document's answer is what stands from its first token that counts to its last; before it is the
 * prompt, after it nothing. Both rows of a pair have as much of the prompt. Where a row would be
 * longer than seq, the prompt loses its beginning, and once one token is left of it the answer its
 * end. The rest of a row is padding, which does not count.
 *
 * Answers that are desirable or not, one by one, become windows of two rows as well: the answer
 * behind its prompt, and behind the same prompt another one's: that of the last document before it
 * (before the first one comes the last) with another prompt.
 */
#ifndef RUNTIME_DATA_PREFERENCES_H
#define RUNTIME_DATA_PREFERENCES_H

#include "runtime/data/dataset.h"
#include "runtime/data/token_buffer.h"

typedef struct PreferenceOptions {
    size_t seq; /* of a row, at least 2 */
    uint32_t pad;
    bool needs_others; /* unpaired_rows: there must be more than one prompt */
} PreferenceOptions;

typedef struct PreferenceTotals {
    int64_t n_pairs;              /* or answers, where they are none */
    int64_t n_wanted;             /* of answers by themselves */
    int64_t n_equal;              /* left out: both answers are the same tokens */
    int64_t n_prompts, n_answers; /* cut */
    int64_t n_prompt, n_answer;   /* tokens, before anything is cut; of answers both */
} PreferenceTotals;

void preference_add_totals(PreferenceTotals *sum, const PreferenceTotals *more);

/* The buffer's documents, chosen, rejected, chosen, ...; it then holds n_pairs windows. False: no
 * memory, or no pair; reported. */
bool preference_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                     Diag *diag);

/* The buffer's documents, each an answer with or without a prompt before it; the buffer then holds
 * a row of each: n_pairs is their number. False: no memory, or one without an answer; reported. */
bool answer_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                 Diag *diag);

/* Is every window of 2 * seq tokens such a pair? False: reported at the file's path. tokens and
 * labels [2 * seq] are room to read into. *out_hash changes with any token and label. */
bool preference_check(const Dataset *dataset, const char *path, int64_t seq, int32_t *tokens,
                      int32_t *labels, uint64_t *out_hash, Diag *diag);

/* The buffer's documents, each a prompt and an answer, which TOKEN_WANTED says to be desirable; the
 * buffer then holds a window of each. The first token of the second row counts where it is not.
 * False: no memory, or one without prompt or answer; reported. */
bool unpaired_rows(TokenBuffer *buffer, const PreferenceOptions *options, PreferenceTotals *out,
                   Diag *diag);
/* Is the answer of a window of those, whose labels [2 * seq] these are, desirable? The mark is
 * taken out of them. */
bool unpaired_take_kind(int32_t *labels, int64_t seq);
/* Pairs, as preference_check has found them to be, as documents: chosen answers are desirable. */
bool unpaired_documents(const Dataset *pairs, int64_t seq, int32_t *tokens, int32_t *labels,
                        TokenBuffer *out, Diag *diag);
/* *out_hash changes with any token and label of any window of 2 * seq. */
bool preference_hash(const Dataset *dataset, int64_t seq, int32_t *tokens, int32_t *labels,
                     uint64_t *out_hash, Diag *diag);

#endif
