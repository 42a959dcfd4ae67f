/* Values as JSON, as Python's json.dumps writes them. */
#include "ir/base/utf8.h"
#include "runtime/jinja/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* "": as it is. */
static void spell(uint32_t character, bool ascii, char *out) {
    static const char NAMED[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    out[0] = '\0';
    for (const char *c = NAMED; character < 0x80 && *c; c += 2) {
        if ((uint32_t)*c != character) continue;
        snprintf(out, 16, "\\%c", c[1]);
        return;
    }
    if (character < 0x20 || (ascii && character >= 0x80 && character < 0x10000)) {
        snprintf(out, 16, "\\u%04" PRIx32, character);
    } else if (ascii && character >= 0x10000) {
        snprintf(out, 16, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((character - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((character - 0x10000) & 0x3ff)));
    }
}

static void put_string(Jinja *jinja, JinjaBuilder *out, const JinjaString *string, bool ascii) {
    size_t begin = 0;
    char spelled[16];
    jinja_put_text(jinja, out, "\"");
    for (size_t at = 0, n; at < string->length && !jinja->failed; at += n) {
        uint32_t character;
        unsigned char byte = (unsigned char)string->text[at];
        n = 1;
        if (byte >= 0x20 && byte != '"' && byte != '\\' && (!ascii || byte < 0x80)) continue;
        int bytes =
            utf8_read((const unsigned char *)string->text + at, string->length - at, &character);
        if (bytes == 0) continue;
        n = (size_t)bytes;
        spell(character, ascii, spelled);
        if (!*spelled) continue;
        jinja_put_slice(jinja, out, string, begin, at);
        jinja_put_bytes(jinja, out, spelled, strlen(spelled), jinja_mark(string, at));
        begin = at + n;
    }
    jinja_put_slice(jinja, out, string, begin, string->length);
    jinja_put_text(jinja, out, "\"");
}

/* What is no text: the same as a value and, within quotes, as a key. False: it is not JSON's. */
static bool spell_scalar(JinjaValue value, char *out) {
    switch (value.kind) {
    case JINJA_NONE: strcpy(out, "null"); return true;
    case JINJA_BOOL: strcpy(out, value.boolean ? "true" : "false"); return true;
    case JINJA_INT: snprintf(out, 32, "%" PRId64, value.integer); return true;
    case JINJA_FLOAT:
        if (isnan(value.real) || isinf(value.real)) {
            strcpy(out, isnan(value.real) ? "NaN" : value.real > 0 ? "Infinity" : "-Infinity");
        } else {
            jinja_format_float(value.real, out);
        }
        return true;
    default: return false;
    }
}

typedef struct Dump {
    Jinja *jinja;
    JinjaBuilder *out;
    const JinjaJson *how;
    int depth;
} Dump;

static void put_value(Dump *dump, JinjaValue value);

/* A new line, and its indentation; nothing where all is on one line. */
static void put_break(const Dump *dump) {
    if (!dump->how->indent) return;
    jinja_put_text(dump->jinja, dump->out, "\n");
    for (int i = 0; i < dump->depth; i++) {
        jinja_put_string(dump->jinja, dump->out, dump->how->indent);
    }
}

static void put_between(const Dump *dump, size_t i) {
    if (i) jinja_put_string(dump->jinja, dump->out, dump->how->between_items);
    put_break(dump);
}

static void put_list(Dump *dump, const JinjaList *list) {
    if (list->flavor > FLAVOR_TUPLE) {
        jinja_fail(dump->jinja, "tojson: a %s is not JSON: |list makes a list of it",
                   list->flavor == FLAVOR_GENERATOR ? "generator" : "view or range");
        return;
    }
    jinja_put_text(dump->jinja, dump->out, "[");
    dump->depth++;
    for (size_t i = 0; i < list->count && !dump->jinja->failed; i++) {
        put_between(dump, i);
        put_value(dump, list->items[i]);
    }
    dump->depth--;
    if (list->count) put_break(dump);
    jinja_put_text(dump->jinja, dump->out, "]");
}

static void put_key(const Dump *dump, JinjaValue key) {
    char text[32];
    if (key.kind == JINJA_STRING) {
        put_string(dump->jinja, dump->out, key.string, dump->how->ensure_ascii);
    } else if (spell_scalar(key, text)) {
        const JinjaString spelled = {.text = text, .length = strlen(text)};
        put_string(dump->jinja, dump->out, &spelled, false);
    } else {
        jinja_fail(dump->jinja, "tojson: a %s is no key", jinja_type_name(key));
    }
}

/* The entries in the order of their keys. */
static const JinjaDict *sorted(Jinja *jinja, const JinjaDict *dict) {
    JinjaDict *out = jinja_dict(jinja, JINJA_DICT, dict->count).dict;
    for (size_t i = 0; i < dict->count && !jinja->failed; i++) {
        size_t at = out->count++;
        for (; at > 0 && jinja_compare(jinja, out->entries[at - 1].key, dict->entries[i].key) > 0;
             at--) {
            out->entries[at] = out->entries[at - 1];
        }
        jinja_step(jinja, out->count - at);
        out->entries[at] = dict->entries[i];
    }
    return out;
}

static void put_dict(Dump *dump, const JinjaDict *dict) {
    if (dump->how->sort_keys) dict = sorted(dump->jinja, dict);
    jinja_put_text(dump->jinja, dump->out, "{");
    dump->depth++;
    for (size_t i = 0; i < dict->count && !dump->jinja->failed; i++) {
        put_between(dump, i);
        put_key(dump, dict->entries[i].key);
        jinja_put_string(dump->jinja, dump->out, dump->how->between_pair);
        put_value(dump, dict->entries[i].value);
    }
    dump->depth--;
    if (dict->count) put_break(dump);
    jinja_put_text(dump->jinja, dump->out, "}");
}

static void put_value(Dump *dump, JinjaValue value) {
    char text[32];
    bool deep = jinja_enter(dump->jinja);
    if (!deep) {
        /* failed */
    } else if (value.kind == JINJA_STRING) {
        put_string(dump->jinja, dump->out, value.string, dump->how->ensure_ascii);
    } else if (value.kind == JINJA_LIST) {
        put_list(dump, value.list);
    } else if (value.kind == JINJA_DICT) {
        put_dict(dump, value.dict);
    } else if (spell_scalar(value, text)) {
        jinja_put_text(dump->jinja, dump->out, text);
    } else if (value.kind == JINJA_UNDEFINED) {
        jinja_fail(dump->jinja, "tojson: '%.60s' is undefined", value.name ? value.name : "it");
    } else {
        jinja_fail(dump->jinja, "tojson: a %s is not JSON", jinja_type_name(value));
    }
    dump->jinja->depth--;
}

void jinja_put_json(Jinja *jinja, JinjaBuilder *out, JinjaValue value, const JinjaJson *how) {
    Dump dump = {jinja, out, how, 0};
    put_value(&dump, value);
}
