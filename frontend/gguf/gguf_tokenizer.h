/* A tokenizer.json as a GGUF file's metadata, and back.
 *
 * llama.cpp divides text into words by a pattern that it has under a name (tokenizer.ggml.pre), so
 * only tokenizers of such patterns can be written. BPE of bytes is its model "gpt2", BPE of
 * characters with a fallback to bytes its "llama", where merges are scores of tokens. A model of
 * 256 tokens without a tokenizer reads bytes, which are "gpt2" without merges.
 */
#ifndef FRONTEND_GGUF_GGUF_TOKENIZER_H
#define FRONTEND_GGUF_GGUF_TOKENIZER_H

#include "frontend/gguf/gguf_writer.h"

#include <jansson.h>

typedef struct GgufTokenizer {
    const char *kind; /* "gpt2", "llama", "bytes" or "none" */
    bool ends_texts;  /* it has a token that does */
    bool composes;    /* its text is in NFC, which llama.cpp does not see to */
    int n_plain;      /* added tokens that there take no spaces and words into account */
} GgufTokenizer;

/* path: tokenizer.json, or a folder with it and perhaps tokenizer_config.json and
 * chat_template.jinja; NULL: none. vocab: tokens of the model. False: reported. */
bool gguf_tokenizer_put(GgufWriter *writer, Arena *arena, const char *path, int64_t vocab,
                        GgufTokenizer *out, Diag *diag);

/* Writes a file's tokenizer to `path`, as tokenizer.json. False: reported. */
bool gguf_tokenizer_save(const GgufFile *file, const char *path, Diag *diag);

/* What an object has under the first `length` bytes of a text; NULL: nothing. */
const json_t *gguf_member(const json_t *object, const char *text, size_t length);

#endif
