/* Words where a file names none: SentencePiece's kind of tokenizers look for tokens in a whole
 * document. Where no token goes on behind a space, as in most of them, each space begins a word. */
#ifndef RUNTIME_TOKENIZER_SPACE_WORDS_H
#define RUNTIME_TOKENIZER_SPACE_WORDS_H

#include "runtime/tokenizer/tokenizer.h"

/* Adds that step to a tokenizer that is whole but for it, if its tokens allow it: the same tokens,
 * found sooner, as words come again and a document's parts are for several threads. */
void tokenizer_divide_at_spaces(Tokenizer *tokenizer);

#endif
