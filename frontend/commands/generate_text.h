/* The text that `generate` continues, as tokens: bytes, or with --tokenizer its tokens. What is
 * printed is UTF-8 as far as it goes: a character whose last bytes are not there yet waits. */
#ifndef FRONTEND_COMMANDS_GENERATE_TEXT_H
#define FRONTEND_COMMANDS_GENERATE_TEXT_H

#include "frontend/commands/cli.h"
#include "runtime/tokenizer/encoder.h"

typedef struct GenerateText {
    Tokenizer *tokenizer; /* NULL: bytes */
    TokenList tokens;     /* all so far: the prompt's, and what was added */
    int n_choices;        /* tokens are below it */
    uint32_t end;         /* the token that ends a text; NO_TOKEN: none */
    StrBuf text;          /* what was added, and the prompt where there is one */
    size_t n_shown;       /* of text */
} GenerateText;

/* The prompt of the command line; vocab: the model's. False: reported. Released by
 * generate_text_release, either way. */
bool generate_text_begin(const CliArgs *args, int64_t vocab, GenerateText *out, Diag *diag);
void generate_text_release(GenerateText *text);

/* Whether the token may be chosen at all. */
bool generate_text_has(const GenerateText *text, int token);
/* False: it was the one that ends a text. */
bool generate_text_add(GenerateText *text, int token);
/* What can be shown and has not been yet: its length; with `all`, also bytes of a character that is
 * not complete. */
size_t generate_text_show(GenerateText *text, bool all, const char **out);

#endif
