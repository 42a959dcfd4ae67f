/* What Python says of values: truth, order, str(), repr(), json.dumps(). */
#define _GNU_SOURCE /* memmem */
#include "ir/base/utf8.h"
#include "runtime/jinja/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- kinds --- */

const char *jinja_type_name(JinjaValue value) {
    static const char *const FLAVORS[] = {"list", "tuple", "range", "view of a dict", "generator"};
    switch (value.kind) {
    case JINJA_NONE: return "None";
    case JINJA_BOOL: return "bool";
    case JINJA_INT: return "int";
    case JINJA_FLOAT: return "float";
    case JINJA_STRING: return "str";
    case JINJA_LIST: return FLAVORS[value.list->flavor];
    case JINJA_DICT: return "dict";
    case JINJA_NAMESPACE: return "namespace";
    case JINJA_MACRO: return "macro";
    case JINJA_FUNCTION: return "function";
    case JINJA_METHOD: return "method";
    case JINJA_LOOP: return "loop";
    default: return "undefined value";
    }
}

bool jinja_is_number(JinjaValue value) {
    return value.kind == JINJA_INT || value.kind == JINJA_FLOAT || value.kind == JINJA_BOOL;
}

bool jinja_is_integer(JinjaValue value) {
    return value.kind == JINJA_INT || value.kind == JINJA_BOOL;
}

int64_t jinja_integer(JinjaValue value) {
    return value.kind == JINJA_BOOL ? value.boolean : value.integer;
}

double jinja_number(JinjaValue value) {
    return value.kind == JINJA_FLOAT ? value.real : (double)jinja_integer(value);
}

bool jinja_truth(JinjaValue value) {
    switch (value.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return value.boolean;
    case JINJA_INT: return value.integer != 0;
    case JINJA_FLOAT: return value.real != 0;
    case JINJA_STRING: return value.string->length > 0;
    case JINJA_LIST: return value.list->flavor == FLAVOR_GENERATOR || value.list->count > 0;
    case JINJA_DICT: return value.dict->count > 0;
    default: return true;
    }
}

/* --- equality and order --- */

static bool equal_lists(Jinja *jinja, const JinjaList *a, const JinjaList *b) {
    if (a == b) return true;
    if (a->flavor != b->flavor || a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!jinja_equal(jinja, a->items[i], b->items[i])) return false;
    }
    return true;
}

static bool equal_dicts(Jinja *jinja, const JinjaDict *a, const JinjaDict *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const JinjaValue *other = jinja_dict_get(jinja, b, a->entries[i].key);
        if (!other || !jinja_equal(jinja, a->entries[i].value, *other)) return false;
    }
    return true;
}

static bool equal_inside(Jinja *jinja, JinjaValue a, JinjaValue b) {
    if (a.kind == JINJA_LIST) return equal_lists(jinja, a.list, b.list);
    return equal_dicts(jinja, a.dict, b.dict);
}

bool jinja_equal(Jinja *jinja, JinjaValue a, JinjaValue b) {
    if (jinja_is_integer(a) && jinja_is_integer(b)) return jinja_integer(a) == jinja_integer(b);
    if (jinja_is_number(a) && jinja_is_number(b)) return jinja_number(a) == jinja_number(b);
    if (a.kind != b.kind || !jinja_step(jinja, 1)) return false;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    case JINJA_STRING:
        return a.string->length == b.string->length &&
               memcmp(a.string->text, b.string->text, a.string->length) == 0;
    case JINJA_LIST:
    case JINJA_DICT: {
        bool same = jinja_enter(jinja) && equal_inside(jinja, a, b);
        jinja->depth--;
        return same;
    }
    default: return a.name == b.name; /* the same one */
    }
}

static int compare_strings(const JinjaString *a, const JinjaString *b) {
    size_t shared = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->text, b->text, shared); /* UTF-8 has the order of characters */
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int compare_lists(Jinja *jinja, const JinjaList *a, const JinjaList *b) {
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (jinja_equal(jinja, a->items[i], b->items[i])) continue;
        int order = jinja_enter(jinja) ? jinja_compare(jinja, a->items[i], b->items[i]) : 0;
        jinja->depth--;
        return order;
    }
    return (a->count > b->count) - (a->count < b->count);
}

int jinja_compare(Jinja *jinja, JinjaValue a, JinjaValue b) {
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (jinja_is_integer(a) && jinja_is_integer(b)) {
            return (jinja_integer(a) > jinja_integer(b)) - (jinja_integer(a) < jinja_integer(b));
        }
        return (jinja_number(a) > jinja_number(b)) - (jinja_number(a) < jinja_number(b));
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        return compare_strings(a.string, b.string);
    }
    if (a.kind == JINJA_LIST && b.kind == JINJA_LIST && a.list->flavor == b.list->flavor &&
        a.list->flavor <= FLAVOR_TUPLE) {
        return compare_lists(jinja, a.list, b.list);
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        const char *name = a.kind == JINJA_UNDEFINED ? a.name : b.name;
        jinja_fail(jinja, "'%.60s' is undefined, and compared", name ? name : "a value");
    } else {
        jinja_fail(jinja, "a %s and a %s have no order", jinja_type_name(a), jinja_type_name(b));
    }
    return 0;
}

