/* What normalizers that look at one character at a time make of it (CharacterChange, normalize.h).
 */
#ifndef RUNTIME_TOKENIZER_CHARACTERS_H
#define RUNTIME_TOKENIZER_CHARACTERS_H

#include "runtime/tokenizer/normalize.h"

CharacterChange character_lower;              /* by itself: a final sigma is none */
CharacterChange character_without_accents;    /* marks are left out: category M */
CharacterChange character_without_nonspacing; /* category Mn, BERT's accents */
/* BERT's: controls are left out, white space is a space. */
CharacterChange character_clean;
/* BERT's: spaces around Chinese characters. */
CharacterChange character_spaced;
/* SentencePiece's "nmt": controls are left out, white space and some that show nothing are spaces.
 */
CharacterChange character_nmt;

/* Columns of a terminal that a text takes; a byte that is no UTF-8 takes one. */
int text_columns(const char *text);

#endif
