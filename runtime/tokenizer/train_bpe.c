#include "runtime/tokenizer/train_bpe.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"
#include "runtime/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { PART_SYMBOLS = 4096 };
#define NOWHERE UINT32_MAX

/* A word, or a part of a long one: a merge looks through parts that have the pair, not through the
 * whole word. Parts have numbers in the order of the text; empty ones are no neighbours. */
typedef struct TrainWord {
    size_t begin; /* in symbols */
    uint32_t length;
    uint32_t before, after; /* parts of the same word; NOWHERE: none */
    int64_t count;
} TrainWord;

/* A pair that was seen, and the words where its left one may be. */
typedef struct TrainPair {
    uint64_t pair; /* left << 32 | right */
    int64_t count;
    uint32_t *words;
    uint32_t n_words, words_capacity;
    bool grew; /* in the merge at hand */
} TrainPair;

typedef struct HeapEntry {
    int64_t count; /* when it was put there */
    uint64_t pair;
} HeapEntry;

typedef struct Trainer {
    uint32_t *symbols;
    TrainWord *words;
    size_t n_words;
    TrainPair *pairs;
    size_t n_pairs, pairs_capacity;
    uint32_t *slots; /* 1 + the pair; 0: free */
    size_t n_slots;
    uint64_t key;
    HeapEntry *heap;
    size_t n_heap, heap_capacity;
    uint32_t *grown; /* pairs */
    size_t n_grown, grown_capacity;
} Trainer;

static void *grow_array(void *items, size_t *capacity, size_t size) {
    *capacity = 2 * *capacity + 64;
    items = memory_grow(items, *capacity * size);
    return items;
}

/* --- pairs --- */

static void grow_slots(Trainer *trainer) {
    size_t n = trainer->n_slots ? 2 * trainer->n_slots : 65536;
    free(trainer->slots);
    trainer->slots = memory_zeroed(n, sizeof(*trainer->slots));
    trainer->n_slots = n;
    for (size_t p = 0; p < trainer->n_pairs; p++) {
        size_t i = hash_number(trainer->pairs[p].pair, trainer->key) & (n - 1);
        while (trainer->slots[i]) i = (i + 1) & (n - 1);
        trainer->slots[i] = (uint32_t)p + 1;
    }
}

/* The pair's, which is made where it is new. */
static uint32_t find_pair(Trainer *trainer, uint64_t pair) {
    if (2 * (trainer->n_pairs + 1) > trainer->n_slots) grow_slots(trainer);
    size_t mask = trainer->n_slots - 1, i = hash_number(pair, trainer->key) & mask;
    for (; trainer->slots[i]; i = (i + 1) & mask) {
        if (trainer->pairs[trainer->slots[i] - 1].pair == pair) return trainer->slots[i] - 1;
    }
    if (trainer->n_pairs == trainer->pairs_capacity) {
        trainer->pairs =
            grow_array(trainer->pairs, &trainer->pairs_capacity, sizeof(*trainer->pairs));
    }
    trainer->pairs[trainer->n_pairs] = (TrainPair){.pair = pair};
    trainer->slots[i] = (uint32_t)++trainer->n_pairs;
    return (uint32_t)trainer->n_pairs - 1;
}

static uint64_t make_pair(uint32_t left, uint32_t right) {
    return (uint64_t)left << 32 | right;
}

/* The pair is seen `change` times more, in this word. */
static void change_pair(Trainer *trainer, uint64_t pair, int64_t change, uint32_t word) {
    uint32_t index = find_pair(trainer, pair);
    TrainPair *found = &trainer->pairs[index];
    found->count += change;
    if (change < 0) return;
    if (found->n_words == 0 || found->words[found->n_words - 1] != word) {
        if (found->n_words == found->words_capacity) {
            size_t capacity = found->words_capacity;
            capacity = capacity ? 2 * capacity : 2;
            found->words = memory_grow(found->words, capacity * sizeof(*found->words));
            found->words_capacity = (uint32_t)capacity;
        }
        found->words[found->n_words++] = word;
    }
    if (found->grew) return;
    found->grew = true;
    if (trainer->n_grown == trainer->grown_capacity) {
        trainer->grown =
            grow_array(trainer->grown, &trainer->grown_capacity, sizeof(*trainer->grown));
    }
    trainer->grown[trainer->n_grown++] = index;
}

/* --- heap --- */

static bool is_above(HeapEntry a, HeapEntry b) {
    return a.count != b.count ? a.count > b.count : a.pair < b.pair;
}

