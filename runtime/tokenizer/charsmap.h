/* SentencePiece's "precompiled_charsmap": what becomes of characters before text is divided, as a
 * trie over a text of replacements (Kudo & Richardson 2018). Bytes from outside: whatever they are,
 * nothing outside of them is read. */
#ifndef RUNTIME_TOKENIZER_CHARSMAP_H
#define RUNTIME_TOKENIZER_CHARSMAP_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Charsmap {
    uint32_t *units; /* a double array as Darts-clone writes it */
    size_t n_units;
    char *texts; /* replacements, each ended by a NUL */
    size_t n_texts;
    bool stays[128]; /* an ASCII character that nothing becomes of */
} Charsmap;

enum { CHARSMAP_MOST_TEXT = 1024 }; /* bytes of a replacement */

/* bytes [length] -> a map in `arena`; NULL, reported at loc. */
Charsmap *charsmap_read(const unsigned char *bytes, size_t length, Arena *arena, SourceLoc loc,
                        Diag *diag);

/* What the shortest beginning of chunk [length] that the map knows becomes; NULL: it knows none. As
 * in Hugging Face's, which replace the whole chunk by it. */
const char *charsmap_find(const Charsmap *map, const unsigned char *chunk, size_t length);

/* What the longest beginning of text [length] that the map knows becomes, and how many bytes that
 * is; NULL: it knows none. As in SentencePiece. */
const char *charsmap_find_longest(const Charsmap *map, const unsigned char *text, size_t length,
                                  size_t *out_taken);

#endif
