/* The pieces of a vocabulary by their bytes: which of them a text begins with. A double array (Aoe
 * 1989): a state's successor by byte c is at its base + c, if that says the state is its parent. */
#ifndef RUNTIME_TOKENIZER_PIECE_TRIE_H
#define RUNTIME_TOKENIZER_PIECE_TRIE_H

#include "runtime/tokenizer/vocabulary.h"

/* So that a search through n bytes takes at most n times this. */
enum { PIECE_MOST_BYTES = 1024 };

typedef struct PieceUnit {
    uint32_t base, parent;
    uint32_t id; /* of the piece that ends here, or NO_TOKEN */
} PieceUnit;

typedef struct PieceTrie {
    PieceUnit *units; /* the root is 0; 256 free ones follow the last base */
    size_t n_units, capacity;
} PieceTrie;

/* Of all tokens but those that `skips` [n_ids] names. False: they would take too much memory. */
bool piece_trie_build(PieceTrie *trie, const Vocabulary *vocabulary, const bool *skips);
void piece_trie_release(PieceTrie *trie);

/* 0: there is none. */
static inline uint32_t piece_trie_step(const PieceTrie *trie, uint32_t state, unsigned char byte) {
    uint32_t next = trie->units[state].base + byte;
    return trie->units[next].parent == state ? next : 0;
}

#endif
