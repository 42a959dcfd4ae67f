/* Patterns by which text is divided, under llama.cpp's names (llama-vocab.cpp). */
#ifndef FRONTEND_GGUF_GGUF_TOKENIZER_NAMES_H
#define FRONTEND_GGUF_GGUF_TOKENIZER_NAMES_H

#include <jansson.h>
#include <stdbool.h>

typedef struct GgufPre {
    const char *name;    /* tokenizer.ggml.pre; of equal ones the first is written */
    const char *pattern; /* NULL: the one of ByteLevel by itself (GPT-2's) */
    bool digits;         /* each digit by itself before */
    bool whole_words;    /* a word that is a token is one: ignore_merges */
} GgufPre;

extern const GgufPre GGUF_PRES[]; /* ends with a NULL name */

/* The row of a tokenizer.json of BPE of bytes; NULL: llama.cpp has none. */
const GgufPre *gguf_pre_of(const json_t *tokenizer);
const GgufPre *gguf_pre_named(const char *name); /* NULL: none */
/* Its "pre_tokenizer". The caller frees it. */
json_t *gguf_pre_json(const GgufPre *pre);

#endif
