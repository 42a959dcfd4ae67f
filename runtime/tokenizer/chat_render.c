/* Conversations -> texts, by templates in Jinja, and which parts of them are the answers. */
#include "runtime/tokenizer/chat_jinja.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct Rendering {
    const ChatReady *ready;
    const ChatTalk *talk;
    json_t *messages; /* as templates expect them */
    json_t **values;  /* of variables, for as long as the work lasts */
    Jinja *jinja;
    const JinjaTemplate *template;
    ChatTexts *out;
    SourceLoc loc;
    Diag *diag;
} Rendering;

/* --- messages --- */

/* {"from": ..., "value": ...}, as ShareGPT has it, with the names that templates know. */
static void rename_keys(json_t *message) {
    static const char *const ROLES[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    json_t *from = json_object_get(message, "from"), *value = json_object_get(message, "value");
    const char *role = json_string_value(from);
    if (json_object_get(message, "role") || !role) return;
    for (int i = 0; i < 2; i++) {
        if (strcmp(role, ROLES[i][0]) == 0) role = ROLES[i][1];
    }
    json_object_set_new(message, "role", json_string(role));
    if (value && !json_object_get(message, "content")) json_object_set(message, "content", value);
    json_object_del(message, "from");
    json_object_del(message, "value");
}

/* Thoughts have several names; as transformers does, they get all that templates read. */
static json_t *with_thoughts(json_t *message) {
    static const char *const NAMES[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *thoughts = NULL, *out = json_object();
    for (int i = 0; i < 3 && !thoughts; i++) thoughts = json_object_get(message, NAMES[i]);
    if (thoughts) json_object_set(out, "thinking", thoughts);
    json_object_update(out, message);
    if (thoughts) json_object_set(out, "reasoning_content", thoughts);
    return out;
}

/* Without what is null, as transformers does, and without what is for training only. */
static json_t *normalized(const json_t *message) {
    json_t *kept = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)message, key, value) {
        if (!json_is_null(value) && strcmp(key, "weight") != 0) json_object_set(kept, key, value);
    }
    rename_keys(kept);
    json_t *out = with_thoughts(kept);
    json_decref(kept);
    return out;
}

static const char *role_of(const Rendering *r, size_t i) {
    return json_string_value(json_object_get(json_array_get(r->messages, i), "role"));
}

static bool read_messages(Rendering *r) {
    const json_t *message;
    size_t i;
    r->messages = json_array();
    json_array_foreach(r->talk->messages, i, message) {
        const json_t *weight = json_object_get(message, "weight");
        bool asked = weight && !json_is_null(weight);
        if (json_is_object(message)) json_array_append_new(r->messages, normalized(message));
        if (!json_is_object(message) || !role_of(r, i)) {
            diag_error(r->diag, r->loc, "messages[%zu]: no object with a 'role'", i);
            return false;
        }
        if (asked && (!json_is_number(weight) || strcmp(role_of(r, i), "assistant") != 0 ||
                      (json_number_value(weight) != 0 && json_number_value(weight) != 1))) {
            diag_error(r->diag, r->loc,
                       "messages[%zu]: 'weight' is 0 or 1, of an assistant's message", i);
            return false;
        }
    }
    return true;
}

static bool counts(const Rendering *r, size_t i) {
    const json_t *weight = json_object_get(json_array_get(r->talk->messages, i), "weight");
    return strcmp(role_of(r, i), "assistant") == 0 && i >= r->talk->n_asked &&
           !(json_is_number(weight) && json_number_value(weight) == 0);
}

/* --- variables --- */

/* A list, or JSON of one in a text, as files that have rows and columns keep it; NULL: none. */
static bool read_list(Rendering *r, const char *name, json_t **out) {
    const json_t *value = json_object_get(r->talk->object, name);
    json_error_t error;
    *out = NULL;
    if (!value || json_is_null(value)) return true;
    *out = json_is_string(value) ? json_loadb(json_string_value(value), json_string_length(value),
                                              JSON_REJECT_DUPLICATES, &error)
                                 : json_incref((json_t *)(uintptr_t)value);
    if (json_is_array(*out)) return true;
    diag_error(r->diag, r->loc, "'%s' is no list, nor JSON of one in a text", name);
    return false;
}

static bool read_kwargs(Rendering *r, json_t **out) {
    json_t *value = json_object_get(r->talk->object, "chat_template_kwargs");
    *out = NULL;
    if (!value || json_is_null(value)) return true;
    *out = json_incref(value);
    if (json_is_object(value)) return true;
    diag_error(r->diag, r->loc, "'chat_template_kwargs' is no object");
    return false;
}

