#include "runtime/tokenizer/chat.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <string.h>

/* --- the template's tokens --- */

static bool uses_end(const ChatTemplate *how) {
    const char *const texts[] = {how->begin,       how->system_before, how->system_after,
                                 how->user_before, how->user_after,    how->answer_before,
                                 how->answer_lead, how->answer_after,  how->answer_rest};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i] && strstr(texts[i], CHAT_END)) return true;
    }
    return false;
}

bool chat_prepare(const ChatTemplate *how, const Tokenizer *tokenizer, uint32_t end,
                  const ChatSettings *settings, Chat *out, Diag *diag) {
    int n = 0;
    *out = (Chat){.how = how};
    if (how->jinja) return chat_jinja_prepare(how->jinja, tokenizer, settings, &out->jinja, diag);
    if (settings && settings->n_set) {
        diag_error(diag, NO_LOC, "--chat-set: %s is a table, not a template in Jinja", how->name);
        return false;
    }
    for (; n < CHAT_MOST_TOKENS && how->tokens[n]; n++) {
        const AddedToken *token = added_tokens_by_text(&tokenizer->added, how->tokens[n]);
        if (!token) {
            diag_error(diag, NO_LOC,
                       "the chat template %s needs the special token '%.60s', which the tokenizer "
                       "does not have; `perilune tokenizer show` lists those that it has",
                       how->name, how->tokens[n]);
            return false;
        }
        out->spellings[n] = how->tokens[n];
        out->tokens[n] = token->id;
    }
    if (!uses_end(how)) return true;
    if (end == NO_TOKEN) {
        diag_error(diag, NO_LOC,
                   "the chat template %s needs a token that ends a text, and the tokenizer has "
                   "none of a known name: --eot TOKEN",
                   how->name);
        return false;
    }
    out->spellings[n] = CHAT_END;
    out->tokens[n] = end;
    return true;
}

/* The longest special token at `text`, or -1. */
static int token_at(const Chat *chat, const char *text) {
    int best = -1;
    size_t longest = 0;
    for (int i = 0; i <= CHAT_MOST_TOKENS && chat->spellings[i]; i++) {
        size_t length = strlen(chat->spellings[i]);
        if (length <= longest || strncmp(text, chat->spellings[i], length) != 0) continue;
        best = i;
        longest = length;
    }
    return best;
}

/* Of the template: its special tokens are tokens. NULL is nothing. */
static bool put_template(const Chat *chat, TokenRun *run, const char *text, bool counts) {
    const char *begin = text, *at = text;
    while (at && *at) {
        int token = token_at(chat, at);
        if (token < 0) {
            at++;
            continue;
        }
        if (!token_run_text(run, begin, (size_t)(at - begin), counts) ||
            !token_run_token(run, chat->tokens[token], counts)) {
            return false;
        }
        begin = at += strlen(chat->spellings[token]);
    }
    return !at || token_run_text(run, begin, (size_t)(at - begin), counts);
}

/* --- what is said --- */

typedef struct Said {
    const char *text;
    size_t length;
} Said;

/* Without the white space around it. */
static Said trimmed(Said said) {
    const unsigned char *bytes = (const unsigned char *)said.text;
    size_t begin = said.length, end = 0;
    for (size_t at = 0, n; at < said.length; at += n) {
        uint32_t character;
        int valid = utf8_read(bytes + at, said.length - at, &character);
        n = valid ? (size_t)valid : 1;
        if (valid && utf8_is_space(character)) continue;
        if (begin == said.length) begin = at;
        end = at + n;
    }
    return end ? (Said){said.text + begin, end - begin} : (Said){said.text, 0};
}

/* Without the white space at its end. */
static Said trimmed_end(Said said) {
    Said inner = trimmed(said);
    return (Said){said.text, inner.length ? (size_t)(inner.text - said.text) + inner.length : 0};
}

static bool put_said(const Chat *chat, TokenRun *run, Said said, bool counts) {
    if (chat->how->trim) said = trimmed(said);
    return token_run_text(run, said.text, said.length, counts);
}

/* --- messages --- */

typedef enum Role { ROLE_SYSTEM, ROLE_USER, ROLE_ANSWER, N_ROLES } Role;
static const char *const ROLES[N_ROLES] = {"system", "user", "assistant"};
static const char *const SHAREGPT_ROLES[N_ROLES] = {"system", "human", "gpt"};

typedef struct Message {
    Role role;
    Said said;
    bool counts;
} Message;

/* A message's member by either of its names: those of "messages", or ShareGPT's in "conversations".
 */
static const json_t *member(const json_t *message, const char *name, const char *other) {
    const json_t *value = json_object_get(message, name);
    return value ? value : json_object_get(message, other);
}

const char *chat_content(const json_t *messages, size_t i, size_t *out_length, SourceLoc loc,
                         Diag *diag) {
    const json_t *content = member(json_array_get(messages, i), "content", "value");
    if (!json_is_string(content)) {
        diag_error(diag, loc, "messages[%zu]: no object with a string 'content'", i);
        return NULL;
    }
    *out_length = json_string_length(content);
    return json_string_value(content);
}

