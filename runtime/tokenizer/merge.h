/* Byte pair encoding of one word (Sennrich, Haddow & Birch 2016): of all adjacent pairs that may be
 * merged the one of lowest rank is, the leftmost of equals, until none is left.
 *
 * A word of n symbols takes O(n log n): a heap of pairs over a linked list, but for short words,
 * where looking at all of them each time is faster. */
#ifndef RUNTIME_TOKENIZER_MERGE_H
#define RUNTIME_TOKENIZER_MERGE_H

#include "runtime/tokenizer/vocabulary.h"

/* Of one thread; zeroed at first. It grows with the longest word: 28 bytes a symbol. */
typedef struct MergeSpace {
    uint32_t *nexts, *befores;
    uint64_t *heap;
    size_t capacity, n_heap, heap_capacity;
} MergeSpace;
void merge_release(MergeSpace *space);

/* Merges symbols [n] in place; returns how many are left. n < 2^31. */
size_t merge_word(const Vocabulary *vocabulary, MergeSpace *space, uint32_t *symbols, size_t n);

#endif
