#include "runtime/tokenizer/corpus_images.h"

#include "ir/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* A template of images, asked about one, writes the place of it. */
static bool writes_parts(const Chat *chat, const char *spelling) {
    static const char ASKED[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, "
                                "{\"type\": \"text\", \"text\": \"?\"}]}]";
    if (!chat || !chat_is_jinja(chat)) return false;
    json_t *messages = json_loads(ASKED, 0, NULL);
    const ChatTalk talk = {.messages = messages};
    Diag *quiet = diag_create();
    ChatTexts texts = {0};
    bool writes = chat_jinja_ask(&chat->jinja, &talk, &texts, NO_LOC, quiet);
    if (writes) {
        char *text = memory_strndup(texts.items[0].text, texts.items[0].length);
        writes = strstr(text, spelling) || strstr(text, CORPUS_IMAGE_PLACE);
        free(text);
    }
    chat_texts_release(&texts);
    diag_destroy(quiet);
    json_decref(messages);
    return writes;
}

CorpusImages corpus_images_of(ImageStore *store, const Tokenizer *tokenizer, uint32_t token,
                              const Chat *chat, Arena *arena) {
    const char *spelling = CORPUS_IMAGE_PLACE;
    if (token < tokenizer->n_ids && tokenizer_is_special(tokenizer, token)) {
        size_t length;
        const char *text = tokenizer_text(tokenizer, token, &length);
        if (length > 0) spelling = arena_strndup(arena, text, length);
    }
    return (CorpusImages){store, token, spelling, writes_parts(chat, spelling)};
}

/* --- names --- */

static void push(ImageNumbers *numbers, int64_t number) {
    if (numbers->count == numbers->capacity) {
        numbers->capacity = numbers->capacity ? 2 * numbers->capacity : 4;
        numbers->items = memory_grow(numbers->items, numbers->capacity * sizeof(*numbers->items));
    }
    numbers->items[numbers->count++] = number;
}

static bool add_name(const CorpusImages *images, const char *name, size_t length, ImageNumbers *out,
                     SourceLoc loc, Diag *diag) {
    int64_t number = image_store_add(images->store, name, length, loc, diag);
    if (number < 0) return false;
    push(out, number);
    return true;
}

/* A name, or an object that has one; NULL: neither. */
static const json_t *name_of(const json_t *value) {
    static const char *const KEYS[] = {"image", "path", "url", "image_url"};
    if (json_is_string(value)) return value;
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        const json_t *name = json_object_get(value, KEYS[i]);
        if (json_is_object(name)) name = json_object_get(name, "url");
        if (json_is_string(name)) return name;
    }
    return NULL;
}

static bool add_value(const CorpusImages *images, const json_t *value, ImageNumbers *out,
                      SourceLoc loc, Diag *diag) {
    const json_t *name = name_of(value);
    if (name) {
        return add_name(images, json_string_value(name), json_string_length(name), out, loc, diag);
    }
    diag_error(diag, loc, "an image is a path, or an object with one as 'path'");
    return false;
}

bool corpus_images_take(const CorpusImages *images, const json_t *object, ImageNumbers *out,
                        SourceLoc loc, Diag *diag) {
    static const char *const KEYS[] = {"image", "images"};
    for (int k = 0; k < 2; k++) {
        const json_t *value = json_object_get(object, KEYS[k]), *item;
        size_t i;
        if (!value || json_is_null(value)) continue;
        if (!json_is_array(value)) {
            if (!add_value(images, value, out, loc, diag)) return false;
            continue;
        }
        json_array_foreach(value, i, item) {
            if (!add_value(images, item, out, loc, diag)) return false;
        }
    }
    return true;
}

/* --- places --- */

static const char *find(const char *text, size_t length, const char *what) {
    const size_t n = strlen(what);
    for (size_t at = 0; at + n <= length; at++) {
        if (memcmp(text + at, what, n) == 0) return text + at;
    }
    return NULL;
}

static bool has_place(const CorpusImages *images, const char *text, size_t length) {
    return find(text, length, images->spelling) || find(text, length, CORPUS_IMAGE_PLACE);
}

