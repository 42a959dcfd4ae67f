/* Texts with places for values: Python's "%d" % x and "{}".format(x). */
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTH = 1000 };

/* How a value is to be written: [0][-][width][.precision]kind. */
typedef struct Spec {
    bool zeros, left;
    int width, precision; /* -1: not said */
    char kind;            /* s r d i f x, or 0 */
} Spec;

static int read_int(const JinjaString *text, size_t *at) {
    int n = 0;
    while (*at < text->length && isdigit((unsigned char)text->text[*at]) && n <= MOST_WIDTH) {
        n = n * 10 + text->text[(*at)++] - '0';
    }
    return n;
}

/* From `at` on to behind the kind. False: it is none that is known. */
static bool read_spec(const JinjaString *text, size_t *at, const char *kinds, Spec *out) {
    *out = (Spec){.precision = -1};
    for (; *at < text->length && strchr("-0", text->text[*at]) && text->text[*at]; ++*at) {
        out->zeros = out->zeros || text->text[*at] == '0';
        out->left = out->left || text->text[*at] == '-';
    }
    out->width = read_int(text, at);
    if (*at < text->length && text->text[*at] == '.') {
        ++*at;
        out->precision = read_int(text, at);
    }
    if (*at >= text->length || !text->text[*at] || !strchr(kinds, text->text[*at])) return false;
    out->kind = text->text[(*at)++];
    return out->width <= MOST_WIDTH && out->precision <= 100;
}

/* A number's digits in out [1500]. False: the value is none of the kind. */
static bool spell_number(const Spec *spec, JinjaValue value, char *out) {
    int precision = spec->precision < 0 ? 6 : spec->precision;
    if (!jinja_is_number(value)) return false;
    if (spec->kind == 'f') {
        return snprintf(out, 1500, "%.*f", precision, jinja_number(value)) < 1500;
    }
    if (value.kind == JINJA_FLOAT) {
        if (spec->kind == 'x' || isnan(value.real) || fabs(value.real) >= 9.2e18) return false;
        value = jinja_int((int64_t)value.real);
    }
    int64_t number = jinja_integer(value);
    uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;
    snprintf(out, 1500, spec->kind == 'x' ? "%s%" PRIx64 : "%s%" PRIu64, number < 0 ? "-" : "",
             size);
    return true;
}

static void put_padded(Jinja *jinja, JinjaBuilder *out, const Spec *spec, const JinjaString *text,
                       bool number) {
    int64_t n = spec->width - text_count_characters(text, 0, text->length);
    bool zeros = spec->zeros && number && !spec->left;
    size_t sign = zeros && text->length && text->text[0] == '-';
    jinja_put_slice(jinja, out, text, 0, sign);
    for (int64_t i = 0; i < n && !spec->left; i++) jinja_put_text(jinja, out, zeros ? "0" : " ");
    jinja_put_slice(jinja, out, text, sign, text->length);
    for (int64_t i = 0; i < n && spec->left; i++) jinja_put_text(jinja, out, " ");
}

static void put_value(Jinja *jinja, JinjaBuilder *out, const Spec *spec, JinjaValue value) {
    char number[1500];
    if (spec->kind == 's' || spec->kind == 'r') {
        JinjaBuilder own = {0};
        (spec->kind == 's' ? jinja_put_str : jinja_put_repr)(jinja, &own, value);
        const JinjaString *text = jinja_built(jinja, &own).string;
        if (spec->precision >= 0) {
            JinjaValue bounds[3] = {jinja_none(), jinja_int(spec->precision), jinja_none()};
            text = jinja_sliced(jinja, JINJA_VALUE(JINJA_STRING, string, text), bounds).string;
        }
        if (!jinja->failed) put_padded(jinja, out, spec, text, false);
    } else if (spell_number(spec, value, number)) {
        const JinjaString text = {.text = number, .length = strlen(number)};
        put_padded(jinja, out, spec, &text, true);
    } else {
        jinja_fail(jinja, "%%%c of a %s", spec->kind, jinja_type_name(value));
    }
}