static void push(Trainer *trainer, HeapEntry entry) {
    if (trainer->n_heap == trainer->heap_capacity) {
        trainer->heap = grow_array(trainer->heap, &trainer->heap_capacity, sizeof(HeapEntry));
    }
    size_t at = trainer->n_heap++;
    for (size_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!is_above(entry, trainer->heap[parent])) break;
        trainer->heap[at] = trainer->heap[parent];
    }
    trainer->heap[at] = entry;
}

static HeapEntry pop(Trainer *trainer) {
    HeapEntry top = trainer->heap[0], entry = trainer->heap[--trainer->n_heap];
    size_t at = 0, n = trainer->n_heap;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_above(trainer->heap[child + 1], trainer->heap[child])) child++;
        if (!is_above(trainer->heap[child], entry)) break;
        trainer->heap[at] = trainer->heap[child];
    }
    trainer->heap[at] = entry;
    return top;
}

static void push_grown(Trainer *trainer) {
    for (size_t i = 0; i < trainer->n_grown; i++) {
        TrainPair *pair = &trainer->pairs[trainer->grown[i]];
        pair->grew = false;
        if (pair->count > 0) push(trainer, (HeapEntry){pair->count, pair->pair});
    }
    trainer->n_grown = 0;
}

/* --- words --- */

/* A pair over the end of a part is in the part of its left one. */
static void add_parts(Trainer *trainer, const WordCount *word) {
    for (uint32_t at = 0; at < word->length; at += PART_SYMBOLS) {
        uint32_t part = (uint32_t)trainer->n_words++, left = word->length - at;
        bool is_last = left <= PART_SYMBOLS;
        const uint32_t *symbols = trainer->symbols + word->begin + at;
        uint32_t n_pairs = is_last ? left - 1 : PART_SYMBOLS;
        trainer->words[part] = (TrainWord){.begin = word->begin + at,
                                           .length = is_last ? left : PART_SYMBOLS,
                                           .before = at ? part - 1 : NOWHERE,
                                           .after = is_last ? NOWHERE : part + 1,
                                           .count = word->count};
        for (uint32_t i = 0; word->count > 0 && i < n_pairs; i++) {
            change_pair(trainer, make_pair(symbols[i], symbols[i + 1]), word->count, part);
        }
    }
}

static void load_words(Trainer *trainer, const WordCounts *counts, const uint32_t bytes[256]) {
    size_t n_parts = 0;
    for (size_t w = 0; w < counts->n_items; w++) {
        n_parts += counts->items[w].length / PART_SYMBOLS + 1;
    }
    trainer->symbols = memory_alloc((counts->n_bytes + 1) * sizeof(*trainer->symbols));
    trainer->words = memory_alloc((n_parts + 1) * sizeof(*trainer->words));
    for (size_t i = 0; i < counts->n_bytes; i++) trainer->symbols[i] = bytes[counts->bytes[i]];
    for (size_t w = 0; w < counts->n_items; w++) add_parts(trainer, &counts->items[w]);
}

/* Symbol i of the word, or what follows its end: NO_TOKEN where nothing does. */
static uint32_t symbol_at(const Trainer *trainer, const TrainWord *word, uint32_t i) {
    if (i < word->length) return trainer->symbols[word->begin + i];
    if (word->after == NOWHERE) return NO_TOKEN;
    return trainer->symbols[trainer->words[word->after].begin];
}

/* The part behind this one loses its first symbol. */
static void take_from_after(Trainer *trainer, uint32_t index) {
    TrainWord *word = &trainer->words[index], *after = &trainer->words[word->after];
    after->begin++;
    if (--after->length > 0) return;
    word->after = after->after;
    if (word->after != NOWHERE) trainer->words[word->after].before = index;
}

/* left, right with `next` behind became `merged`, which is symbol n of the word now. */
static void change_neighbours(Trainer *trainer, uint32_t index, uint32_t n, const uint32_t pair[2],
                              uint32_t merged, uint32_t next) {
    const TrainWord *word = &trainer->words[index];
    uint32_t where = n > 0 ? index : word->before;
    int64_t count = word->count;
    if (where != NOWHERE) {
        const TrainWord *before = &trainer->words[where];
        uint32_t last = trainer->symbols[before->begin + (n > 0 ? n : before->length) - 1];
        change_pair(trainer, make_pair(last, pair[0]), -count, where);
        change_pair(trainer, make_pair(last, merged), count, where);
    }
    if (next == NO_TOKEN) return;
    change_pair(trainer, make_pair(pair[1], next), -count, index);
    change_pair(trainer, make_pair(merged, next), count, index);
}

