/* Training text as tokens: a memory-mapped file cut into windows, drawn in a seeded random order.
 *
 * Two kinds of file, told apart by their first bytes:
 *   - llm.c's token file: int32[256] header {20240520, version 1, n_tokens, ...}, then uint16
 * tokens
 *   - any other file: one token (0..255) per byte
 * Both little-endian. Window i holds tokens i*seq .. i*seq+seq: seq inputs, and as labels the same
 * shifted by one. Inputs of different windows do not overlap.
 *
 * Tokens of a token file are checked against the vocabulary when they are read, bytes when the file
 * is opened. The file must not shrink while it is open (that kills the process, as for any
 * mapping).
 */
#ifndef RUNTIME_DATA_DATASET_H
#define RUNTIME_DATA_DATASET_H

#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Dataset Dataset;

/* seq: tokens per window; vocab: every token must be below it. Reports and returns NULL. */
Dataset *dataset_open(const char *path, int seq, int vocab, Diag *diag);
/* The file stays mapped until the last Dataset over it is closed, splits included. One thread. */
void dataset_close(Dataset *dataset);

/* The first (1 - val_fraction) of the tokens as *out_train, the tail as *out_val; they share no
 * token. 0 < val_fraction < 1, and each part needs at least one window. Reports, returns false. */
bool dataset_split(const Dataset *dataset, double val_fraction, Dataset **out_train,
                   Dataset **out_val, Diag *diag);

int64_t dataset_count_windows(const Dataset *dataset);
int64_t dataset_count_tokens(const Dataset *dataset);
/* Of the file that it is a part of; what is read of them is resident while memory is to spare. */
int64_t dataset_mapped_bytes(const Dataset *dataset);

/* Global sample number `index` >= 0 of an endless sequence: epoch index / n_windows visits every
 * window once, in an order that depends on seed and epoch only. -> tokens [seq], labels [seq].
 * Allocates nothing; any thread. False, reported, at a token outside the vocabulary.
 * The order is a Feistel network over the window numbers with cycle walking (Black & Rogaway 2002,
 * "Ciphers with arbitrary finite domains"): a permutation that needs no memory. */
bool dataset_sample(const Dataset *dataset, uint64_t seed, int64_t index, int32_t *tokens,
                    int32_t *labels, Diag *diag);

/* Window i in file order, 0 <= i < n_windows, for validation. As dataset_sample otherwise. */
bool dataset_window(const Dataset *dataset, int64_t i, int32_t *tokens, int32_t *labels,
                    Diag *diag);

/* -sum_t p(t) log p(t) in nats, p the frequencies of this part's tokens: the loss of a model that
 * knows nothing but frequencies. Reads all of it. */
double dataset_unigram_entropy(const Dataset *dataset);

#endif
