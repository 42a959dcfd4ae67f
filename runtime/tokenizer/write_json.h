/* What was learned as a tokenizer.json, as Hugging Face's tokenizers writes and reads it. */
#ifndef RUNTIME_TOKENIZER_WRITE_JSON_H
#define RUNTIME_TOKENIZER_WRITE_JSON_H

#include "ir/base/strbuf.h"
#include "runtime/tokenizer/train_bpe.h"
#include "runtime/tokenizer/train_unigram.h"

/* pattern: by which text was divided. special [n_special]: valid UTF-8, ids from 0. */
void write_tokenizer_json(StrBuf *out, const TrainedBpe *trained, const char *pattern,
                          const char *const *special, int n_special);

/* The same of a Unigram: after the special tokens, of which special[unknown] is the one that stands
 * for what is unknown, which nothing is, come those of bytes (<0x41>) and the pieces. Spaces are
 * U+2581 in them. */
void write_unigram_json(StrBuf *out, const TrainedUnigram *trained, const char *pattern,
                        const char *const *special, int n_special, int unknown);

#endif
