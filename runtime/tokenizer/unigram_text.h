/* What a Unigram is learned from: the characters that must be pieces, and words of these alone. */
#ifndef RUNTIME_TOKENIZER_UNIGRAM_TEXT_H
#define RUNTIME_TOKENIZER_UNIGRAM_TEXT_H

#include "runtime/tokenizer/word_counts.h"

typedef struct UnigramWord {
    const unsigned char *bytes; /* valid UTF-8, of `parts` */
    uint32_t length;
    int64_t count;
} UnigramWord;

typedef struct UnigramCharacter {
    uint32_t character;
    int64_t count;
} UnigramCharacter;

typedef struct UnigramText {
    WordCounts parts;
    UnigramWord *words; /* in the order of their bytes, whatever order they came in */
    size_t n_words;
    UnigramCharacter *characters; /* the most frequent first, of equals the lowest */
    uint32_t n_characters;
    int64_t n_in_all; /* characters of all words, as often as they come */
} UnigramText;

/* coverage: the share of all characters that the most frequent ones must reach together. Words are
 * cut at the others, at bytes that are no UTF-8 and at U+0000, which no JSON string spells for all
 * readers; and after LATTICE_MOST_CHARACTERS. */
void unigram_text_make(UnigramText *text, const WordCounts *counts, double coverage);
void unigram_text_release(UnigramText *text);

#endif