enum { TOOLS, DOCUMENTS, KWARGS, N_VALUES };

/* What the conversation's line says comes before what is set by hand. */
static void set_variables(Rendering *r) {
    const ChatReady *ready = r->ready;
    json_t *value;
    const char *name;
    jinja_set_json(r->jinja, "tools", NULL, false);
    jinja_set_json(r->jinja, "documents", NULL, false);
    for (int i = 0; i < ready->n_variables; i++) {
        const ChatVariable *variable = &ready->variables[i];
        json_t **kept = &r->values[N_VALUES + i];
        if (variable->text) {
            jinja_set_text(r->jinja, variable->name, variable->text);
        } else {
            *kept = json_loads(variable->json, JSON_DECODE_ANY, NULL);
            jinja_set_json(r->jinja, variable->name, *kept, false);
        }
    }
    json_object_foreach(r->values[KWARGS], name, value) {
        jinja_set_json(r->jinja, name, value, true);
    }
    if (r->values[TOOLS]) jinja_set_json(r->jinja, "tools", r->values[TOOLS], true);
    if (r->values[DOCUMENTS]) jinja_set_json(r->jinja, "documents", r->values[DOCUMENTS], true);
    jinja_set_json(r->jinja, "messages", r->messages, true);
    jinja_set_unsaid(r->jinja, "messages", "role"); /* of which some templates make tokens */
}

static bool begin(Rendering *r) {
    const ChatJinja *jinja = r->ready->jinja;
    r->values = memory_zeroed((size_t)(N_VALUES + r->ready->n_variables), sizeof(*r->values));
    if (!read_messages(r) || !read_list(r, "tools", &r->values[TOOLS]) ||
        !read_list(r, "documents", &r->values[DOCUMENTS]) || !read_kwargs(r, &r->values[KWARGS])) {
        return false;
    }
    bool tools = r->values[TOOLS] && jinja->tools;
    r->template = tools ? jinja->tools : jinja->plain;
    r->jinja = jinja_open(r->template, r->ready->now);
    set_variables(r);
    return true;
}

static void end(Rendering *r) {
    jinja_close(r->jinja);
    for (int i = 0; r->values && i < N_VALUES + r->ready->n_variables; i++) {
        json_decref(r->values[i]);
    }
    free(r->values);
    json_decref(r->messages);
}

/* The first n messages; prompt: with what stands before an answer. */
static bool try_render(Rendering *r, size_t n, bool prompt, JinjaText *out) {
    jinja_set_length(r->jinja, "messages", n);
    jinja_set_bool(r->jinja, "add_generation_prompt", prompt);
    return jinja_render(r->jinja, out);
}

static bool render(Rendering *r, size_t n, bool prompt, JinjaText *out) {
    if (try_render(r, n, prompt, out)) return true;
    diag_error(r->diag, r->loc, "chat template %s", jinja_error(r->jinja));
    return false;
}

/* --- texts and their beginnings --- */

static bool begins_with(const JinjaText *text, const JinjaText *with) {
    return text->length >= with->length && memcmp(text->text, with->text, with->length) == 0;
}

static size_t shared_length(const JinjaText *a, const JinjaText *b) {
    size_t n = 0;
    while (n < a->length && n < b->length && a->text[n] == b->text[n]) n++;
    return n;
}

static void push(ChatTexts *texts, JinjaText text) {
    if (texts->count == texts->capacity) {
        texts->capacity = texts->capacity ? 2 * texts->capacity : 2;
        texts->items = memory_grow(texts->items, (size_t)texts->capacity * sizeof(JinjaText));
    }
    texts->items[texts->count++] = text;
}

void chat_texts_release(ChatTexts *texts) {
    for (int i = 0; i < texts->count; i++) jinja_text_release(&texts->items[i]);
    free(texts->items);
    *texts = (ChatTexts){0};
}

size_t chat_text_token(const ChatReady *ready, const JinjaText *text, size_t at,
                       uint32_t *out_token) {
    size_t most = 0;
    if (!ready->spelled.begins[(unsigned char)text->text[at]]) return 0;
    while (at + most < text->length && !(text->marks[at + most] & JINJA_SAID) &&
           most < ADDED_TOKEN_MOST_BYTES) {
        most++;
    }
    return spelled_tokens_at(&ready->spelled, text->text + at, most, out_token);
}

bool chat_text_is_open(const ChatReady *ready, const JinjaText *text) {
    size_t n = text->length, at = n > ADDED_TOKEN_MOST_BYTES ? n - ADDED_TOKEN_MOST_BYTES : 0;
    uint32_t token;
    if (n == 0 || !(text->marks[n - 1] & JINJA_ANSWER)) return false;
    for (; at < n; at++) {
        if (at + chat_text_token(ready, text, at, &token) == n) return false;
    }
    return true;
}