bool jinja_contains(Jinja *jinja, JinjaValue container, JinjaValue item) {
    if (container.kind == JINJA_STRING && item.kind == JINJA_STRING) {
        jinja_step(jinja, container.string->length / 64);
        return memmem(container.string->text, container.string->length, item.string->text,
                      item.string->length) != NULL;
    }
    if (container.kind == JINJA_DICT) return jinja_dict_get(jinja, container.dict, item) != NULL;
    if (container.kind == JINJA_STRING) {
        jinja_fail(jinja, "'in' a str needs a str, not a %s", jinja_type_name(item));
        return false;
    }
    JinjaList *list = container.kind == JINJA_LIST ? container.list : jinja_items(jinja, container);
    size_t begin = list->flavor == FLAVOR_GENERATOR ? list->next : 0;
    for (size_t i = begin; !jinja->failed && i < list->count; i++) {
        list->next = i + 1;
        if (jinja_equal(jinja, list->items[i], item)) return true;
    }
    return false;
}

/* --- going through --- */

static JinjaList *characters_of(Jinja *jinja, const JinjaString *string) {
    JinjaList *out = jinja_list(jinja, FLAVOR_LIST, string->length < 64 ? string->length : 64).list;
    for (size_t at = 0, n; at < string->length && !jinja->failed; at += n) {
        uint32_t character;
        int bytes =
            utf8_read((const unsigned char *)string->text + at, string->length - at, &character);
        n = bytes ? (size_t)bytes : 1;
        jinja_list_add(jinja, out, jinja_slice(jinja, string, at, at + n));
    }
    return out;
}

JinjaList *jinja_items(Jinja *jinja, JinjaValue value) {
    JinjaList *out;
    switch (value.kind) {
    case JINJA_LIST: break;
    case JINJA_STRING: return characters_of(jinja, value.string);
    case JINJA_DICT:
        out = jinja_list(jinja, FLAVOR_VIEW, value.dict->count).list;
        for (size_t i = 0; i < value.dict->count; i++) {
            jinja_list_add(jinja, out, value.dict->entries[i].key);
        }
        return out;
    default:
        if (value.kind != JINJA_UNDEFINED) {
            jinja_fail(jinja, "a %s cannot be gone through", jinja_type_name(value));
        }
        return jinja_list(jinja, FLAVOR_LIST, 0).list;
    }
    if (value.list->flavor != FLAVOR_GENERATOR) return value.list;
    out = jinja_list(jinja, FLAVOR_LIST, 0).list;
    out->items = value.list->items + value.list->next;
    out->count = out->capacity = value.list->count - value.list->next;
    value.list->next = value.list->count;
    return out;
}

static int64_t count_characters(const JinjaString *string) {
    int64_t count = 0;
    for (size_t at = 0; at < string->length; count++) {
        uint32_t character;
        int n =
            utf8_read((const unsigned char *)string->text + at, string->length - at, &character);
        at += n ? (size_t)n : 1;
    }
    return count;
}

int64_t jinja_length(Jinja *jinja, JinjaValue value) {
    switch (value.kind) {
    case JINJA_UNDEFINED: return 0;
    case JINJA_STRING:
        jinja_step(jinja, value.string->length / 64);
        return count_characters(value.string);
    case JINJA_DICT: return (int64_t)value.dict->count;
    case JINJA_LIST:
        if (value.list->flavor != FLAVOR_GENERATOR) return (int64_t)value.list->count;
        /* fall through */
    default: jinja_fail(jinja, "a %s has no length", jinja_type_name(value)); return -1;
    }
}

/* --- str() and repr() --- */