static bool read_role(const json_t *message, size_t i, Role *out, SourceLoc loc, Diag *diag) {
    const char *role = json_string_value(member(message, "role", "from"));
    for (int r = 0; role && r < N_ROLES; r++) {
        *out = (Role)r;
        if (strcmp(role, ROLES[r]) == 0 || strcmp(role, SHAREGPT_ROLES[r]) == 0) return true;
    }
    if (role) {
        diag_error(diag, loc, "messages[%zu]: the role '%.40s' is none of system, user, assistant",
                   i, role);
    } else {
        diag_error(diag, loc, "messages[%zu]: no 'role': system, user or assistant", i);
    }
    return false;
}

static bool is_said(const char *key) {
    static const char *const KEYS[] = {"role", "content", "from", "value"};
    for (int k = 0; k < 4; k++) {
        if (strcmp(key, KEYS[k]) == 0) return true;
    }
    return false;
}

static bool read_message(const json_t *messages, size_t i, Message *out, SourceLoc loc,
                         Diag *diag) {
    json_t *message = json_array_get(messages, i), *value;
    const char *key;
    out->said.text = chat_content(messages, i, &out->said.length, loc, diag);
    if (!out->said.text || !read_role(message, i, &out->role, loc, diag)) return false;
    out->counts = out->role == ROLE_ANSWER;
    json_object_foreach(message, key, value) {
        bool is_weight = strcmp(key, "weight") == 0;
        if (is_said(key) || json_is_null(value)) continue;
        double weight = json_number_value(value);
        if (is_weight && json_is_number(value) && out->counts && (weight == 0 || weight == 1)) {
            continue;
        }
        diag_error(diag, loc,
                   is_weight ? "messages[%zu]: '%.40s' is 0 or 1, of an assistant's message"
                             : "messages[%zu]: '%.40s' is not supported",
                   i, key);
        return false;
    }
    const json_t *weight = json_object_get(message, "weight");
    if (weight && !json_is_null(weight)) out->counts = json_number_value(weight) == 1;
    return true;
}

/* Where a conversation is. */
typedef struct Talk {
    const Chat *chat;
    TokenRun *run;
    bool has_pending; /* the system's part, which waits for the first user's */
    Said pending;
    size_t n_turns; /* of user and assistant */
    int64_t n_bytes;
    SourceLoc loc;
    Diag *diag;
} Talk;

/* Within a user's part it is as it is: those templates trim what follows it alone. */
static bool put_system(Talk *talk, Said said) {
    const ChatTemplate *how = talk->chat->how;
    if (how->trim && !how->system_in_user) said = trimmed(said);
    return put_template(talk->chat, talk->run, how->system_before, false) &&
           token_run_text(talk->run, said.text, said.length, false) &&
           put_template(talk->chat, talk->run, how->system_after, false);
}

/* What the user says is trimmed together with the system's part before it. */
static bool put_together(Talk *talk, Said said) {
    const ChatTemplate *how = talk->chat->how;
    said = trimmed_end(said);
    if (said.length > 0) {
        return put_system(talk, talk->pending) &&
               token_run_text(talk->run, said.text, said.length, false);
    }
    size_t length = strlen(how->system_after);
    char *after =
        memory_strndup(how->system_after, trimmed_end((Said){how->system_after, length}).length);
    bool good = put_template(talk->chat, talk->run, how->system_before, false) &&
                token_run_text(talk->run, talk->pending.text, talk->pending.length, false) &&
                put_template(talk->chat, talk->run, after, false);
    free(after);
    return good;
}

static bool take_system(Talk *talk, Said said, size_t i) {
    const ChatTemplate *how = talk->chat->how;
    if (!how->system_before) {
        diag_error(talk->diag, talk->loc, "messages[%zu]: the chat template %s has no system", i,
                   how->name);
        return false;
    }
    if (!how->system_in_user) return put_system(talk, said);
    if (i > 0) {
        diag_error(talk->diag, talk->loc,
                   "messages[%zu]: in the chat template %s the system comes first", i, how->name);
        return false;
    }
    talk->pending = said;
    talk->has_pending = true;
    return true;
}

static bool take_user(Talk *talk, Said said) {
    const ChatTemplate *how = talk->chat->how;
    bool has_system = talk->has_pending;
    talk->has_pending = false;
    if (!put_template(talk->chat, talk->run, how->user_before, false)) return false;
    bool good = has_system && how->trims_together
                    ? put_together(talk, said)
                    : (!has_system || put_system(talk, talk->pending)) &&
                          put_said(talk->chat, talk->run, said, false);
    return good && put_template(talk->chat, talk->run, how->user_after, false);
}