/* Where an answer that begins there ends: behind its last special token, if only white space of the
 * template's follows that, else with the text. */
static size_t answer_end(const ChatReady *ready, const JinjaText *text, size_t begin_at) {
    size_t last = text->length, n;
    uint32_t token;
    bool only_space = false;
    for (size_t at = begin_at; at < text->length; at += n) {
        n = chat_text_token(ready, text, at, &token);
        if (n) {
            last = at + n;
            only_space = true;
        } else {
            only_space =
                only_space && !(text->marks[at] & JINJA_SAID) && strchr(" \t\n\r", text->text[at]);
            n = 1;
        }
    }
    return only_space ? last : text->length;
}

/* --- where an answer begins --- */

static size_t first_said(const JinjaText *text, size_t from) {
    while (from < text->length && !(text->marks[from] & JINJA_SAID)) from++;
    return from;
}

/* Not within a character, nor within a special token that begins at `from` or later. */
static size_t whole_place(const Rendering *r, const JinjaText *text, size_t from, size_t at) {
    uint32_t token;
    while (at > from && at < text->length && ((unsigned char)text->text[at] & 0xc0) == 0x80) at--;
    for (size_t i = from, n; i < at; i += n) {
        n = chat_text_token(r->ready, text, i, &token);
        if (i + n > at) return i;
        n = n ? n : 1;
    }
    return at;
}

/* Of templates whose prompt for an answer is not how answers are told later (thoughts are asked
 * for, and left out): where the two part, or where the message's own text begins. */
static bool find_parting(Rendering *r, size_t i, const JinjaText *prompt, const JinjaText *full,
                         size_t *out) {
    JinjaText before;
    if (!render(r, i, false, &before)) return false;
    size_t n = before.length, shared = shared_length(prompt, full), said = first_said(full, n);
    bool good = begins_with(full, &before) && shared >= n;
    jinja_text_release(&before);
    if (!good) {
        diag_error(
            r->diag, r->loc,
            "messages[%zu]: the chat template %s tells what is before this answer in another "
            "way once it is there, so where it begins is not known: it needs {%% generation "
            "%%} around answers",
            i, r->ready->jinja->path);
        return false;
    }
    *out = whole_place(r, full, n, shared < said ? shared : said);
    return true;
}

/* full: the first i + 1 messages, of which the last is an answer. */
static bool find_begin(Rendering *r, size_t i, const JinjaText *full, size_t *out) {
    JinjaText prompt;
    *out = first_said(full, 0);
    if (!try_render(r, i, true, &prompt)) {
        if (i == 0) return true; /* of nothing, templates often make an error */
        diag_error(r->diag, r->loc, "messages[%zu]: before this answer: chat template %s", i,
                   jinja_error(r->jinja));
        return false;
    }
    bool good = true;
    if (begins_with(full, &prompt)) {
        *out = prompt.length;
    } else if (i > 0) {
        good = find_parting(r, i, &prompt, full, out);
    }
    jinja_text_release(&prompt);
    return good;
}

/* --- by beginnings --- */

static void take_marks(JinjaText *text, const JinjaText *from) {
    for (size_t i = 0; i < from->length; i++) text->marks[i] |= from->marks[i] & JINJA_ANSWER;
}

/* `next` comes in the place of the text so far, if that is its beginning; else that is a text of
 * its own. */
static void advance(Rendering *r, JinjaText *text, JinjaText next) {
    if (text->text && begins_with(&next, text)) {
        uint32_t token;
        size_t at = text->length, n = 0;
        take_marks(&next, text);
        /* What ends an answer that nothing ended is what the next turn begins with. */
        if (chat_text_is_open(r->ready, text) && at < next.length) {
            n = chat_text_token(r->ready, &next, at, &token);
        }
        memset(next.marks + at, JINJA_ANSWER, n);
        jinja_text_release(text);
    } else if (text->text) {
        push(r->out, *text);
    }
    *text = next;
}

static bool render_answers(Rendering *r) {
    size_t n = json_array_size(r->messages), told = 0;
    JinjaText text = {0}, full;
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!counts(r, i)) continue;
        if (!render(r, i + 1, false, &full)) return jinja_text_release(&text), false;
        if (!find_begin(r, i, &full, &at)) {
            jinja_text_release(&full);
            return jinja_text_release(&text), false;
        }
        advance(r, &text, full);
        size_t last = answer_end(r->ready, &text, at);
        for (; at < last; at++) text.marks[at] |= JINJA_ANSWER;
        told = i + 1;
    }
    if (told < n) { /* what is behind the last answer, if it changes nothing before it */
        if (!render(r, n, false, &full)) return jinja_text_release(&text), false;
        if (!text.text || begins_with(&full, &text)) {
            advance(r, &text, full);
        } else {
            jinja_text_release(&full);
        }
    }
    push(r->out, text);
    return true;
}

