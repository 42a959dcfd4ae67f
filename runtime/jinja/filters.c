/* Filters of texts, numbers and single values; those of lists are in list_filters.c. */
#include "runtime/jinja/filters.h"

#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const JinjaValue *Args;

bool filter_given(JinjaValue value) {
    return value.kind != JINJA_ABSENT && value.kind != JINJA_NONE;
}

bool filter_integer(Jinja *jinja, JinjaValue value, const char *what, int64_t none, int64_t *out) {
    *out = none;
    if (!filter_given(value)) return true;
    if (!jinja_is_integer(value)) {
        jinja_fail(jinja, "%s: an int is needed, not a %s", what, jinja_type_name(value));
        return false;
    }
    *out = jinja_integer(value);
    return true;
}

/* --- texts --- */

static JinjaValue text_value(const JinjaString *text) {
    return JINJA_VALUE(JINJA_STRING, string, text);
}

static JinjaValue run_trim(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaString *chars = filter_given(args[0]) ? jinja_str(jinja, args[0]) : NULL;
    return text_strip(jinja, jinja_str(jinja, self), chars, TEXT_BOTH);
}

static JinjaValue run_upper(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, text_case(jinja, jinja_str(jinja, self), CASE_UPPER);
}
static JinjaValue run_lower(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, text_case(jinja, jinja_str(jinja, self), CASE_LOWER);
}
static JinjaValue run_capitalize(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, text_case(jinja, jinja_str(jinja, self), CASE_CAPITAL);
}

static bool parts_words(uint32_t c) {
    return text_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
}

/* Other than str.title: words end at spaces and brackets, not at each sign. */
static JinjaValue run_title(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaString *text = jinja_str(jinja, self);
    JinjaBuilder out = {0};
    (void)args;
    for (size_t at = 0; at < text->length && !jinja->failed;) {
        size_t end = at, n;
        uint32_t c;
        while (end < text->length && (n = text_character(text, end, &c), !parts_words(c))) end += n;
        if (end > at) {
            JinjaValue word = jinja_slice(jinja, text, at, end);
            jinja_put_string(jinja, &out, text_case(jinja, word.string, CASE_CAPITAL).string);
        }
        n = end < text->length ? text_character(text, end, &c) : 0;
        jinja_put_slice(jinja, &out, text, end, end + n);
        at = end + n;
    }
    return jinja_built_like(jinja, &out, text);
}

static JinjaValue run_string(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, text_value(jinja_str(jinja, self));
}

static JinjaValue run_replace(Jinja *jinja, JinjaValue self, Args args) {
    int64_t most;
    if (!filter_integer(jinja, args[2], "replace", -1, &most)) return self;
    return text_replace(jinja, jinja_str(jinja, self), jinja_str(jinja, args[0]),
                        jinja_str(jinja, args[1]), most);
}