JinjaValue jinja_format_percent(Jinja *jinja, const JinjaString *format, JinjaValue args) {
    bool many = args.kind == JINJA_LIST && args.list->flavor == FLAVOR_TUPLE;
    size_t n = many ? args.list->count : 1, next = 0;
    JinjaBuilder out = {0};
    for (size_t at = 0; at < format->length && !jinja->failed;) {
        Spec spec;
        size_t begin = at;
        while (at < format->length && format->text[at] != '%') at++;
        jinja_put_slice(jinja, &out, format, begin, at);
        if (at++ >= format->length) break;
        if (at < format->length && format->text[at] == '%') {
            jinja_put_slice(jinja, &out, format, at, at + 1);
            at++;
        } else if (!read_spec(format, &at, "srdifx", &spec)) {
            jinja_fail(jinja, "a text's %% is none of those supported: %%s %%r %%d %%i %%f %%x");
        } else if (next == n) {
            jinja_fail(jinja, "a text has more %% than values");
        } else {
            put_value(jinja, &out, &spec, many ? args.list->items[next] : args);
            next++;
        }
    }
    if (next < n && !(args.kind == JINJA_DICT)) jinja_fail(jinja, "a text has less %% than values");
    return jinja_built(jinja, &out);
}

/* --- braces --- */

/* The value that {}, {0} or {name} stands for; `next` counts those without either. */
static bool find_value(Jinja *jinja, const JinjaString *name, const JinjaCall *call, int *next,
                       JinjaValue *out) {
    if (name->length == 0 || isdigit((unsigned char)name->text[0])) {
        size_t at = 0;
        int i = name->length ? read_int(name, &at) : (*next)++;
        if (at == name->length && i < call->n_args) return *out = call->args[i], true;
    }
    for (int i = 0; i < call->n_named; i++) {
        if (strlen(call->names[i]) != name->length ||
            memcmp(call->names[i], name->text, name->length) != 0) {
            continue;
        }
        *out = call->named[i];
        return true;
    }
    jinja_fail(jinja, "format: {%.*s} has no value, or is not supported",
               (int)(name->length < 40 ? name->length : 40), name->text);
    return false;
}

/* What stands between braces. */
static void put_field(Jinja *jinja, JinjaBuilder *out, const JinjaString *field,
                      const JinjaCall *call, int *next) {
    const char *colon = memchr(field->text, ':', field->length);
    size_t n = colon ? (size_t)(colon - field->text) : field->length, at = 0;
    const JinjaString name = {.text = field->text, .length = n};
    const JinjaString how = {.text = field->text + n + 1, .length = field->length - n - 1};
    Spec spec = {.precision = -1};
    JinjaValue value;
    if (!find_value(jinja, &name, call, next, &value)) return;
    if (!colon || how.length == 0) {
        jinja_put_str(jinja, out, value);
    } else if (how.text[0] == '-' || !read_spec(&how, &at, "dfx", &spec) || at != how.length ||
               (spec.kind != 'f' && spec.precision >= 0) ||
               (spec.kind != 'f' && value.kind == JINJA_FLOAT)) {
        jinja_fail(jinja, "format: {:%.*s} is not supported",
                   (int)(how.length < 40 ? how.length : 40), how.text);
    } else {
        put_value(jinja, out, &spec, value);
    }
}

JinjaValue jinja_format_braces(Jinja *jinja, const JinjaString *format, const JinjaCall *call) {
    JinjaBuilder out = {0};
    int next = 0;
    for (size_t at = 0; at < format->length && !jinja->failed; at++) {
        char c = format->text[at];
        bool twice = at + 1 < format->length && format->text[at + 1] == c;
        if (c != '{' && c != '}') {
            jinja_put_slice(jinja, &out, format, at, at + 1);
        } else if (twice) {
            jinja_put_slice(jinja, &out, format, at, at + 1);
            at++;
        } else {
            const char *end = memchr(format->text + at, '}', format->length - at);
            if (c == '}' || !end) return jinja_fail(jinja, "format: a brace stands alone");
            const JinjaString field = {.text = format->text + at + 1,
                                       .length = (size_t)(end - format->text) - at - 1};
            put_field(jinja, &out, &field, call, &next);
            at += field.length + 1;
        }
    }
    return jinja_built(jinja, &out);
}