/* What is said, in parts: {"type": "image"} and {"type": "text"}. */
typedef struct Parts {
    const CorpusImages *images;
    const ImageNumbers *beside; /* those that parts without names take, in order */
    size_t n_taken;
    size_t n_places;
    ImageNumbers *out;
    SourceLoc loc;
    Diag *diag;
} Parts;

static void append(json_t *list, json_t *item) {
    if (!item || json_array_append_new(list, item) != 0) memory_exhausted(0);
}

static void add_text(json_t *list, const char *text, size_t length) {
    append(list, json_pack("{s:s, s:s%}", "type", "text", "text", text, length));
}

/* One of those beside; more places than there are, are counted in the end. */
static void take_beside(Parts *p) {
    p->n_places++;
    if (p->n_taken < p->beside->count) push(p->out, p->beside->items[p->n_taken++]);
}

/* A text may have places. LLaVA's data have a line's end between a place and the text, where
 * templates put their own. */
static void split_text(Parts *p, const char *text, size_t length, json_t *list) {
    const char *end = text + length;
    while (text < end) {
        const size_t n = (size_t)(end - text);
        const char *place = find(text, n, CORPUS_IMAGE_PLACE);
        size_t width = strlen(CORPUS_IMAGE_PLACE);
        const char *other = find(text, n, p->images->spelling);
        if (other && (!place || other < place)) {
            place = other;
            width = strlen(p->images->spelling);
        }
        const char *stop = place ? place : end;
        const char *shown = stop;
        if (place && p->images->parts && stop > text && stop[-1] == '\n') shown--;
        if (shown > text) add_text(list, text, (size_t)(shown - text));
        if (!place) break;
        append(list, json_pack("{s:s}", "type", "image"));
        take_beside(p);
        text = place + width;
        if (p->images->parts && text < end && *text == '\n') text++;
    }
}

static bool is_image(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    return type && (strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0 ||
                    strcmp(type, "input_image") == 0);
}

static bool add_part(Parts *p, const json_t *part, json_t *list) {
    const json_t *text = json_object_get(part, "text");
    if (!is_image(part)) {
        if (json_is_string(text) &&
            has_place(p->images, json_string_value(text), json_string_length(text))) {
            split_text(p, json_string_value(text), json_string_length(text), list);
            return true;
        }
        append(list, json_incref((json_t *)(uintptr_t)part));
        return true;
    }
    append(list, json_pack("{s:s}", "type", "image"));
    if (!name_of(part)) {
        take_beside(p);
        return true;
    }
    p->n_places++;
    return add_value(p->images, part, p->out, p->loc, p->diag);
}

/* NULL: reported. */
static json_t *parts_of(Parts *p, const json_t *content) {
    json_t *list = json_array();
    const json_t *part;
    size_t i;
    bool good = list != NULL;
    if (json_is_string(content)) {
        split_text(p, json_string_value(content), json_string_length(content), list);
        if (json_array_size(list) == 0) add_text(list, "", 0);
    }
    json_array_foreach(content, i, part) {
        good = good && add_part(p, part, list);
    }
    if (good) return list;
    json_decref(list);
    return NULL;
}

/* Parts as one text, for templates that know no others; NULL: there is something else in it. */
static json_t *text_of(const CorpusImages *images, const json_t *list) {
    StrBuf text = strbuf_create();
    const json_t *part;
    size_t i;
    bool good = true;
    json_array_foreach(list, i, part) {
        const json_t *said = json_object_get(part, "text");
        if (is_image(part)) {
            strbuf_put(&text, images->spelling);
        } else if (json_is_string(said)) {
            strbuf_put_bytes(&text, json_string_value(said), json_string_length(said));
        } else {
            good = false;
        }
    }
    json_t *out = good ? json_stringn(text.text ? text.text : "", text.length) : NULL;
    strbuf_destroy(&text);
    return out;
}

/* --- messages --- */

static const char *content_key(const json_t *message) {
    return json_object_get(message, "content") ? "content" : "value";
}