/* Every left, right in the word becomes `merged`; the pairs beside them change. */
static void merge_in_word(Trainer *trainer, uint32_t index, const uint32_t pair[2],
                          uint32_t merged) {
    TrainWord *word = &trainer->words[index];
    uint32_t *symbols = trainer->symbols + word->begin, n = 0;
    for (uint32_t i = 0; i < word->length;) {
        if (symbols[i] != pair[0] || symbol_at(trainer, word, i + 1) != pair[1]) {
            symbols[n++] = symbols[i++];
            continue;
        }
        if (i + 1 == word->length) take_from_after(trainer, index);
        i += i + 1 == word->length ? 1 : 2;
        change_neighbours(trainer, index, n, pair, merged, symbol_at(trainer, word, i));
        symbols[n++] = merged;
    }
    word->length = n;
}

static int compare_words(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void merge_pair(Trainer *trainer, uint64_t pair, uint32_t merged) {
    const uint32_t both[2] = {(uint32_t)(pair >> 32), (uint32_t)pair};
    TrainPair *found = &trainer->pairs[find_pair(trainer, pair)];
    uint32_t *words = found->words, n_words = found->n_words;
    found->words = NULL;
    found->n_words = found->words_capacity = 0;
    /* A run of the same symbol is paired from its beginning, over the ends of parts. They are in
     * order already, but perhaps where two pairs made one token. */
    if (both[0] == both[1] && n_words) qsort(words, n_words, sizeof(*words), compare_words);
    for (uint32_t i = 0; i < n_words; i++) merge_in_word(trainer, words[i], both, merged);
    free(words);
    push_grown(trainer);
}

/* --- the whole --- */

static void add_bytes(TrainedBpe *out, uint32_t first, uint32_t ids[256]) {
    uint32_t id = first, other;
    for (uint32_t character = 0; character < 0x200; character++) {
        int b = byte_of_character(character);
        if (b < 0) continue;
        unsigned char byte = (unsigned char)b;
        vocabulary_add(&out->vocabulary, id, &byte, 1, &other);
        ids[b] = id++;
    }
}

/* The token that two make together, and whether it is new. */
static uint32_t join(Vocabulary *vocabulary, uint64_t pair, uint32_t next, bool *out_is_new) {
    size_t left, right;
    const unsigned char *a = vocabulary_bytes(vocabulary, (uint32_t)(pair >> 32), &left);
    const unsigned char *b = vocabulary_bytes(vocabulary, (uint32_t)pair, &right);
    unsigned char *bytes = memory_alloc(left + right);
    uint32_t other;
    memcpy(bytes, a, left);
    memcpy(bytes + left, b, right);
    *out_is_new = vocabulary_add(vocabulary, next, bytes, left + right, &other);
    free(bytes);
    return *out_is_new ? next : other;
}

static void release(Trainer *trainer) {
    for (size_t p = 0; p < trainer->n_pairs; p++) free(trainer->pairs[p].words);
    free(trainer->pairs);
    free(trainer->slots);
    free(trainer->heap);
    free(trainer->grown);
    free(trainer->symbols);
    free(trainer->words);
}

void train_bpe(const WordCounts *counts, const TrainOptions *options, TrainedBpe *out) {
    Trainer trainer = {.key = hash_key()};
    uint32_t bytes[256], next = options->n_special + 256;
    *out = (TrainedBpe){0};
    vocabulary_init(&out->vocabulary);
    add_bytes(out, options->n_special, bytes);
    load_words(&trainer, counts, bytes);
    push_grown(&trainer);
    while (next < options->n_tokens && trainer.n_heap > 0) {
        HeapEntry top = pop(&trainer);
        int64_t count = trainer.pairs[find_pair(&trainer, top.pair)].count;
        if (count != top.count) {
            if (count > 0) push(&trainer, (HeapEntry){count, top.pair});
            continue;
        }
        if (count < options->least_count) break;
        bool is_new;
        uint32_t merged = join(&out->vocabulary, top.pair, next, &is_new);
        next += is_new;
        if (out->n_merges == out->merges_capacity) {
            out->merges = grow_array(out->merges, &out->merges_capacity, sizeof(*out->merges));
        }
        out->merges[out->n_merges++] =
            (TrainedMerge){(uint32_t)(top.pair >> 32), (uint32_t)top.pair};
        merge_pair(&trainer, top.pair, merged);
        if (options->progress && out->n_merges % 64 == 0) {
            options->progress(options->progress_user, next, options->n_tokens);
        }
    }
    release(&trainer);
}

void trained_bpe_release(TrainedBpe *trained) {
    vocabulary_release(&trained->vocabulary);
    free(trained->merges);
    *trained = (TrainedBpe){0};
}
