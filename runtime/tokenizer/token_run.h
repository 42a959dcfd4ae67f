/* A document that is put together from texts and special tokens, some of which count as labels and
 * some not -> tokens and their marks. Texts in a row are one text: a token may reach from one into
 * the next, but not from what does not count into what does. */
#ifndef RUNTIME_TOKENIZER_TOKEN_RUN_H
#define RUNTIME_TOKENIZER_TOKEN_RUN_H

#include "ir/base/strbuf.h"
#include "runtime/tokenizer/encoder.h"

typedef struct TokenRun {
    Encoder *encoder;
    TokenList *tokens;
    TokenMarks *marks;
    bool with_special;     /* special tokens that are spelled in texts are tokens */
    const char *places[2]; /* spelled in texts, of `place_token`; NULL: none */
    uint32_t place_token;
    const char *where; /* for errors */
    Diag *diag;
    /* The text that is being put together. */
    StrBuf text;
    TextPlace place;
    bool counts, skips_space;
    size_t first; /* token of the document */
} TokenRun;

/* The first fields are the caller's. */
void token_run_begin(TokenRun *run);
bool token_run_text(TokenRun *run, const char *text, size_t length, bool counts);
bool token_run_token(TokenRun *run, uint32_t token, bool counts);
/* A number that is no token of the tokenizer's, behind what was put so far. */
bool token_run_number(TokenRun *run, uint32_t number, bool counts);
/* Marks the token that was put last besides. */
void token_run_mark_last(TokenRun *run, unsigned char mark);
/* What was put so far are tokens now. */
bool token_run_close(TokenRun *run);
/* Likewise; a text of its own follows. */
bool token_run_begin_text(TokenRun *run);
/* Whatever went wrong before; false: something did, reported. */
bool token_run_end(TokenRun *run, bool good);

#endif