static bool is_users(const json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role) role = json_string_value(json_object_get(message, "from"));
    return role && (strcmp(role, "user") == 0 || strcmp(role, "human") == 0);
}

static bool put_parts(Parts *p, json_t *messages) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        const char *key = content_key(message);
        const json_t *content = json_object_get(message, key);
        if (!json_is_string(content) && !json_is_array(content)) continue;
        json_t *list = parts_of(p, content);
        if (!list) return false;
        json_object_set_new(message, key, list);
    }
    return true;
}

/* Where nothing says where they are. */
static void put_in_front(Parts *p, json_t *messages) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        json_t *list = json_object_get(message, content_key(message));
        if (!is_users(message) || !json_is_array(list)) continue;
        for (size_t k = 0; k < p->beside->count; k++) {
            json_array_insert_new(list, 0, json_pack("{s:s}", "type", "image"));
            take_beside(p);
        }
        /* A text that a template does not know parts of has a line for each. */
        for (size_t k = 0; !p->images->parts && k < p->beside->count; k++) {
            json_array_insert_new(list, 2 * k + 1,
                                  json_pack("{s:s, s:s}", "type", "text", "text", "\n"));
        }
        return;
    }
}

static void put_texts(const CorpusImages *images, json_t *messages) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        json_t *list = json_object_get(message, content_key(message));
        json_t *text = json_is_array(list) ? text_of(images, list) : NULL;
        if (text) json_object_set_new(message, content_key(message), text);
    }
}

static json_t *copy_messages(const json_t *messages) {
    json_t *out = json_array(), *message;
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)messages, i, message) {
        append(out, json_is_object(message) ? json_copy(message) : json_incref(message));
    }
    return out;
}

json_t *corpus_images_take_chat(const CorpusImages *images, const json_t *object,
                                const json_t *messages, ImageNumbers *out, SourceLoc loc,
                                Diag *diag) {
    ImageNumbers beside = {0};
    Parts p = {.images = images, .beside = &beside, .out = out, .loc = loc, .diag = diag};
    json_t *kept = copy_messages(messages);
    bool good = corpus_images_take(images, object, &beside, loc, diag) && put_parts(&p, kept);
    if (good && p.n_places == 0) put_in_front(&p, kept);
    if (good && (p.n_taken != beside.count || p.n_places != out->count)) {
        diag_error(diag, loc, "%zu images, and %zu places for them in what is said",
                   out->count + beside.count - p.n_taken, p.n_places);
        good = false;
    }
    if (good && !images->parts) put_texts(images, kept);
    free(beside.items);
    if (good) return kept;
    json_decref(kept);
    return NULL;
}

/* --- tokens --- */

void corpus_images_begin(const CorpusImages *images, TokenRun *run) {
    run->places[0] = images->spelling;
    run->places[1] = CORPUS_IMAGE_PLACE;
    run->place_token = images->token;
}

static bool string_has_place(const CorpusImages *images, const json_t *text) {
    return text && has_place(images, json_string_value(text), json_string_length(text));
}

bool corpus_images_put_places(const CorpusImages *images, const ImageNumbers *numbers,
                              TokenRun *run, const json_t *text, const json_t *more) {
    if (!images || string_has_place(images, text) || string_has_place(images, more)) return true;
    for (size_t i = 0; i < numbers->count; i++) {
        if (!token_run_token(run, images->token, false)) return false;
    }
    return true;
}

bool corpus_images_end(const CorpusImages *images, const ImageNumbers *numbers, TokenRun *run,
                       SourceLoc loc) {
    size_t n_places = 0;
    if (!token_run_close(run)) return false;
    for (size_t i = run->first; i < run->tokens->count; i++) {
        n_places += run->tokens->items[i] == images->token;
    }
    if (n_places != numbers->count) {
        diag_error(run->diag, loc, "%zu images, and %zu places for them in the text",
                   numbers->count, n_places);
        return false;
    }
    for (size_t i = 0; i < numbers->count; i++) {
        if (!token_run_number(run, (uint32_t)numbers->items[i], false)) return false;
    }
    return token_run_number(run, (uint32_t)numbers->count, false);
}
