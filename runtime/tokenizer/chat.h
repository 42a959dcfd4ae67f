/* Conversations -> tokens: a template (chat_template.h) in the numbers of a tokenizer, and the
 * "messages" of a line of JSON, [{"role": "user", "content": "..."}, ...], or "conversations" as
 * ShareGPT has them, [{"from": "human", "value": "..."}, ...]. Answers count as labels;
 * one with "weight": 0 does not. Nothing that is said becomes a special token.
 *
 * With a template in Jinja a conversation may become several texts (chat_jinja.h): it is rendered
 * first, and each text then encoded. */
#ifndef RUNTIME_TOKENIZER_CHAT_H
#define RUNTIME_TOKENIZER_CHAT_H

#include "ir/base/json.h"
#include "runtime/tokenizer/chat_jinja.h"
#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/token_run.h"

typedef struct Chat {
    const ChatTemplate *how;
    /* Its special tokens, {end} included: how they are spelled, and their numbers. */
    const char *spellings[CHAT_MOST_TOKENS + 1]; /* NULL past the last */
    uint32_t tokens[CHAT_MOST_TOKENS + 1];
    ChatReady jinja; /* of a template in Jinja, instead of these */
} Chat;

/* end: the token for {end}, or NO_TOKEN. settings: NULL where the template is no Jinja's. False,
 * reported: the tokenizer lacks one of its tokens, or a setting is wrong. */
bool chat_prepare(const ChatTemplate *how, const Tokenizer *tokenizer, uint32_t end,
                  const ChatSettings *settings, Chat *out, Diag *diag);
static inline bool chat_is_jinja(const Chat *chat) {
    return chat->how->jinja != NULL;
}

/* With a template that is a table. Of the first n_asked messages nothing counts. *out_bytes: of
 * what was said. False: reported at `loc`. */
bool chat_encode(const Chat *chat, const json_t *messages, size_t n_asked, TokenRun *run,
                 int64_t *out_bytes, SourceLoc loc, Diag *diag);

/* A text that a template in Jinja made; *out_bytes as above. */
bool chat_encode_text(const Chat *chat, const JinjaText *text, TokenRun *run, int64_t *out_bytes);

/* A conversation whose last message is the user's, or a tool's, and what stands before the answer
 * to it. object: that it is of, or NULL; templates in Jinja find tools there. */
bool chat_encode_question(const Chat *chat, const json_t *messages, const json_t *object,
                          TokenRun *run, SourceLoc loc, Diag *diag);
/* What ends an answer: a special token; or NO_TOKEN, and *out_text, NULL where nothing does. */
uint32_t chat_answer_end(const Chat *chat, Arena *arena, const char **out_text);

/* The i-th message's text; NULL, reported: it is none. */
const char *chat_content(const json_t *messages, size_t i, size_t *out_length, SourceLoc loc,
                         Diag *diag);

#endif
