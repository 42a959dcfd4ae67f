/* Conversations -> tokens: a template (chat_template.h) in the numbers of a tokenizer, and the
 * "messages" of a line of JSON, [{"role": "user", "content": "..."}, ...], or "conversations" as
 * ShareGPT has them, [{"from": "human", "value": "..."}, ...]. Answers count as labels;
 * one with "weight": 0 does not. Nothing that is said becomes a special token. */
#ifndef RUNTIME_TOKENIZER_CHAT_H
#define RUNTIME_TOKENIZER_CHAT_H

#include "ir/base/json.h"
#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/token_run.h"

typedef struct Chat {
    const ChatTemplate *how;
    /* Its special tokens, {end} included: how they are spelled, and their numbers. */
    const char *spellings[CHAT_MOST_TOKENS + 1]; /* NULL past the last */
    uint32_t tokens[CHAT_MOST_TOKENS + 1];
} Chat;

/* end: the token for {end}, or NO_TOKEN. False, reported: the tokenizer lacks one of its tokens. */
bool chat_prepare(const ChatTemplate *how, const Tokenizer *tokenizer, uint32_t end, Chat *out,
                  Diag *diag);

/* Of the first n_asked messages nothing counts. *out_bytes: of what was said. False: reported at
 * `loc`. */
bool chat_encode(const Chat *chat, const json_t *messages, size_t n_asked, TokenRun *run,
                 int64_t *out_bytes, SourceLoc loc, Diag *diag);

/* A conversation whose last message is the user's, and what stands before the answer to it. */
bool chat_encode_question(const Chat *chat, const json_t *messages, TokenRun *run, SourceLoc loc,
                          Diag *diag);
/* What ends an answer: a special token; or NO_TOKEN, and *out_text, NULL where nothing does. */
uint32_t chat_answer_end(const Chat *chat, const char **out_text);

/* The i-th message's text; NULL, reported: it is none. */
const char *chat_content(const json_t *messages, size_t i, size_t *out_length, SourceLoc loc,
                         Diag *diag);

#endif