void jinja_format_float(double value, char *out) {
    char digits[32];
    int precision = 1;
    if (isnan(value) || isinf(value)) {
        snprintf(out, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    do {
        snprintf(digits, sizeof(digits), "%.*e", precision - 1, value);
    } while (strtod(digits, NULL) != value && ++precision <= 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        int n = (int)(strchr(digits, 'e') - digits);
        snprintf(out, 32, "%.*se%c%02d", n, digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        int decimals = precision - 1 - exponent;
        snprintf(out, 32, "%.*f", decimals < 1 ? 1 : decimals, value);
    }
}

static bool is_printable(uint32_t character) {
    if (character == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

/* One character of a quoted string, as repr() spells it; "": as it is. */
static void spell(uint32_t character, char quote, char *out) {
    out[0] = '\0';
    if (character == (uint32_t)quote || character == '\\') {
        snprintf(out, 16, "\\%c", (char)character);
    } else if (character == '\n' || character == '\r' || character == '\t') {
        snprintf(out, 16, "\\%c", character == '\n' ? 'n' : character == '\r' ? 'r' : 't');
    } else if (!is_printable(character)) {
        if (character < 0x100) {
            snprintf(out, 16, "\\x%02" PRIx32, character);
        } else if (character < 0x10000) {
            snprintf(out, 16, "\\u%04" PRIx32, character);
        } else {
            snprintf(out, 16, "\\U%08" PRIx32, character);
        }
    }
}

static void put_quoted(Jinja *jinja, JinjaBuilder *out, const JinjaString *string) {
    bool single = memchr(string->text, '\'', string->length) != NULL;
    bool twice = memchr(string->text, '"', string->length) != NULL;
    char quote = single && !twice ? '"' : '\'', spelled[16];
    jinja_put_bytes(jinja, out, &quote, 1, 0);
    for (size_t at = 0, n; at < string->length && !jinja->failed; at += n) {
        uint32_t character = 0;
        int bytes =
            utf8_read((const unsigned char *)string->text + at, string->length - at, &character);
        n = bytes ? (size_t)bytes : 1;
        spell(bytes ? character : 0xfffd, quote, spelled);
        if (*spelled) {
            jinja_put_bytes(jinja, out, spelled, strlen(spelled), jinja_mark(string, at));
        } else {
            jinja_put_slice(jinja, out, string, at, at + n);
        }
    }
    jinja_put_bytes(jinja, out, &quote, 1, 0);
}

static void put_list(Jinja *jinja, JinjaBuilder *out, const JinjaList *list) {
    if (list->flavor > FLAVOR_TUPLE) {
        jinja_fail(jinja, "a %s would be printed: |list makes a list of it",
                   jinja_type_name(JINJA_VALUE(JINJA_LIST, list, (JinjaList *)(uintptr_t)list)));
        return;
    }
    bool tuple = list->flavor == FLAVOR_TUPLE;
    jinja_put_text(jinja, out, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        if (i) jinja_put_text(jinja, out, ", ");
        jinja_put_repr(jinja, out, list->items[i]);
    }
    jinja_put_text(jinja, out, !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static void put_dict(Jinja *jinja, JinjaBuilder *out, const JinjaDict *dict) {
    jinja_put_text(jinja, out, "{");
    for (size_t i = 0; i < dict->count && !jinja->failed; i++) {
        if (i) jinja_put_text(jinja, out, ", ");
        jinja_put_repr(jinja, out, dict->entries[i].key);
        jinja_put_text(jinja, out, ": ");
        jinja_put_repr(jinja, out, dict->entries[i].value);
    }
    jinja_put_text(jinja, out, "}");
}

static void put_number(Jinja *jinja, JinjaBuilder *out, JinjaValue value) {
    char text[32];
    if (value.kind == JINJA_FLOAT) {
        jinja_format_float(value.real, text);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, value.integer);
    }
    jinja_put_text(jinja, out, text);
}

void jinja_put_repr(Jinja *jinja, JinjaBuilder *out, JinjaValue value) {
    bool deep = jinja_enter(jinja);
    switch (deep ? value.kind : JINJA_ABSENT) {
    case JINJA_ABSENT: break;
    case JINJA_UNDEFINED: jinja_put_text(jinja, out, "Undefined"); break;
    case JINJA_NONE: jinja_put_text(jinja, out, "None"); break;
    case JINJA_BOOL: jinja_put_text(jinja, out, value.boolean ? "True" : "False"); break;
    case JINJA_INT:
    case JINJA_FLOAT: put_number(jinja, out, value); break;
    case JINJA_STRING: put_quoted(jinja, out, value.string); break;
    case JINJA_LIST: put_list(jinja, out, value.list); break;
    case JINJA_DICT: put_dict(jinja, out, value.dict); break;
    default: jinja_fail(jinja, "a %s would be printed", jinja_type_name(value));
    }
    jinja->depth--;
}

void jinja_put_str(Jinja *jinja, JinjaBuilder *out, JinjaValue value) {
    if (value.kind == JINJA_STRING) {
        jinja_put_string(jinja, out, value.string);
    } else if (value.kind != JINJA_UNDEFINED) {
        jinja_put_repr(jinja, out, value);
    }
}

const JinjaString *jinja_str(Jinja *jinja, JinjaValue value) {
    JinjaBuilder out = {0};
    if (value.kind == JINJA_STRING) return value.string;
    jinja_put_str(jinja, &out, value);
    return jinja_built(jinja, &out).string;
}
