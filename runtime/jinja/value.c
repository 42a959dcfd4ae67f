#include "runtime/jinja/value.h"

#include "ir/base/memory.h"
#include "runtime/jinja/run.h"

#include <stdio.h>
#include <string.h>

/* --- memory, steps, errors --- */

#if defined(__SANITIZE_ADDRESS__)
enum { BLOCK_BYTES = 0 }; /* running over an allocation's end shows */
#else
enum { BLOCK_BYTES = 64 * 1024 };
#endif
static const size_t MOST_BYTES = (size_t)256 << 20;
static const int64_t MOST_STEPS = 50 * 1000 * 1000;

void *jinja_alloc(Jinja *jinja, size_t bytes) {
    JinjaBlock *block = jinja->blocks;
    bytes = (bytes + 15) & ~(size_t)15;
    jinja->n_bytes += bytes;
    if (jinja->n_bytes > MOST_BYTES) jinja_fail(jinja, "it takes more than 256 MiB of memory");
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        JinjaBlock *fresh = memory_alloc(sizeof(*fresh) + size);
        *fresh = (JinjaBlock){.before = block, .size = size};
        jinja->blocks = block = fresh;
    }
    void *out = block->data + block->used;
    block->used += bytes;
    return out;
}

bool jinja_step(Jinja *jinja, size_t n) {
    jinja->n_steps += (int64_t)n;
    if (jinja->n_steps > MOST_STEPS) jinja_fail(jinja, "it takes too many steps");
    return !jinja->failed;
}

bool jinja_failed(const Jinja *jinja) {
    return jinja->failed;
}

JinjaValue jinja_fail(Jinja *jinja, const char *format, ...) {
    if (!jinja->failed) {
        va_list args;
        va_start(args, format);
        int n = snprintf(jinja->error, sizeof(jinja->error), "%s:%d: ", jinja->template->path,
                         jinja->line);
        if (n > 0 && (size_t)n < sizeof(jinja->error)) {
            vsnprintf(jinja->error + n, sizeof(jinja->error) - (size_t)n, format, args);
        }
        va_end(args);
    }
    jinja->failed = true;
    return jinja_undefined(NULL);
}

/* --- strings --- */

static JinjaValue string(Jinja *jinja, JinjaString value) {
    JinjaString *out = jinja_alloc(jinja, sizeof(*out));
    *out = value;
    return JINJA_VALUE(JINJA_STRING, string, out);
}

JinjaValue jinja_bytes(Jinja *jinja, const char *text, size_t length, unsigned char mark) {
    return string(jinja, (JinjaString){.text = text, .length = length, .mark = mark});
}

JinjaValue jinja_text(Jinja *jinja, const char *text) {
    return jinja_bytes(jinja, text, strlen(text), 0);
}

JinjaValue jinja_slice(Jinja *jinja, const JinjaString *of, size_t begin, size_t end) {
    return string(jinja, (JinjaString){.text = of->text + begin,
                                       .length = end - begin,
                                       .marks = of->marks ? of->marks + begin : NULL,
                                       .mark = of->mark,
                                       .markup = of->markup});
}

JinjaValue jinja_as_markup(Jinja *jinja, const JinjaString *text) {
    JinjaString out = *text;
    out.markup = true;
    return string(jinja, out);
}

/* Room for so many bytes more; false: there is none. */
static bool reserve(Jinja *jinja, JinjaBuilder *out, size_t length) {
    if (length > JINJA_MOST_STRING || out->length + length > JINJA_MOST_STRING) {
        jinja_fail(jinja, "a text is longer than 64 MiB");
        return false;
    }
    if (out->length + length <= out->capacity) return true;
    size_t capacity = out->capacity ? 2 * out->capacity : 64;
    while (capacity < out->length + length) capacity *= 2;
    char *text = jinja_alloc(jinja, 2 * capacity);
    unsigned char *marks = (unsigned char *)text + capacity;
    if (out->length > 0) {
        memcpy(text, out->text, out->length);
        memcpy(marks, out->marks, out->length);
    }
    out->text = text;
    out->marks = marks;
    out->capacity = capacity;
    return !jinja->failed;
}

void jinja_put_bytes(Jinja *jinja, JinjaBuilder *out, const char *text, size_t length,
                     unsigned char mark) {
    if (length == 0 || !jinja_step(jinja, length / 64) || !reserve(jinja, out, length)) return;
    memcpy(out->text + out->length, text, length);
    memset(out->marks + out->length, mark, length);
    out->length += length;
}

void jinja_put_text(Jinja *jinja, JinjaBuilder *out, const char *text) {
    jinja_put_bytes(jinja, out, text, strlen(text), 0);
}

void jinja_put_slice(Jinja *jinja, JinjaBuilder *out, const JinjaString *of, size_t begin,
                     size_t end) {
    size_t at = out->length;
    jinja_put_bytes(jinja, out, of->text + begin, end - begin, of->mark);
    if (of->marks && out->length > at) memcpy(out->marks + at, of->marks + begin, end - begin);
}

void jinja_put_string(Jinja *jinja, JinjaBuilder *out, const JinjaString *of) {
    jinja_put_slice(jinja, out, of, 0, of->length);
}

JinjaValue jinja_built(Jinja *jinja, const JinjaBuilder *builder) {
    return string(jinja, (JinjaString){.text = builder->text ? builder->text : "",
                                       .length = builder->length,
                                       .marks = builder->length ? builder->marks : NULL});
}