JinjaValue jinja_escaped(Jinja *jinja, const JinjaString *text) {
    static const char SIGNS[] = "&<>'\"";
    static const char *const NAMES[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    JinjaBuilder out = {0};
    if (text->markup) return text_value(text);
    for (size_t i = 0; i < text->length && !jinja->failed; i++) {
        const char *sign = text->text[i] ? strchr(SIGNS, text->text[i]) : NULL;
        if (sign) {
            const char *name = NAMES[sign - SIGNS];
            jinja_put_bytes(jinja, &out, name, strlen(name), jinja_mark(text, i));
        } else {
            jinja_put_slice(jinja, &out, text, i, i + 1);
        }
    }
    return jinja_as_markup(jinja, jinja_built(jinja, &out).string);
}

static JinjaValue run_escape(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, jinja_escaped(jinja, jinja_str(jinja, self));
}

/* n spaces, or the text that is given. NULL, failed: neither. */
static const JinjaString *indentation(Jinja *jinja, JinjaValue width, int64_t none) {
    int64_t n;
    JinjaBuilder out = {0};
    if (width.kind == JINJA_STRING) return width.string;
    if (!filter_integer(jinja, width, "indent", none, &n)) return NULL;
    for (int64_t i = 0; i < n && jinja_step(jinja, 1); i++) jinja_put_text(jinja, &out, " ");
    return jinja_built(jinja, &out).string;
}

static JinjaValue run_indent(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaString *by = indentation(jinja, args[0], 4);
    bool first = jinja_truth(args[1]), blank = jinja_truth(args[2]);
    JinjaBuilder with_end = {0}, out = {0};
    if (!by) return self;
    jinja_put_str(jinja, &with_end, self);
    jinja_put_text(jinja, &with_end, "\n"); /* as Jinja does: a last empty line stays */
    JinjaList *lines = text_split_lines(jinja, jinja_built(jinja, &with_end).string, false).list;
    for (size_t i = 0; i < lines->count && !jinja->failed; i++) {
        const JinjaString *line = lines->items[i].string;
        if (i) jinja_put_text(jinja, &out, "\n");
        if (i ? blank || line->length > 0 : first) jinja_put_string(jinja, &out, by);
        jinja_put_string(jinja, &out, line);
    }
    return self.kind == JINJA_STRING ? jinja_built_like(jinja, &out, self.string)
                                     : jinja_built(jinja, &out);
}

static JinjaValue run_center(Jinja *jinja, JinjaValue self, Args args) {
    JinjaValue text = text_value(jinja_str(jinja, self)), width[1];
    width[0] = args[0].kind == JINJA_ABSENT ? jinja_int(80) : args[0];
    JinjaCall call = {.args = width, .n_args = 1};
    return jinja_call_builtin(jinja, jinja_find_string_method("center"), "the filter", text, &call);
}

static JinjaValue run_wordcount(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaString *text = jinja_str(jinja, self);
    int64_t n = 0;
    bool within = false;
    uint32_t c;
    (void)args;
    for (size_t at = 0; at < text->length;) {
        at += text_character(text, at, &c);
        bool letter =
            c == '_' || (c < 0x80 ? (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')
                                  : !text_is_space(c));
        n += letter && !within;
        within = letter;
    }
    return jinja_int(n);
}

static JinjaValue run_format(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    JinjaValue args = jinja_list(jinja, FLAVOR_TUPLE, (size_t)call->n_args);
    if (call->n_named) return jinja_fail(jinja, "the filter format takes no names here");
    for (int i = 0; i < call->n_args; i++) jinja_list_add(jinja, args.list, call->args[i]);
    return jinja_format_percent(jinja, jinja_str(jinja, self), args);
}

static const JinjaString *separator(Jinja *jinja, JinjaValue pair, int i, const char *none) {
    if (pair.kind == JINJA_LIST && pair.list->count == 2 &&
        pair.list->items[i].kind == JINJA_STRING) {
        return pair.list->items[i].string;
    }
    if (filter_given(pair)) jinja_fail(jinja, "tojson: separators are two strings");
    return jinja_text(jinja, none).string;
}

static JinjaValue run_tojson(Jinja *jinja, JinjaValue self, Args args) {
    JinjaBuilder out = {0};
    JinjaJson how = {.ensure_ascii = jinja_truth(args[0]), .sort_keys = jinja_truth(args[3])};
    if (filter_given(args[1])) how.indent = indentation(jinja, args[1], 0);
    how.between_items = separator(jinja, args[2], 0, how.indent ? "," : ", ");
    how.between_pair = separator(jinja, args[2], 1, ": ");
    if (!jinja->failed) jinja_put_json(jinja, &out, self, &how);
    return jinja_built(jinja, &out);
}

/* --- numbers --- */

/* The text is all a number, but for white space around it. */
static bool read_number(const JinjaString *text, bool real, JinjaValue *out) {
    char digits[64], *end;
    size_t n = 0;
    for (size_t i = 0; i < text->length; i++) {
        if (text->text[i] == '_') continue;
        if (n + 1 == sizeof(digits)) return false;
        digits[n++] = text->text[i];
    }
    digits[n] = '\0';
    if (strpbrk(digits, "xXpP(")) return false; /* C's, not Python's */
    errno = 0;
    *out = real ? jinja_float(strtod(digits, &end)) : jinja_int(strtoll(digits, &end, 10));
    if (end == digits || (!real && errno)) return false;
    while (*end == ' ' || (*end >= '\t' && *end <= '\r')) end++;
    return *end == '\0' && end == digits + n;
}

static JinjaValue run_int(Jinja *jinja, JinjaValue self, Args args) {
    JinjaValue none = args[0].kind == JINJA_ABSENT ? jinja_int(0) : args[0], out;
    if (args[1].kind != JINJA_ABSENT && !(args[1].kind == JINJA_INT && args[1].integer == 10)) {
        return jinja_fail(jinja, "the filter int reads base 10 only");
    }
    if (self.kind == JINJA_UNDEFINED) return jinja_fail(jinja, "int: the value is undefined");
    if (jinja_is_integer(self)) return jinja_int(jinja_integer(self));
    if (self.kind == JINJA_STRING && read_number(self.string, false, &out)) return out;
    if (self.kind == JINJA_STRING && read_number(self.string, true, &out)) self = out;
    if (self.kind != JINJA_FLOAT || isnan(self.real) || fabs(self.real) >= 9.2e18) return none;
    return jinja_int((int64_t)self.real);
}

static JinjaValue run_float(Jinja *jinja, JinjaValue self, Args args) {
    JinjaValue none = args[0].kind == JINJA_ABSENT ? jinja_float(0) : args[0], out;
    if (self.kind == JINJA_UNDEFINED) return jinja_fail(jinja, "float: the value is undefined");
    if (jinja_is_number(self)) return jinja_float(jinja_number(self));
    return self.kind == JINJA_STRING && read_number(self.string, true, &out) ? out : none;
}

static JinjaValue run_abs(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    if (self.kind == JINJA_FLOAT) return jinja_float(fabs(self.real));
    if (!jinja_is_integer(self) || jinja_integer(self) == INT64_MIN) {
        return jinja_fail(jinja, "abs: of a %s", jinja_type_name(self));
    }
    return jinja_int(llabs(jinja_integer(self)));
}

static JinjaValue run_round(Jinja *jinja, JinjaValue self, Args args) {
    int64_t digits;
    char text[400];
    if (!jinja_is_number(self)) {
        return jinja_fail(jinja, "round: of a %s", jinja_type_name(self));
    }
    if (!filter_integer(jinja, args[0], "round", 0, &digits)) return self;
    double value = jinja_number(self), scale = pow(10, (double)digits);
    if (args[1].kind == JINJA_ABSENT || jinja_is_text(args[1], "common")) {
        if (self.kind != JINJA_FLOAT && digits >= 0) return jinja_int(jinja_integer(self));
        if (digits < 0 || digits > 17) return jinja_fail(jinja, "round: 0 to 17 digits");
        snprintf(text, sizeof(text), "%.*f", (int)digits, value); /* rounds as Python does */
        return jinja_float(strtod(text, NULL));
    }
    if (jinja_is_text(args[1], "ceil")) return jinja_float(ceil(value * scale) / scale);
    if (jinja_is_text(args[1], "floor")) return jinja_float(floor(value * scale) / scale);
    return jinja_fail(jinja, "round: the method is common, ceil or floor");
}

/* --- any --- */

static JinjaValue run_default(Jinja *jinja, JinjaValue self, Args args) {
    bool missing = self.kind == JINJA_UNDEFINED || (jinja_truth(args[1]) && !jinja_truth(self));
    if (!missing) return self;
    return args[0].kind == JINJA_ABSENT ? jinja_text(jinja, "") : args[0];
}

static JinjaValue run_safe(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, jinja_as_markup(jinja, jinja_str(jinja, self));
}

static JinjaValue run_length(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, jinja_int(jinja_length(jinja, self));
}

static JinjaValue run_attr(Jinja *jinja, JinjaValue self, Args args) {
    if (args[0].kind != JINJA_STRING) return jinja_fail(jinja, "attr: a name is needed");
    if (self.kind == JINJA_DICT) return jinja_undefined(NULL); /* no item, other than a.b */
    return jinja_item(jinja, self, args[0]);
}

const JinjaBuiltin *jinja_find_filter(const char *name) {
    static const JinjaBuiltin FILTERS[] = {
        {"trim", run_trim, 0, {"chars"}, NULL},
        {"upper", run_upper, 0, {NULL}, NULL},
        {"lower", run_lower, 0, {NULL}, NULL},
        {"capitalize", run_capitalize, 0, {NULL}, NULL},
        {"title", run_title, 0, {NULL}, NULL},
        {"string", run_string, 0, {NULL}, NULL},
        {"replace", run_replace, 2, {"old", "new", "count"}, NULL},
        {"escape", run_escape, 0, {NULL}, NULL},
        {"e", run_escape, 0, {NULL}, NULL},
        {"indent", run_indent, 0, {"width", "first", "blank"}, NULL},
        {"center", run_center, 0, {"width"}, NULL},
        {"wordcount", run_wordcount, 0, {NULL}, NULL},
        {"format", NULL, 0, {NULL}, run_format},
        {"tojson", run_tojson, 0, {"ensure_ascii", "indent", "separators", "sort_keys"}, NULL},
        {"int", run_int, 0, {"default", "base"}, NULL},
        {"float", run_float, 0, {"default"}, NULL},
        {"abs", run_abs, 0, {NULL}, NULL},
        {"round", run_round, 0, {"precision", "method"}, NULL},
        {"default", run_default, 0, {"default_value", "boolean"}, NULL},
        {"d", run_default, 0, {"default_value", "boolean"}, NULL},
        {"safe", run_safe, 0, {NULL}, NULL},
        {"length", run_length, 0, {NULL}, NULL},
        {"count", run_length, 0, {NULL}, NULL},
        {"attr", run_attr, 1, {"name"}, NULL},
    };
    for (size_t i = 0; i < sizeof(FILTERS) / sizeof(FILTERS[0]); i++) {
        if (strcmp(FILTERS[i].name, name) == 0) return &FILTERS[i];
    }
    return jinja_find_list_filter(name);
}
