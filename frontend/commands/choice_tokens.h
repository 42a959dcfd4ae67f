/* A prompt and one of its choices -> tokens. */
#ifndef FRONTEND_COMMANDS_CHOICE_TOKENS_H
#define FRONTEND_COMMANDS_CHOICE_TOKENS_H

#include "ir/base/diag.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/tokenizer.h"

#include <jansson.h>

/* How texts become tokens. */
typedef struct ChoiceTexts {
    const Tokenizer *tokenizer; /* NULL: a token is a byte */
    uint32_t first;             /* put before each prompt; NO_TOKEN: none */
    const CorpusOptions *chat;  /* how answers of a chat are told; NULL: the prompt goes on */
    const json_t *system;       /* of a chat: what is said first, a list of a message or none */
} ChoiceTexts;

typedef struct Choice {
    const json_t *object; /* of a chat: the row, whose tools a template may want; NULL: none */
    const json_t *prompt; /* a text; of a chat also messages */
    const json_t *text;
    const char *delimiter;
    bool moves_space; /* white space that ends the prompt is the choice's, as in the harness */
    int number;
    SourceLoc loc;
} Choice;

/* *out_first: of the choice's tokens. encoder NULL: bytes. False: reported. */
bool choice_encode(const ChoiceTexts *how, Encoder *encoder, const Choice *choice, TokenList *out,
                   int64_t *out_first, Diag *diag);
/* The choice as it is scored per byte: without the delimiter, and of a chat without its space. */
const char *choice_text(const ChoiceTexts *how, const json_t *text, size_t *out_length);

#endif
