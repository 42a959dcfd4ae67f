/* What SentencePiece does to text before it looks for pieces (Kudo & Richardson 2018, its
 * normalizer.cc): characters by a charsmap, the longest match first; white space becomes marks,
 * runs of it one, with one in front of what begins. */
#ifndef RUNTIME_TOKENIZER_SENTENCEPIECE_TEXT_H
#define RUNTIME_TOKENIZER_SENTENCEPIECE_TEXT_H

#include "runtime/tokenizer/charsmap.h"
#include "runtime/tokenizer/piece_trie.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, for a space */

typedef struct SentencePieceText {
    const Charsmap *charsmap; /* NULL: characters stay */
    PieceTrie symbols;        /* what the user defined, which stays as it is; owned */
    bool has_symbols;
    bool prefix; /* a mark in front of what begins */
    bool trims;  /* no space at the ends, and one where there are several */
} SentencePieceText;
void sentencepiece_text_release(SentencePieceText *rules);

struct NormalBuffer;
/* Valid UTF-8 -> out. begins: a document, or what follows a special token. */
void sentencepiece_text(const SentencePieceText *rules, const unsigned char *text, size_t length,
                        bool begins, struct NormalBuffer *out);

#endif
