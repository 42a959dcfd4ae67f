/* Groups of texts that belong together (a query, what answers it, perhaps others that do not) ->
 * windows of [seq] tokens, so many groups in each: a model compares each query with all answers of
 * its window. Documents (token_mask.h) end with the number of their role, 0 the query, the only
 * token that counts, and those of a group follow each other.
 *
 * No text stands in a window twice, where others can be found, as it would be an answer and none;
 * but what is no answer to one may be none to others.
 * Texts lose their ends where they are longer than `length`, and the longest ones of a window where
 * it has no room; tokens around them stay. In place of its role a text then has role * groups +
 * group, which class_row_finish (class_rows.h) makes a label, with `pad` in its place.
 */
#ifndef RUNTIME_DATA_EMBED_ROWS_H
#define RUNTIME_DATA_EMBED_ROWS_H

#include "runtime/data/token_buffer.h"

typedef struct EmbedRowOptions {
    size_t seq;
    size_t groups, count; /* in a window; texts of each */
    size_t length;        /* of a text, at most */
    uint32_t pad;
    bool last; /* a text's last token may be `pad`, which ends it; no other may that is a text's */
} EmbedRowOptions;

typedef struct EmbedTotals {
    int64_t n_groups, n_rows;
    int64_t n_texts, n_tokens; /* before anything is cut, roles not among them */
    int64_t n_kept;            /* tokens that are in windows, likewise */
    int64_t n_cut;             /* texts */
    int64_t n_short;           /* windows of fewer groups */
    int64_t n_torn; /* groups that have a text as what is no answer, and otherwise, too */
    int64_t n_apart, n_shared; /* groups that are not learned from; whose query or answer is */
} EmbedTotals;

void embed_add_totals(EmbedTotals *sum, const EmbedTotals *more);

/* A document without its last token. */
typedef struct EmbedText {
    size_t begin, length, n_around;
    uint32_t role;
    uint64_t hash; /* of its tokens */
} EmbedText;

/* All documents of the buffer, from malloc. NULL: one has `pad` within, or no room beside what is
 * around it, or there is none; reported. */
EmbedText *embed_find_texts(const TokenBuffer *buffer, const EmbedRowOptions *options,
                            int64_t *out_count, Diag *diag);
/* How many tokens a text has where it may have `most`, and these (out may be NULL). */
size_t embed_take_text(const TokenBuffer *buffer, const EmbedText *text, size_t most,
                       uint32_t *out);

/* The groups that rows were made of, for other rows of the same ones: who is compared with whom is
 * another matter in each epoch. */
typedef struct EmbedPool {
    EmbedRowOptions options;
    TokenBuffer buffer;
    EmbedText *texts;  /* [n_groups * count] */
    int64_t n_groups;  /* that are used */
    int64_t *groups;   /* [n_groups]: those of the first row, of the second, ... */
    int64_t *row_ends; /* [n_rows]: in groups */
    int64_t n_rows;
    /* Of one epoch; -1: of none yet. */
    int64_t epoch, n_epoch_rows, *epoch_groups, *epoch_ends;
    unsigned char *marks; /* [seq] */
    uint32_t *tokens;
} EmbedPool;

/* Rows in place of the documents in `buffer`, which the pool has then; released by embed_release,
 * either way. False: no memory, no text, one with `pad` within, or no room for so many; reported.
 */
bool embed_rows(TokenBuffer *buffer, const EmbedRowOptions *options, EmbedPool *pool,
                EmbedTotals *out, Diag *diag);
void embed_release(EmbedPool *pool);
/* From now on the pool is of the groups of its first n_rows rows; counts others in n_apart. */
void embed_use_rows(EmbedPool *pool, int64_t n_rows, EmbedTotals *out);
/* A row of an epoch from 1 on, as a dataset gives it: tokens, labels [seq]. Depends on the pool,
 * seed, epoch and number (of as many as the pool has) only. */
void embed_epoch_row(EmbedPool *pool, uint64_t seed, int64_t epoch, int64_t row, int32_t *tokens,
                     int32_t *labels);

#endif