/* --- by {% generation %} --- */

/* How far the text of the first n messages reaches into that of all. */
static bool reach(Rendering *r, const JinjaText *all, size_t n, size_t *out) {
    JinjaText part;
    *out = n ? all->length : 0;
    if (n == 0 || n == json_array_size(r->messages)) return true;
    if (!render(r, n, false, &part)) return false;
    bool good = begins_with(all, &part);
    *out = part.length;
    jinja_text_release(&part);
    if (good) return true;
    diag_error(r->diag, r->loc,
               "the chat template %s tells the first %zu messages in another way once more follow, "
               "so which of its answers do not count is not known",
               r->ready->jinja->path, n);
    return false;
}

/* Answers that do not count are not marked. */
static bool unmark(Rendering *r, JinjaText *text) {
    for (size_t i = 0; i < json_array_size(r->messages); i++) {
        size_t from, to;
        if (counts(r, i) || strcmp(role_of(r, i), "assistant") != 0) continue;
        if (!reach(r, text, i, &from) || !reach(r, text, i + 1, &to)) return false;
        for (; from < to; from++) text->marks[from] &= (unsigned char)~JINJA_ANSWER;
    }
    return true;
}

static bool render_marked(Rendering *r) {
    JinjaText text;
    if (!render(r, json_array_size(r->messages), false, &text)) return false;
    push(r->out, text);
    return unmark(r, &r->out->items[0]);
}

/* --- all --- */

bool chat_jinja_render(const ChatReady *ready, const ChatTalk *talk, ChatTexts *out, SourceLoc loc,
                       Diag *diag) {
    Rendering r = {.ready = ready, .talk = talk, .out = out, .loc = loc, .diag = diag};
    *out = (ChatTexts){0};
    bool good = begin(&r);
    if (good) {
        bool marked = jinja_has_generation(r.template);
        good = marked ? render_marked(&r) : render_answers(&r);
    }
    end(&r);
    if (good && talk->one && out->count > 1) {
        diag_error(diag, loc,
                   "the chat template %s tells the first of these answers in another way once the "
                   "next follows: give only the last one as the answer",
                   ready->jinja->path);
        good = false;
    }
    return good;
}

bool chat_jinja_ask(const ChatReady *ready, const ChatTalk *talk, ChatTexts *out, SourceLoc loc,
                    Diag *diag) {
    Rendering r = {.ready = ready, .talk = talk, .out = out, .loc = loc, .diag = diag};
    JinjaText text;
    *out = (ChatTexts){0};
    bool good = begin(&r);
    size_t n = json_array_size(r.messages);
    if (good && (n == 0 || strcmp(role_of(&r, n - 1), "assistant") == 0)) {
        diag_error(diag, loc, "messages: the last one is not the user's");
        good = false;
    }
    good = good && render(&r, n, true, &text);
    if (good) push(out, text);
    end(&r);
    return good;
}

uint32_t chat_jinja_answer_end(const ChatReady *ready, Arena *arena, const char **out_text) {
    static const char PROBE[] = "[{\"role\": \"user\", \"content\": \"question\"},"
                                " {\"role\": \"assistant\", \"content\": \"answer\"}]";
    json_t *messages = json_loads(PROBE, 0, NULL);
    Diag *quiet = diag_create();
    ChatTalk talk = {.messages = messages};
    ChatTexts texts;
    uint32_t token, found = NO_TOKEN;
    *out_text = NULL;
    if (chat_jinja_render(ready, &talk, &texts, NO_LOC, quiet) && texts.count == 1) {
        const JinjaText *text = &texts.items[0];
        const char *answer = strstr(text->text, "answer");
        for (const char *next = answer; next; next = strstr(next + 1, "answer")) answer = next;
        size_t at = answer ? (size_t)(answer - text->text) + strlen("answer") : text->length;
        bool says = at + strspn(text->text + at, " \t\r\n") < text->length;
        if (says) *out_text = arena_strdup(arena, text->text + at);
        for (; at < text->length && found == NO_TOKEN; at++) {
            if (chat_text_token(ready, text, at, &token)) found = token;
        }
    }
    if (found != NO_TOKEN) *out_text = NULL;
    chat_texts_release(&texts);
    diag_destroy(quiet);
    json_decref(messages);
    return found;
}
