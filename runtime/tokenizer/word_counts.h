/* How often each word was seen: distinct words in the order in which they came. */
#ifndef RUNTIME_TOKENIZER_WORD_COUNTS_H
#define RUNTIME_TOKENIZER_WORD_COUNTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct WordCount {
    size_t begin; /* in bytes */
    uint32_t length;
    int64_t count;
} WordCount;

typedef struct WordCounts {
    uint64_t key;
    unsigned char *bytes;
    size_t n_bytes, bytes_capacity;
    WordCount *items;
    size_t n_items, items_capacity;
    uint32_t *slots; /* 1 + the item; 0: free */
    size_t n_slots;
} WordCounts;

/* Zeroed is empty. */
void word_counts_release(WordCounts *counts);
void word_counts_clear(WordCounts *counts);
/* Of at most 4 GiB. There can be 2^32 - 2 words. */
void word_counts_add(WordCounts *counts, const unsigned char *word, size_t length, int64_t count);
void word_counts_add_all(WordCounts *counts, const WordCounts *more);
/* Forgets all that were seen `most` times or less. */
void word_counts_prune(WordCounts *counts, int64_t most);
/* What they need; up to three times as much may be set aside. */
size_t word_counts_bytes(const WordCounts *counts);

#endif
