#include "frontend/commands/generate_chat.h"

#include "frontend/commands/tokenizer_args.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>
#include <string.h>

/* Bytes that are no UTF-8 are the tokenizer's business. */
static void say(json_t *messages, const char *role, const char *text, size_t length) {
    json_t *message = json_object();
    json_object_set_new(message, "role", json_string(role));
    json_object_set_new(message, "content", json_stringn_nocheck(text, length));
    if (json_array_append_new(messages, message) != 0) BUG("out of memory");
}

bool generate_chat_check(const CliArgs *args, Diag *diag) {
    static const CliOption OF_CHATS[] = {OPT_SYSTEM, OPT_CHAT_TEMPLATE, OPT_CHAT_SET};
    bool chat = cli_given(args, OPT_CHAT);
    bool asked = cli_given(args, OPT_PROMPT) || cli_given(args, OPT_PROMPTS);
    for (size_t i = 0; i < sizeof(OF_CHATS) / sizeof(OF_CHATS[0]) && !chat; i++) {
        if (!cli_given(args, OF_CHATS[i])) continue;
        diag_error(diag, NO_LOC, "--%s: is for --chat only", CLI_OPTIONS[OF_CHATS[i]].name);
        return false;
    }
    static const CliOption OF_TEXTS[] = {OPT_SAMPLES, OPT_JSON, OPT_OUTPUT};
    for (size_t i = 0; i < sizeof(OF_TEXTS) / sizeof(OF_TEXTS[0]) && chat && !asked; i++) {
        if (!cli_given(args, OF_TEXTS[i])) continue;
        diag_error(diag, NO_LOC,
                   "--%s: is for one question, --prompt TEXT; a --chat without one is a "
                   "conversation over standard input and output",
                   CLI_OPTIONS[OF_TEXTS[i]].name);
        return false;
    }
    if (!chat || cli_given(args, OPT_TOKENIZER)) return true;
    diag_error(diag, NO_LOC, "--chat: needs --tokenizer FILE: chats are told apart by its tokens");
    return false;
}

void generate_chat_set_end(const Chat *chat, Arena *arena, GenerateText *text,
                           const char **out_stop) {
    text->answer_end = chat_answer_end(chat, arena, out_stop);
    if (!*out_stop) return;
    const char **stops = ARENA_ARRAY(arena, const char *, text->n_stops + 1);
    for (int i = 0; i < text->n_stops; i++) stops[i] = text->stops[i];
    stops[text->n_stops++] = *out_stop;
    text->stops = stops;
}

json_t *generate_chat_system(const CliArgs *args) {
    const char *system = cli_text(args, OPT_SYSTEM, NULL);
    json_t *messages = json_array();
    if (system) say(messages, "system", system, strlen(system));
    return messages;
}

bool generate_chat_begin(const CliArgs *args, GenerateText *text, GenerateChat *out, Diag *diag) {
    *out = (GenerateChat){0};
    if (!cli_given(args, OPT_CHAT)) return true;
    if (!chat_from_args(args, text->tokenizer, text->end, &out->chat, diag)) return false;
    generate_chat_set_end(&out->chat, args->arena, text, &out->stop);
    out->messages = generate_chat_system(args);
    return true;
}

void generate_chat_release(GenerateChat *chat) {
    json_decref(chat->messages);
}

static size_t count_alike(const TokenList *a, const TokenList *b) {
    size_t n = 0;
    while (n < a->count && n < b->count && a->items[n] == b->items[n]) n++;
    return n;
}

static bool encode(const Chat *chat, const CorpusImages *images, const json_t *messages,
                   const json_t *object, Encoder *encoder, SourceLoc loc, TokenList *out,
                   Diag *diag) {
    TokenMarks marks = {0};
    TokenRun run = {
        .encoder = encoder, .tokens = out, .marks = &marks, .where = "--chat", .diag = diag};
    if (images) corpus_images_begin(images, &run);
    token_run_begin(&run);
    bool good = chat_encode_question(chat, messages, object, &run, loc, diag);
    good = token_run_end(&run, good);
    token_marks_release(&marks);
    return good;
}

