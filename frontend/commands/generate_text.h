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
    uint32_t answer_end;  /* likewise of a chat's answer */
    StrBuf text;          /* what was added, and the prompt where there is one */
    size_t n_shown;       /* of text */
    size_t n_prompt;      /* of text, and tokens of it */
    size_t n_prompt_tokens;
    const char *const *stops; /* [n_stops]: texts that end it, and are not in it */
    int n_stops;
    const char *fim_tokens; /* --fim-tokens; NULL: well-known ones */
    bool fills;             /* the prompt has what follows the text, too */
    bool special;           /* a prompt's special tokens are tokens */
    bool borrows;           /* the tokenizer is another text's */
    uint32_t image_token;   /* stands for an image, and is never written; NO_TOKEN: none does */
    const struct TextImages *images; /* generate_images.h; not owned; NULL: there are none */
} GenerateText;

/* A text with nothing in it, as the command line's options have it; vocab: the model's. False:
 * reported. Released by generate_text_release, either way. */
bool generate_text_begin(const CliArgs *args, int64_t vocab, GenerateText *out, Diag *diag);
void generate_text_release(GenerateText *text);
/* It begins with this prompt, or, where that is empty, with what a text follows. False, reported as
 * `where`'s. */
bool generate_text_prompt(GenerateText *text, const char *prompt, size_t length, const char *where,
                          Diag *diag);
/* The prompt is no part of the text, which is an answer to it, and ends with `end`. */
void generate_text_answer(GenerateText *text, uint32_t end);
/* Another text as this one is, released before it. */
GenerateText generate_text_fork(const GenerateText *from);

/* False, reported: the tokens, which name no images, have one that stands for an image. */
bool generate_text_check_blind(const GenerateText *text, const TokenList *tokens, SourceLoc loc,
                               Diag *diag);

/* Whether the token may be chosen at all. */
bool generate_text_has(const GenerateText *text, int token);
/* False: it ends the text, as the token that does so or with a stop. */
bool generate_text_add(GenerateText *text, int token);
/* What can be shown and has not been yet: its length; with `all`, also bytes of a character that is
 * not complete. */
size_t generate_text_show(GenerateText *text, bool all, const char **out);

#endif
