/* A trained BPE as a tokenizer.json, as Hugging Face's tokenizers writes and reads it. */
#ifndef RUNTIME_TOKENIZER_WRITE_JSON_H
#define RUNTIME_TOKENIZER_WRITE_JSON_H

#include "ir/base/strbuf.h"
#include "runtime/tokenizer/train_bpe.h"

/* pattern: by which text was divided. special [n_special]: valid UTF-8, ids from 0. */
void write_tokenizer_json(StrBuf *out, const TrainedBpe *trained, const char *pattern,
                          const char *const *special, int n_special);

#endif