bool generate_chat_encode_places(const Chat *chat, const CorpusImages *images,
                                 const json_t *messages, const json_t *object,
                                 const Tokenizer *tokenizer, SourceLoc loc, TokenList *out,
                                 Diag *diag) {
    Encoder *encoder = encoder_create(tokenizer);
    bool good = encode(chat, images, messages, object, encoder, loc, out, diag);
    encoder_destroy(encoder);
    return good;
}

bool generate_chat_encode(const Chat *chat, const json_t *messages, const json_t *object,
                          const Tokenizer *tokenizer, SourceLoc loc, TokenList *out, Diag *diag) {
    return generate_chat_encode_places(chat, NULL, messages, object, tokenizer, loc, out, diag);
}

/* False: there is but the one that is asked now. */
static bool forget_oldest(GenerateChat *chat) {
    json_t *first = json_array_get(chat->messages, 0);
    size_t system = strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
    if (json_array_size(chat->messages) < system + 3) return false;
    json_array_remove(chat->messages, system);
    json_array_remove(chat->messages, system);
    chat->n_forgotten++;
    return true;
}

void generate_chat_begin_answer(GenerateText *text, TokenList tokens) {
    token_list_release(&text->tokens);
    text->tokens = tokens;
    text->n_prompt_tokens = tokens.count;
    text->text.length = text->n_shown = text->n_prompt = 0;
}

bool generate_chat_ask(GenerateChat *chat, const char *said, int64_t context, GenerateText *text,
                       size_t *out_kept, Diag *diag) {
    TokenList tokens = {0};
    const size_t most = (size_t)(context - context / 8);
    Encoder *encoder = encoder_create(text->tokenizer);
    say(chat->messages, "user", said, strlen(said));
    bool good = encode(&chat->chat, NULL, chat->messages, NULL, encoder, NO_LOC, &tokens, diag);
    while (good && tokens.count > most && forget_oldest(chat)) {
        tokens.count = 0;
        good = encode(&chat->chat, NULL, chat->messages, NULL, encoder, NO_LOC, &tokens, diag);
    }
    encoder_destroy(encoder);
    good = good && generate_text_check_blind(text, &tokens, NO_LOC, diag);
    if (good && tokens.count >= (size_t)context) {
        diag_error(diag, NO_LOC,
                   "--chat: the question takes %zu tokens, with the system's text and the answer's "
                   "beginning; the context has %" PRId64,
                   tokens.count, context);
        good = false;
    }
    if (!good) {
        token_list_release(&tokens);
        json_array_remove(chat->messages, json_array_size(chat->messages) - 1);
        return false;
    }
    *out_kept = count_alike(&text->tokens, &tokens);
    if (*out_kept == tokens.count && *out_kept > 0) --*out_kept; /* its logits are wanted */
    generate_chat_begin_answer(text, tokens);
    return true;
}

static bool has_system(const json_t *messages) {
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

json_t *generate_chat_messages(const json_t *system, const json_t *messages, const char *said,
                               size_t length) {
    json_t *own = has_system(messages) ? json_array() : json_copy((json_t *)(uintptr_t)system);
    if (messages && json_array_extend(own, (json_t *)(uintptr_t)messages) != 0)
        BUG("out of memory");
    if (!messages) say(own, "user", said, length);
    return own;
}

bool generate_chat_prompt(const GenerateChat *chat, const json_t *messages, const json_t *object,
                          const char *said, size_t length, SourceLoc loc, GenerateText *text,
                          Diag *diag) {
    TokenList tokens = {0};
    json_t *own = generate_chat_messages(chat->messages, messages, said, length);
    bool good = generate_chat_encode(&chat->chat, own, object, text->tokenizer, loc, &tokens, diag);
    json_decref(own);
    generate_chat_begin_answer(text, tokens);
    return good;
}

void generate_chat_answered(GenerateChat *chat, const GenerateText *text) {
    say(chat->messages, "assistant", text->text.text, text->text.length);
}
