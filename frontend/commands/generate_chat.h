/* A conversation that `generate --chat` takes part in: what was said so far, as tokens of a chat
 * template. */
#ifndef FRONTEND_COMMANDS_GENERATE_CHAT_H
#define FRONTEND_COMMANDS_GENERATE_CHAT_H

#include "frontend/commands/generate_text.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus_images.h"

typedef struct GenerateChat {
    Chat chat;
    json_t *messages;
    const char *stop;    /* a text that ends an answer, where no token does */
    int64_t n_forgotten; /* questions with their answers */
} GenerateChat;

/* Options that make no sense together are refused. False: reported. */
bool generate_chat_check(const CliArgs *args, Diag *diag);
/* Does nothing without --chat. The text, just begun, now ends where the template's answers do.
 * False: reported. Released either way. */
bool generate_chat_begin(const CliArgs *args, GenerateText *text, GenerateChat *out, Diag *diag);
void generate_chat_release(GenerateChat *chat);

/* The user says something: the text becomes the answer's beginning. Of a context an eighth is left
 * for the answer: the oldest questions, with their answers, are forgotten for that, but not what
 * the system says. *out_kept: of the text's tokens those at the beginning that are as they were.
 * False: reported; where the question alone is too long, it is as if the user had not asked. */
bool generate_chat_ask(GenerateChat *chat, const char *said, int64_t context, GenerateText *text,
                       size_t *out_kept, Diag *diag);
/* A conversation of its own: `messages`, or, where that is NULL, what the user says, after what the
 * system does, unless they begin with that. object: that they are of, where templates in Jinja find
 * tools, or NULL. The text becomes the answer's beginning. False:
 * reported at `loc`. */
bool generate_chat_prompt(const GenerateChat *chat, const json_t *messages, const json_t *object,
                          const char *said, size_t length, SourceLoc loc, GenerateText *text,
                          Diag *diag);
/* The messages of it, which are the caller's. system: what the system says, or no message. */
json_t *generate_chat_messages(const json_t *system, const json_t *messages, const char *said,
                               size_t length);
/* What the system says of itself, a list of one message or none. */
json_t *generate_chat_system(const CliArgs *args);
/* The same as tokens alone. */
bool generate_chat_encode(const Chat *chat, const json_t *messages, const json_t *object,
                          const Tokenizer *tokenizer, SourceLoc loc, TokenList *out, Diag *diag);
/* And of images' places. */
bool generate_chat_encode_places(const Chat *chat, const CorpusImages *images,
                                 const json_t *messages, const json_t *object,
                                 const Tokenizer *tokenizer, SourceLoc loc, TokenList *out,
                                 Diag *diag);
/* The text ends where answers in this chat do: at a token, or *out_stop, which then is one of its
 * stops. */
void generate_chat_set_end(const Chat *chat, Arena *arena, GenerateText *text,
                           const char **out_stop);
/* Text of a prompt that has these tokens: what follows is the answer. */
void generate_chat_begin_answer(GenerateText *text, TokenList tokens);
/* The text is the answer. */
void generate_chat_answered(GenerateChat *chat, const GenerateText *text);

#endif
