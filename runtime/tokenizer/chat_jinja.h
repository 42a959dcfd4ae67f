/* Chat templates as models have them: in Jinja, in a file of their own (chat_template.jinja) or in
 * tokenizer_config.json, with the special tokens that they name in the latter; and what they make
 * of a conversation. Texts are those of transformers' apply_chat_template, byte for byte.
 *
 * What the model answers, in a text that a template made, is
 *   - what is within {% generation %}, where the template has it;
 *   - else, for each answer, what the conversation up to it and with it has more than the
 *     conversation before it with the prompt for an answer, up to the last special token.
 * Where a template tells what was said before in another way once an answer follows (thoughts that
 * are left out of earlier turns), the conversation becomes several texts, one for each way, each
 * with the answers that are told in it as the model is asked to write them. */
#ifndef RUNTIME_TOKENIZER_CHAT_JINJA_H
#define RUNTIME_TOKENIZER_CHAT_JINJA_H

#include "ir/base/json.h"
#include "runtime/jinja/jinja.h"
#include "runtime/tokenizer/spelled_tokens.h"

/* As read. */
typedef struct ChatJinja {
    const JinjaTemplate *plain, *tools; /* tools NULL: the plain one */
    const char *path, *folder;
} ChatJinja;

/* Whether a folder, or the file that it is, has a template in Jinja: .jinja, a folder, or JSON with
 * "chat_template" or of a tokenizer. */
bool chat_jinja_is(const char *path);
/* Reports and returns NULL. */
const ChatJinja *chat_jinja_read(const char *path, Arena *arena, Diag *diag);
/* Whether there is one in the folder, by the names that it has everywhere. */
bool chat_jinja_in_folder(const char *folder);
/* The folder of a path. */
const char *chat_jinja_folder(const char *path, Arena *arena);

typedef struct ChatVariable {
    const char *name;
    const char *text; /* as it is, or NULL */
    const char *json;
} ChatVariable;

/* With a tokenizer's special tokens, and what is set by hand. */
typedef struct ChatReady {
    const ChatJinja *jinja;
    ChatVariable *variables;
    int n_variables, variables_capacity;
    SpelledTokens spelled;
    time_t now;
} ChatReady;

/* What is not the template's nor the tokenizer's. set [n_set]: NAME=JSON, or NAME=TEXT. */
typedef struct ChatSettings {
    Arena *arena;
    const char *const *set;
    int n_set;
    time_t now;
} ChatSettings;

bool chat_jinja_prepare(const ChatJinja *jinja, const Tokenizer *tokenizer,
                        const ChatSettings *settings, ChatReady *out, Diag *diag);

/* A conversation: "messages", and what else the object that they are of may have for templates:
 * "tools", "documents", "chat_template_kwargs". Of the first n_asked messages nothing counts. */
typedef struct ChatTalk {
    const json_t *messages;
    const json_t *object; /* or NULL */
    size_t n_asked;
    bool one; /* it may not become several texts */
} ChatTalk;

typedef struct ChatTexts {
    JinjaText *items; /* marked with JINJA_ANSWER where it counts */
    int count, capacity;
} ChatTexts;

/* False: reported at `loc`. Released either way. */
bool chat_jinja_render(const ChatReady *ready, const ChatTalk *talk, ChatTexts *out, SourceLoc loc,
                       Diag *diag);
/* The conversation as a question, with what stands before the answer; one text. */
bool chat_jinja_ask(const ChatReady *ready, const ChatTalk *talk, ChatTexts *out, SourceLoc loc,
                    Diag *diag);
void chat_texts_release(ChatTexts *texts);

/* What ends an answer: a special token; or NO_TOKEN, and in *out_text what else does, or NULL. */
uint32_t chat_jinja_answer_end(const ChatReady *ready, Arena *arena, const char **out_text);

/* Whether it ends with what counts and with no special token: nothing says that an answer ends. */
bool chat_text_is_open(const ChatReady *ready, const JinjaText *text);
/* A special token that the template made, not what somebody said, at a place of the text. */
size_t chat_text_token(const ChatReady *ready, const JinjaText *text, size_t at,
                       uint32_t *out_token);

#endif
