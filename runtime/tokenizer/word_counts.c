#include "runtime/tokenizer/word_counts.h"

#include "ir/base/diag.h"
#include "ir/base/hash.h"
#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

void word_counts_release(WordCounts *counts) {
    free(counts->bytes);
    free(counts->items);
    free(counts->slots);
    *counts = (WordCounts){0};
}

void word_counts_clear(WordCounts *counts) {
    counts->n_bytes = counts->n_items = 0;
    if (counts->slots) memset(counts->slots, 0, counts->n_slots * sizeof(*counts->slots));
}

size_t word_counts_bytes(const WordCounts *counts) {
    return counts->n_bytes + counts->n_items * (sizeof(WordCount) + 2 * sizeof(uint32_t));
}

static void fill_slots(WordCounts *counts) {
    size_t mask = counts->n_slots - 1;
    memset(counts->slots, 0, counts->n_slots * sizeof(*counts->slots));
    for (size_t item = 0; item < counts->n_items; item++) {
        const WordCount *word = &counts->items[item];
        size_t i = hash_bytes(counts->bytes + word->begin, word->length, counts->key) & mask;
        while (counts->slots[i]) i = (i + 1) & mask;
        counts->slots[i] = (uint32_t)item + 1;
    }
}

static void grow(WordCounts *counts, size_t length) {
    if (counts->n_items == counts->items_capacity) {
        counts->items_capacity = 2 * counts->items_capacity + 1024;
        counts->items = memory_grow(counts->items, counts->items_capacity * sizeof(*counts->items));
    }
    if (length > counts->bytes_capacity - counts->n_bytes) {
        counts->bytes_capacity = 2 * (counts->n_bytes + length) + 8192;
        counts->bytes = memory_grow(counts->bytes, counts->bytes_capacity);
    }
    if (2 * (counts->n_items + 1) > counts->n_slots) {
        counts->n_slots = counts->n_slots ? 2 * counts->n_slots : 4096;
        free(counts->slots);
        counts->slots = memory_alloc(counts->n_slots * sizeof(*counts->slots));
        counts->key = hash_key();
        fill_slots(counts);
    }
}

void word_counts_add(WordCounts *counts, const unsigned char *word, size_t length, int64_t count) {
    grow(counts, length);
    size_t mask = counts->n_slots - 1, i = hash_bytes(word, length, counts->key) & mask;
    for (; counts->slots[i]; i = (i + 1) & mask) {
        WordCount *found = &counts->items[counts->slots[i] - 1];
        if (found->length == length && memcmp(counts->bytes + found->begin, word, length) == 0) {
            found->count += count;
            return;
        }
    }
    memcpy(counts->bytes + counts->n_bytes, word, length);
    counts->items[counts->n_items++] = (WordCount){counts->n_bytes, (uint32_t)length, count};
    counts->slots[i] = (uint32_t)counts->n_items;
    counts->n_bytes += length;
}

void word_counts_add_all(WordCounts *counts, const WordCounts *more) {
    for (size_t i = 0; i < more->n_items; i++) {
        const WordCount *word = &more->items[i];
        if (word->count == 0) continue;
        word_counts_add(counts, more->bytes + word->begin, word->length, word->count);
    }
}

void word_counts_prune(WordCounts *counts, int64_t most) {
    size_t n_items = 0, n_bytes = 0;
    for (size_t i = 0; i < counts->n_items; i++) {
        WordCount word = counts->items[i];
        if (word.count <= most) continue;
        memmove(counts->bytes + n_bytes, counts->bytes + word.begin, word.length);
        word.begin = n_bytes;
        n_bytes += word.length;
        counts->items[n_items++] = word;
    }
    counts->n_items = n_items;
    counts->n_bytes = n_bytes;
    if (counts->slots) fill_slots(counts);
}
