#include "runtime/tokenizer/vocabulary.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

void vocabulary_init(Vocabulary *vocabulary) {
    *vocabulary = (Vocabulary){.key = hash_key()};
}

void vocabulary_release(Vocabulary *vocabulary) {
    free(vocabulary->bytes);
    free(vocabulary->begins);
    free(vocabulary->lengths);
    free(vocabulary->slots);
    free(vocabulary->pairs);
    *vocabulary = (Vocabulary){0};
}

/* --- bytes and ids --- */

static void grow_slots(Vocabulary *vocabulary) {
    size_t n = vocabulary->n_slots ? 2 * vocabulary->n_slots : 1024;
    uint32_t *slots = memory_alloc(n * sizeof(*slots));
    memset(slots, 0xff, n * sizeof(*slots));
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(vocabulary, id, &length);
        if (length == 0) continue;
        size_t i = hash_bytes(bytes, length, vocabulary->key) & (n - 1);
        while (slots[i] != NO_TOKEN) i = (i + 1) & (n - 1);
        slots[i] = id;
    }
    free(vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->n_slots = n;
}

uint32_t vocabulary_find(const Vocabulary *vocabulary, const void *bytes, size_t length) {
    size_t mask = vocabulary->n_slots - 1, found_length;
    if (vocabulary->n_slots == 0) return NO_TOKEN;
    for (size_t i = hash_bytes(bytes, length, vocabulary->key) & mask;; i = (i + 1) & mask) {
        uint32_t id = vocabulary->slots[i];
        if (id == NO_TOKEN) return NO_TOKEN;
        const unsigned char *found = vocabulary_bytes(vocabulary, id, &found_length);
        if (found_length == length && memcmp(found, bytes, length) == 0) return id;
    }
}

/* Makes room for `id` and what is below it. */
static void grow_ids(Vocabulary *vocabulary, uint32_t id) {
    if (id >= vocabulary->ids_capacity) {
        size_t capacity = 2 * (size_t)id + 1024;
        vocabulary->begins = memory_grow(vocabulary->begins, capacity * sizeof(uint32_t));
        vocabulary->lengths = memory_grow(vocabulary->lengths, capacity * sizeof(uint32_t));
        vocabulary->ids_capacity = capacity;
    }
    for (; vocabulary->n_ids <= id; vocabulary->n_ids++) {
        vocabulary->begins[vocabulary->n_ids] = vocabulary->lengths[vocabulary->n_ids] = 0;
    }
}

bool vocabulary_add(Vocabulary *vocabulary, uint32_t id, const void *bytes, size_t length,
                    uint32_t *out_other) {
    *out_other = NO_TOKEN;
    if (id >= VOCABULARY_MOST_IDS || length == 0 || length > UINT32_MAX - vocabulary->n_bytes) {
        return false;
    }
    *out_other = vocabulary_find(vocabulary, bytes, length);
    if (*out_other != NO_TOKEN) return false;
    if (id < vocabulary->n_ids && vocabulary->lengths[id]) return false;
    grow_ids(vocabulary, id);
    if (vocabulary->n_bytes + length > vocabulary->bytes_capacity) {
        vocabulary->bytes_capacity = 2 * (vocabulary->n_bytes + length);
        vocabulary->bytes = memory_grow(vocabulary->bytes, vocabulary->bytes_capacity);
    }
    if (2 * ((size_t)vocabulary->n_tokens + 1) > vocabulary->n_slots) grow_slots(vocabulary);
    memcpy(vocabulary->bytes + vocabulary->n_bytes, bytes, length);
    vocabulary->begins[id] = (uint32_t)vocabulary->n_bytes;
    vocabulary->lengths[id] = (uint32_t)length;
    vocabulary->n_bytes += length;
    vocabulary->n_tokens++;
    size_t mask = vocabulary->n_slots - 1;
    size_t i = hash_bytes(bytes, length, vocabulary->key) & mask;
    while (vocabulary->slots[i] != NO_TOKEN) i = (i + 1) & mask;
    vocabulary->slots[i] = id;
    return true;
}

/* --- pairs --- */

static PairSlot *place_pair(PairSlot *slots, size_t n, uint64_t pair, uint64_t key) {
    size_t i = hash_number(pair, key) & (n - 1);
    while (slots[i].pair != pair && slots[i].pair != UINT64_MAX) i = (i + 1) & (n - 1);
    return &slots[i];
}

static void grow_pairs(Vocabulary *vocabulary) {
    size_t n = vocabulary->n_pair_slots ? 2 * vocabulary->n_pair_slots : 1024;
    PairSlot *slots = memory_alloc(n * sizeof(*slots));
    memset(slots, 0xff, n * sizeof(*slots));
    for (size_t i = 0; i < vocabulary->n_pair_slots; i++) {
        PairSlot old = vocabulary->pairs[i];
        if (old.pair == UINT64_MAX) continue;
        *place_pair(slots, n, old.pair, vocabulary->key) = old;
    }
    free(vocabulary->pairs);
    vocabulary->pairs = slots;
    vocabulary->n_pair_slots = n;
}

void vocabulary_add_pair(Vocabulary *vocabulary, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t merged) {
    uint64_t pair = (uint64_t)left << 32 | right;
    if (2 * (vocabulary->n_pairs + 1) > vocabulary->n_pair_slots) grow_pairs(vocabulary);
    PairSlot *slot = place_pair(vocabulary->pairs, vocabulary->n_pair_slots, pair, vocabulary->key);
    vocabulary->n_pairs += slot->pair == UINT64_MAX;
    *slot = (PairSlot){pair, rank, merged};
}
