/* The tokens of a BPE tokenizer and what may be merged: bytes <-> id, and (left, right) -> (rank,
 * merged). Built once, then read by any number of threads.
 *
 * Lowest rank is merged first. Ids need not be dense: those without a token have no bytes.
 */
#ifndef RUNTIME_TOKENIZER_VOCABULARY_H
#define RUNTIME_TOKENIZER_VOCABULARY_H

#include "ir/base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No token; no rank. */
#define NO_TOKEN UINT32_MAX
/* Ids are below it: tables by id stay small whatever a file says. */
#define VOCABULARY_MOST_IDS ((uint32_t)1 << 22)

typedef struct PairSlot {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank, merged;
} PairSlot;

typedef struct Vocabulary {
    uint64_t key; /* of the hashes */
    unsigned char *bytes;
    size_t n_bytes, bytes_capacity;
    uint32_t *begins, *lengths; /* [n_ids], into bytes */
    uint32_t n_ids;             /* the highest and 1 */
    size_t ids_capacity;
    uint32_t n_tokens;
    uint32_t *slots; /* of ids, by their bytes; NO_TOKEN: free */
    size_t n_slots;  /* a power of two; 0: not yet */
    PairSlot *pairs;
    size_t n_pair_slots, n_pairs;
} Vocabulary;

void vocabulary_init(Vocabulary *vocabulary);
void vocabulary_release(Vocabulary *vocabulary);

/* False: the id is VOCABULARY_MOST_IDS or more, or has a token, or the bytes have one (whose id
 * *out_other is then), or are none. */
bool vocabulary_add(Vocabulary *vocabulary, uint32_t id, const void *bytes, size_t length,
                    uint32_t *out_other);
/* The id of these bytes, or NO_TOKEN. */
uint32_t vocabulary_find(const Vocabulary *vocabulary, const void *bytes, size_t length);

/* The bytes of a token; length 0 where the id has none. */
static inline const unsigned char *vocabulary_bytes(const Vocabulary *vocabulary, uint32_t id,
                                                    size_t *out_length) {
    *out_length = id < vocabulary->n_ids ? vocabulary->lengths[id] : 0;
    return *out_length ? vocabulary->bytes + vocabulary->begins[id] : vocabulary->bytes;
}

/* Of a pair that is there already, the new rank counts. */
void vocabulary_add_pair(Vocabulary *vocabulary, uint32_t left, uint32_t right, uint32_t rank,
                         uint32_t merged);

/* NULL: they are not merged. */
static inline const PairSlot *vocabulary_find_pair(const Vocabulary *vocabulary, uint32_t left,
                                                   uint32_t right) {
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t mask = vocabulary->n_pair_slots - 1;
    if (vocabulary->n_pair_slots == 0) return NULL;
    for (size_t i = hash_number(pair, vocabulary->key) & mask;; i = (i + 1) & mask) {
        const PairSlot *slot = &vocabulary->pairs[i];
        if (slot->pair == pair) return slot;
        if (slot->pair == UINT64_MAX) return NULL;
    }
}

#endif
