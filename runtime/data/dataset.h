/* Training text as tokens: memory-mapped files (token_file.h) cut into windows, drawn in a seeded
 * random order.
 *
 * A folder stands for its files in the order of their names; those whose names begin with a dot,
 * and folders in it, are passed over. No window reaches from one file into the next. Window i of a
 * file holds its tokens i*seq .. i*seq+seq: seq inputs, and as labels the same shifted by one.
 * Inputs of different windows do not overlap.
 *
 * Where a file has a mask (token_mask.h), labels that do not count are DATASET_NO_LABEL. The last
 * window then needs no label past its end: it has none that counts.
 *
 * Tokens are checked against the vocabulary when they are read, bytes of text when the file is
 * opened. Files must not shrink while they are open (that kills the process, as for any mapping).
 */
#ifndef RUNTIME_DATA_DATASET_H
#define RUNTIME_DATA_DATASET_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Dataset Dataset;

enum { DATASET_NO_LABEL = -1 };

/* path: a file's or a folder's. seq: tokens per window; vocab: every token must be below it;
 * plain_bytes: 1, 2 or 4, a token's in files that do not say it. Reports and returns NULL. */
Dataset *dataset_open(const char *path, int seq, int vocab, int plain_bytes, Diag *diag);
/* Tokens in memory, from malloc, and which of them count (1 or 0; NULL: all). */
typedef struct DatasetTokens {
    void *tokens;
    int token_bytes; /* 2 or 4 */
    int64_t n_tokens;
    unsigned char *counts;
} DatasetTokens;
/* The same of these, which the Dataset takes, also where it fails. path: where they came from. */
Dataset *dataset_from_tokens(const char *path, DatasetTokens tokens, int seq, int vocab,
                             Diag *diag);
/* The files stay mapped until the last Dataset over it is closed, splits included. One thread. */
void dataset_close(Dataset *dataset);

/* The first (1 - val_fraction) of the tokens as *out_train, the tail as *out_val; they share no
 * token, and where there is a mask, the tail begins with one of the windows of the whole. 0 <
 * val_fraction < 1, and each part needs at least one window. Reports, returns false. */
bool dataset_split(const Dataset *dataset, double val_fraction, Dataset **out_train,
                   Dataset **out_val, Diag *diag);

int64_t dataset_count_windows(const Dataset *dataset);
int64_t dataset_count_tokens(const Dataset *dataset);
/* Of these, those that count as labels. */
int64_t dataset_count_counted(const Dataset *dataset);
/* Labels of its windows, all of one epoch, that count; but those that are `left_out` (-1: none). */
int64_t dataset_count_labels(const Dataset *dataset, int64_t left_out);
bool dataset_is_masked(const Dataset *dataset);
int dataset_count_files(const Dataset *dataset);
/* Of the files that it is a part of, or of tokens in memory; what is read of files is resident
 * while memory is to spare. */
int64_t dataset_mapped_bytes(const Dataset *dataset);

/* Global sample number `index` >= 0 of an endless sequence: epoch index / n_windows visits every
 * window once, in an order that depends on seed and epoch only. -> tokens [seq], labels [seq].
 * Allocates nothing; any thread. False, reported, at a token outside the vocabulary. */
bool dataset_sample(const Dataset *dataset, uint64_t seed, int64_t index, int32_t *tokens,
                    int32_t *labels, Diag *diag);
/* Which window that is. */
int64_t dataset_sample_window(const Dataset *dataset, uint64_t seed, int64_t index);

/* Window i in file order, 0 <= i < n_windows, for validation. As dataset_sample otherwise. */
bool dataset_window(const Dataset *dataset, int64_t i, int32_t *tokens, int32_t *labels,
                    Diag *diag);

/* -sum_t p(t) log p(t) in nats, p the frequencies of this part's tokens that count: the loss of a
 * model that knows nothing but frequencies. Of at most `most` tokens, in pieces spread evenly over
 * all. */
double dataset_unigram_entropy(const Dataset *dataset, int64_t most);
/* The same of several in shares [n] that sum to 1: of at most `most` tokens of each. */
double dataset_blend_entropy(const Dataset *const *parts, const double *shares, int n,
                             int64_t most);
/* As many as are read in about a second. */
#define DATASET_MOST_COUNTED ((int64_t)1 << 28)

#endif