static bool take_answer(Talk *talk, const Message *message) {
    const ChatTemplate *how = talk->chat->how;
    return put_template(talk->chat, talk->run, how->answer_before, false) &&
           put_template(talk->chat, talk->run, how->answer_lead, message->counts) &&
           put_said(talk->chat, talk->run, message->said, message->counts) &&
           put_template(talk->chat, talk->run, how->answer_after, message->counts) &&
           put_template(talk->chat, talk->run, how->answer_rest, false);
}

static bool take_message(Talk *talk, const Message *message, size_t i) {
    const ChatTemplate *how = talk->chat->how;
    talk->n_bytes += (int64_t)message->said.length;
    if (message->role == ROLE_SYSTEM) return take_system(talk, message->said, i);
    bool must = how->alternate || talk->has_pending;
    if (must && (message->role == ROLE_USER) != (talk->n_turns % 2 == 0)) {
        diag_error(talk->diag, talk->loc,
                   "messages[%zu]: in the chat template %s user and assistant take turns, the user "
                   "first",
                   i, how->name);
        return false;
    }
    talk->n_turns++;
    return message->role == ROLE_USER ? take_user(talk, message->said) : take_answer(talk, message);
}

bool chat_encode(const Chat *chat, const json_t *messages, size_t n_asked, TokenRun *run,
                 int64_t *out_bytes, SourceLoc loc, Diag *diag) {
    Talk talk = {.chat = chat, .run = run, .loc = loc, .diag = diag};
    const char *preset = chat->how->default_system;
    Message message;
    bool good = put_template(chat, run, chat->how->begin, false);
    for (size_t i = 0; good && i < json_array_size(messages); i++) {
        good = read_message(messages, i, &message, loc, diag);
        message.counts = good && message.counts && i >= n_asked;
        if (good && i == 0 && message.role != ROLE_SYSTEM && preset) {
            good = take_system(&talk, (Said){preset, strlen(preset)}, 0);
        }
        good = good && take_message(&talk, &message, i);
    }
    *out_bytes = talk.n_bytes;
    if (!good || (talk.n_turns > 0 && !talk.has_pending)) return good;
    diag_error(diag, loc, "messages: nobody says anything but the system");
    return false;
}

/* --- texts of templates in Jinja --- */

/* Of a part without special tokens. */
static bool put_part(const JinjaText *text, size_t begin, size_t end, TokenRun *run) {
    while (begin < end) {
        bool counts = text->marks[begin] & JINJA_ANSWER;
        size_t at = begin;
        while (at < end && counts == ((text->marks[at] & JINJA_ANSWER) != 0)) at++;
        if (!token_run_text(run, text->text + begin, at - begin, counts)) return false;
        begin = at;
    }
    return true;
}

bool chat_encode_text(const Chat *chat, const JinjaText *text, TokenRun *run, int64_t *out_bytes) {
    size_t begin = 0, n;
    uint32_t token;
    for (size_t at = 0; at < text->length; at += n) {
        *out_bytes += text->marks[at] & JINJA_SAID;
        n = chat_text_token(&chat->jinja, text, at, &token);
        if (n == 0) {
            n = 1;
            continue;
        }
        bool counts = text->marks[at] & JINJA_ANSWER;
        if (!put_part(text, begin, at, run) || !token_run_token(run, token, counts)) return false;
        begin = at + n;
    }
    return put_part(text, begin, text->length, run);
}

/* --- questions --- */

static bool encode_asked(const Chat *chat, const json_t *messages, const json_t *object,
                         TokenRun *run, SourceLoc loc, Diag *diag) {
    const ChatTalk talk = {.messages = messages, .object = object};
    ChatTexts texts;
    int64_t n_bytes = 0;
    bool good = chat_jinja_ask(&chat->jinja, &talk, &texts, loc, diag) &&
                chat_encode_text(chat, &texts.items[0], run, &n_bytes);
    chat_texts_release(&texts);
    return good;
}

bool chat_encode_question(const Chat *chat, const json_t *messages, const json_t *object,
                          TokenRun *run, SourceLoc loc, Diag *diag) {
    if (chat_is_jinja(chat)) return encode_asked(chat, messages, object, run, loc, diag);
    size_t n = json_array_size(messages);
    int64_t n_bytes;
    Role role = ROLE_ANSWER;
    if (n > 0 && !read_role(json_array_get(messages, n - 1), n - 1, &role, loc, diag)) return false;
    if (role != ROLE_USER) {
        diag_error(diag, loc, "messages: the last one is not the user's");
        return false;
    }
    return chat_encode(chat, messages, n, run, &n_bytes, loc, diag) &&
           put_template(chat, run, chat->how->answer_before, false);
}

uint32_t chat_answer_end(const Chat *chat, Arena *arena, const char **out_text) {
    if (chat_is_jinja(chat)) return chat_jinja_answer_end(&chat->jinja, arena, out_text);
    const char *after = chat->how->answer_after;
    *out_text = NULL;
    for (const char *at = after; at && *at; at++) {
        int token = token_at(chat, at);
        if (token >= 0) return chat->tokens[token];
    }
    if (after && *after) *out_text = after;
    return NO_TOKEN;
}