JinjaValue jinja_built_like(Jinja *jinja, const JinjaBuilder *builder, const JinjaString *like) {
    JinjaValue out = jinja_built(jinja, builder);
    return like->markup ? jinja_as_markup(jinja, out.string) : out;
}

/* --- lists --- */

JinjaValue jinja_list(Jinja *jinja, JinjaFlavor flavor, size_t capacity) {
    JinjaList *list = jinja_alloc(jinja, sizeof(*list));
    *list = (JinjaList){.flavor = flavor, .capacity = capacity};
    if (capacity) list->items = jinja_alloc(jinja, capacity * sizeof(*list->items));
    return JINJA_VALUE(JINJA_LIST, list, list);
}

void jinja_list_add(Jinja *jinja, JinjaList *list, JinjaValue value) {
    if (!jinja_step(jinja, 1)) return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        JinjaValue *items = jinja_alloc(jinja, capacity * sizeof(*items));
        if (list->count) memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
}

JinjaValue jinja_pair(Jinja *jinja, JinjaValue a, JinjaValue b) {
    JinjaValue pair = jinja_list(jinja, FLAVOR_TUPLE, 2);
    jinja_list_add(jinja, pair.list, a);
    jinja_list_add(jinja, pair.list, b);
    return pair;
}

/* --- dictionaries --- */

JinjaValue jinja_dict(Jinja *jinja, JinjaKind kind, size_t capacity) {
    JinjaDict *dict = jinja_alloc(jinja, sizeof(*dict));
    *dict = (JinjaDict){.capacity = capacity};
    if (capacity) dict->entries = jinja_alloc(jinja, capacity * sizeof(*dict->entries));
    return JINJA_VALUE(kind, dict, dict);
}

static bool can_be_key(JinjaValue key) {
    if (key.kind == JINJA_LIST && key.list->flavor == FLAVOR_TUPLE) {
        for (size_t i = 0; i < key.list->count; i++) {
            if (!can_be_key(key.list->items[i])) return false;
        }
        return true;
    }
    return key.kind != JINJA_LIST && key.kind != JINJA_DICT;
}

static bool same_key(Jinja *jinja, JinjaValue a, JinjaValue b) {
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        return a.string->length == b.string->length &&
               memcmp(a.string->text, b.string->text, a.string->length) == 0;
    }
    return jinja_equal(jinja, a, b);
}

const JinjaValue *jinja_dict_get(Jinja *jinja, const JinjaDict *dict, JinjaValue key) {
    for (size_t i = 0; i < dict->count; i++) {
        if (same_key(jinja, dict->entries[i].key, key)) return &dict->entries[i].value;
    }
    jinja_step(jinja, dict->count / 8);
    return NULL;
}

const JinjaValue *jinja_dict_get_text(Jinja *jinja, const JinjaDict *dict, const char *key) {
    const JinjaString name = {.text = key, .length = strlen(key)};
    return jinja_dict_get(jinja, dict, JINJA_VALUE(JINJA_STRING, string, &name));
}

bool jinja_dict_set(Jinja *jinja, JinjaDict *dict, JinjaValue key, JinjaValue value) {
    if (!can_be_key(key)) {
        jinja_fail(jinja, "a %s cannot be a key", jinja_type_name(key));
        return false;
    }
    for (size_t i = 0; i < dict->count; i++) {
        if (!same_key(jinja, dict->entries[i].key, key)) continue;
        dict->entries[i].value = value;
        return true;
    }
    if (!jinja_step(jinja, 1 + dict->count / 8)) return false;
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity ? 2 * dict->capacity : 8;
        JinjaEntry *entries = jinja_alloc(jinja, capacity * sizeof(*entries));
        if (dict->count) memcpy(entries, dict->entries, dict->count * sizeof(*entries));
        dict->entries = entries;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (JinjaEntry){key, value};
    return true;
}

/* --- from JSON --- */

static JinjaValue object_from_json(Jinja *jinja, const json_t *json, unsigned char mark) {
    JinjaValue out = jinja_dict(jinja, JINJA_DICT, json_object_size(json));
    const char *key;
    json_t *value;
    /* Keys differ already: nothing is looked for. */
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        out.dict->entries[out.dict->count++] = (JinjaEntry){
            jinja_bytes(jinja, key, strlen(key), mark), jinja_from_json(jinja, value, mark != 0)};
    }
    return out;
}

/* As deep as jansson reads, 2048 at most. */
JinjaValue jinja_from_json(Jinja *jinja, const json_t *json, bool said) {
    unsigned char mark = said ? JINJA_SAID : 0;
    switch (json_typeof(json)) {
    case JSON_OBJECT: return object_from_json(jinja, json, mark);
    case JSON_ARRAY: {
        JinjaValue out = jinja_list(jinja, FLAVOR_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++) {
            out.list->items[out.list->count++] =
                jinja_from_json(jinja, json_array_get(json, i), said);
        }
        return out;
    }
    case JSON_STRING:
        return jinja_bytes(jinja, json_string_value(json), json_string_length(json), mark);
    case JSON_INTEGER: return jinja_int(json_integer_value(json));
    case JSON_REAL: return jinja_float(json_real_value(json));
    case JSON_TRUE: return jinja_bool(true);
    case JSON_FALSE: return jinja_bool(false);
    default: return jinja_none();
    }
}
