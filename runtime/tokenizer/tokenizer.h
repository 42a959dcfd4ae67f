/* A tokenizer, read from a file: text <-> tokens. Never changed once it is loaded, so any number of
 * threads may use it (encoder.h). Kinds of file:
 *   - tokenizer.json of Hugging Face's tokenizers. Of type BPE: of bytes (pre-tokenizer ByteLevel),
 *     or of characters with a fallback to bytes (SentencePiece's, as in Llama 2); of type Unigram
 *     (T5's, XLM-R's) and of type WordPiece (BERT's)
 *   - SentencePiece's .model, of type BPE and Unigram
 *   - .tiktoken: a token in base64 and its rank a line; the pattern is not in it
 * What is in a file and not supported is refused by its name.
 */
#ifndef RUNTIME_TOKENIZER_TOKENIZER_H
#define RUNTIME_TOKENIZER_TOKENIZER_H

#include "ir/base/diag.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/normalize.h"
#include "runtime/tokenizer/pieces.h"
#include "runtime/tokenizer/vocabulary.h"
#include "runtime/tokenizer/words.h"

typedef enum TokenizerKind { TOKENIZER_BPE, TOKENIZER_UNIGRAM, TOKENIZER_WORDPIECE } TokenizerKind;

typedef struct Tokenizer {
    TokenizerKind kind;
    const char *path;      /* of its file */
    const char *format;    /* "tokenizer.json", "SentencePiece" or "tiktoken" */
    char *pattern;         /* of the first division; NULL: none */
    Vocabulary vocabulary; /* in byte-level ones the tokens' bytes, else their spelling */
    AddedTokens added;
    Normalizer normalizer;
    WordSteps steps;
    Pieces pieces;             /* of all kinds but BPE */
    bool byte_level;           /* BPE of bytes, else of characters with a fallback to bytes */
    bool whole_words;          /* a word that is a token is one, whatever the merges say */
    bool prefix_first_only;    /* the first step's prefix: before a document's first text only */
    bool strips_space;         /* decoding leaves out one space at the beginning */
    bool cleans_up;            /* of WordPiece: no space before . ? ! , in decoded text */
    const char *inner_prefix;  /* of WordPiece: of pieces within a word */
    bool fuses_unknown;        /* characters in a row that have no token become one `unknown` */
    uint32_t unknown;          /* or NO_TOKEN: then text that has no token is an error */
    uint32_t byte_tokens[256]; /* NO_TOKEN: the byte has none */
    uint32_t n_ids;            /* the highest id and 1: what a model's vocabulary must have */
    char *texts;               /* what each token decodes to; owned by the tokenizer */
    size_t *text_begins;       /* [n_ids + 1] */
    int32_t *added_index;      /* [n_ids] into added.items; -1: not added */
    Arena *arena;
} Tokenizer;

enum { TOKENIZER_MOST_FILE_BYTES = 256 << 20 };
/* path: a file, or a folder with a tokenizer.json. pattern: of a tiktoken file, a name
 * (pattern_by_name) or a regular expression, else NULL. Reports and returns NULL. */
Tokenizer *tokenizer_load(const char *path, const char *pattern, Diag *diag);
void tokenizer_destroy(Tokenizer *tokenizer);

/* The bytes that a token stands for; length 0: there is no such token. */
static inline const char *tokenizer_text(const Tokenizer *tokenizer, uint32_t id,
                                         size_t *out_length) {
    if (id >= tokenizer->n_ids) return *out_length = 0, "";
    *out_length = tokenizer->text_begins[id + 1] - tokenizer->text_begins[id];
    return tokenizer->texts + tokenizer->text_begins[id];
}
static inline bool tokenizer_is_special(const Tokenizer *tokenizer, uint32_t id) {
    return id < tokenizer->n_ids && tokenizer->added_index[id] >= 0 &&
           tokenizer->added.items[tokenizer->added_index[id]].special;
}
/* How many ids have a token. */
uint32_t tokenizer_count_tokens(const Tokenizer *tokenizer);

/* Which token `name` is: an added token's text or a number; "auto", which ends a text: one of the
 * well-known names. NO_TOKEN, reported. */
uint32_t tokenizer_find_added(const Tokenizer *tokenizer, const char *name, const char *option,
                              Diag *diag);
/* A well-known token that ends a text; NO_TOKEN: there is none. */
uint32_t tokenizer_end_of_text(const Tokenizer *tokenizer);

/* --- for the readers of files --- */

/* Zeroed but for what has no zero. */
Tokenizer *tokenizer_create(void);
bool tokenizer_read_json(Tokenizer *tokenizer, const char *path, Diag *diag);
/* Does a file begin as a .model of SentencePiece does? */
bool tokenizer_is_sentencepiece(const unsigned char *bytes, size_t length);
bool tokenizer_read_sentencepiece(Tokenizer *tokenizer, const char *path, Diag *diag);
bool tokenizer_read_tiktoken(Tokenizer *tokenizer, const char *path, const char *pattern,
                             Diag *diag);
/* A token that is no part of the vocabulary, and what it decodes to. */
typedef struct LooseToken {
    uint32_t id;
    const char *text;
    size_t length;
} LooseToken;
/* Makes the tables by id once all else is there. False: nothing has an id. */
void tokenizer_finish(Tokenizer *tokenizer, const LooseToken *loose, int n_loose);

/* GPT-2's characters for bytes: printable ones stand for themselves, the others for U+0100 and on
 * in order. */
uint32_t byte_character(unsigned char byte);
/* -1: the character stands for none. */
int byte_of_character(uint32_t character);

#endif
