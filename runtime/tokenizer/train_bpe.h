/* Learns a byte-level BPE from counts of words (Sennrich, Haddow & Birch 2016): again and again the
 * pair of adjacent symbols that is seen most becomes a token, of equals the one of the lowest ids.
 * That is the order of Hugging Face's trainer, and so are the ids: special tokens, then bytes in
 * the order of their characters, then what was merged.
 *
 * Counts of pairs follow the words that a merge changes; a heap is put right as it is read. */
#ifndef RUNTIME_TOKENIZER_TRAIN_BPE_H
#define RUNTIME_TOKENIZER_TRAIN_BPE_H

#include "runtime/tokenizer/vocabulary.h"
#include "runtime/tokenizer/word_counts.h"

typedef struct TrainOptions {
    uint32_t n_special;  /* ids that are taken */
    uint32_t n_tokens;   /* to have in all, n_special and 256 bytes included */
    int64_t least_count; /* of a pair that is merged; 1 or more */
    void (*progress)(void *user, int64_t n_done, int64_t n_all); /* may be NULL */
    void *progress_user;
} TrainOptions;

typedef struct TrainedMerge {
    uint32_t left, right;
} TrainedMerge;

typedef struct TrainedBpe {
    Vocabulary vocabulary; /* without special tokens; fewer tokens where no more pairs are seen */
    TrainedMerge *merges;
    size_t n_merges, merges_capacity;
} TrainedBpe;

void train_bpe(const WordCounts *counts, const TrainOptions *options, TrainedBpe *out);
void trained_bpe_release(TrainedBpe *trained);

#endif
