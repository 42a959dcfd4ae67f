/* The models of a tokenizer.json that merge nothing, Unigram and WordPiece -> the tokenizer's. */
#ifndef RUNTIME_TOKENIZER_JSON_PIECES_H
#define RUNTIME_TOKENIZER_JSON_PIECES_H

#include "ir/base/json.h"
#include "runtime/tokenizer/tokenizer.h"

/* A model of type Unigram: its vocab, scores and unknown token. False: reported. */
bool json_read_unigram(Tokenizer *tokenizer, const json_t *model, SourceLoc loc, Diag *diag);
/* What a model of type WordPiece says beside its vocab and its unknown token. */
bool json_read_wordpiece(Tokenizer *tokenizer, const json_t *model, SourceLoc loc, Diag *diag);
/* Once the added tokens are there, as special ones are no pieces of a text that spells them; nor
 * are the names of bytes, <0x41>. So it is in SentencePiece's own, while Hugging Face's find both.
 */
bool json_finish_pieces(Tokenizer *tokenizer, SourceLoc loc, Diag *diag);

#endif
