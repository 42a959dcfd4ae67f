/* Methods of strings. */
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <string.h>
#include <utf8proc.h>

/* NULL, failed: the argument is no string; `none` where it may be missing or None. */
static const JinjaString *string_of(Jinja *jinja, JinjaValue value, const char *what,
                                    const JinjaString *none) {
    if (value.kind == JINJA_STRING) return value.string;
    if (none && (value.kind == JINJA_ABSENT || value.kind == JINJA_NONE)) return none;
    jinja_fail(jinja, "%s: a str is needed, not a %s", what, jinja_type_name(value));
    return NULL;
}

static bool integer_of(Jinja *jinja, JinjaValue value, const char *what, int64_t none,
                       int64_t *out) {
    *out = none;
    if (value.kind == JINJA_ABSENT || value.kind == JINJA_NONE) return true;
    if (!jinja_is_integer(value)) {
        jinja_fail(jinja, "%s: an int is needed, not a %s", what, jinja_type_name(value));
        return false;
    }
    *out = jinja_integer(value);
    return true;
}

static const JinjaString SPACE = {.text = " ", .length = 1};

static JinjaValue strip(Jinja *jinja, JinjaValue self, const JinjaValue *args, int sides) {
    bool none = args[0].kind == JINJA_ABSENT || args[0].kind == JINJA_NONE;
    const JinjaString *chars = none ? NULL : string_of(jinja, args[0], "strip", NULL);
    return jinja->failed ? self : text_strip(jinja, self.string, chars, sides);
}

static JinjaValue run_strip(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return strip(jinja, self, args, TEXT_BOTH);
}
static JinjaValue run_lstrip(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return strip(jinja, self, args, TEXT_LEFT);
}
static JinjaValue run_rstrip(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return strip(jinja, self, args, TEXT_RIGHT);
}

static JinjaValue split(Jinja *jinja, JinjaValue self, const JinjaValue *args, bool right) {
    int64_t most;
    bool none = args[0].kind == JINJA_ABSENT || args[0].kind == JINJA_NONE;
    const JinjaString *separator = none ? NULL : string_of(jinja, args[0], "split", NULL);
    if (jinja->failed || !integer_of(jinja, args[1], "split", -1, &most)) return self;
    return text_split(jinja, self.string, separator, most, right);
}

static JinjaValue run_split(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return split(jinja, self, args, false);
}
static JinjaValue run_rsplit(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return split(jinja, self, args, true);
}

static JinjaValue run_splitlines(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return text_split_lines(jinja, self.string, jinja_truth(args[0]));
}

/* Whether it begins, or ends, with one of those given. */
static JinjaValue run_ends(Jinja *jinja, JinjaValue self, const JinjaValue *args, bool begins) {
    JinjaValue what = args[0];
    bool many = what.kind == JINJA_LIST && what.list->flavor == FLAVOR_TUPLE;
    size_t n = many ? what.list->count : 1;
    if (args[1].kind != JINJA_ABSENT) {
        return jinja_fail(jinja, "startswith and endswith take one argument here");
    }
    for (size_t i = 0; i < n; i++) {
        JinjaValue one = many ? what.list->items[i] : what;
        const JinjaString *with = string_of(jinja, one, begins ? "startswith" : "endswith", NULL);
        if (!with) break;
        if (begins ? text_begins(self.string, with) : text_ends(self.string, with)) {
            return jinja_bool(true);
        }
    }
    return jinja_bool(false);
}

static JinjaValue run_startswith(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return run_ends(jinja, self, args, true);
}
static JinjaValue run_endswith(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return run_ends(jinja, self, args, false);
}

static JinjaValue run_removeprefix(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    const JinjaString *with = string_of(jinja, args[0], "removeprefix", NULL);
    if (!with || !text_begins(self.string, with)) return self;
    return jinja_slice(jinja, self.string, with->length, self.string->length);
}
static JinjaValue run_removesuffix(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    const JinjaString *with = string_of(jinja, args[0], "removesuffix", NULL);
    if (!with || !text_ends(self.string, with)) return self;
    return jinja_slice(jinja, self.string, 0, self.string->length - with->length);
}

static JinjaValue run_upper(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, text_case(jinja, self.string, CASE_UPPER);
}
static JinjaValue run_lower(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, text_case(jinja, self.string, CASE_LOWER);
}
static JinjaValue run_title(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, text_case(jinja, self.string, CASE_TITLE);
}
static JinjaValue run_capitalize(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, text_case(jinja, self.string, CASE_CAPITAL);
}
static JinjaValue run_swapcase(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, text_case(jinja, self.string, CASE_SWAP);
}

static JinjaValue run_replace(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    int64_t most;
    const JinjaString *from = string_of(jinja, args[0], "replace", NULL);
    const JinjaString *to = from ? string_of(jinja, args[1], "replace", NULL) : NULL;
    if (!to || !integer_of(jinja, args[2], "replace", -1, &most)) return self;
    return text_replace(jinja, self.string, from, to, most);
}

static JinjaValue run_join(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    JinjaList *parts = jinja_items(jinja, args[0]);
    for (size_t i = 0; i < parts->count && !jinja->failed; i++) {
        string_of(jinja, parts->items[i], "join", NULL);
    }
    return jinja->failed ? self : text_join(jinja, self.string, parts);
}

/* --- places --- */

/* The part [args[1]:args[2]] of the string, in bytes. */
static bool part_of(Jinja *jinja, JinjaValue self, const JinjaValue *args, size_t *out_begin,
                    size_t *out_end) {
    *out_begin = 0;
    *out_end = self.string->length;
    if (args[1].kind == JINJA_ABSENT) return true;
    JinjaValue bounds[3] = {args[1], args[2].kind == JINJA_ABSENT ? jinja_none() : args[2],
                            jinja_none()};
    JinjaValue part = jinja_sliced(jinja, self, bounds);
    if (jinja->failed) return false;
    *out_begin = (size_t)(part.string->text - self.string->text);
    *out_end = *out_begin + part.string->length;
    return true;
}

/* In characters; -1: it is not there. */
static int64_t place_of(Jinja *jinja, JinjaValue self, const JinjaValue *args, bool last) {
    size_t begin, end;
    const JinjaString *what = string_of(jinja, args[0], "find", NULL);
    if (!what || !part_of(jinja, self, args, &begin, &end)) return -1;
    const JinjaString part = {.text = self.string->text, .length = end};
    int64_t found = text_find(&part, what, begin);
    for (int64_t next = found; last && next >= 0;) {
        found = next;
        next = text_find(&part, what, (size_t)next + 1);
    }
    jinja_step(jinja, end / 16);
    return found < 0 ? -1 : text_count_characters(self.string, 0, (size_t)found);
}

static JinjaValue run_find(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return jinja_int(place_of(jinja, self, args, false));
}
static JinjaValue run_rfind(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return jinja_int(place_of(jinja, self, args, true));
}
static JinjaValue run_index(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    int64_t at = place_of(jinja, self, args, false);
    return at < 0 ? jinja_fail(jinja, "index: it is not there") : jinja_int(at);
}
static JinjaValue run_rindex(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    int64_t at = place_of(jinja, self, args, true);
    return at < 0 ? jinja_fail(jinja, "rindex: it is not there") : jinja_int(at);
}

static JinjaValue run_count(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    size_t begin, end;
    int64_t n = 0, at;
    const JinjaString *what = string_of(jinja, args[0], "count", NULL);
    if (!what || !part_of(jinja, self, args, &begin, &end)) return self;
    if (what->length == 0) return jinja_int(text_count_characters(self.string, begin, end) + 1);
    const JinjaString part = {.text = self.string->text, .length = end};
    for (; (at = text_find(&part, what, begin)) >= 0; n++) begin = (size_t)at + what->length;
    jinja_step(jinja, end / 16);
    return jinja_int(n);
}

/* What is before, at and after a separator. */
static JinjaValue partition(Jinja *jinja, JinjaValue self, const JinjaValue *args, bool last) {
    const JinjaString *text = self.string, *what = string_of(jinja, args[0], "partition", NULL);
    JinjaValue out = jinja_list(jinja, FLAVOR_TUPLE, 3), nothing = jinja_text(jinja, "");
    if (!what) return self;
    if (what->length == 0) return jinja_fail(jinja, "partition: the separator is empty");
    int64_t at = -1;
    for (int64_t next = text_find(text, what, 0); next >= 0 && (at < 0 || last);) {
        at = next;
        next = text_find(text, what, (size_t)next + 1);
    }
    JinjaValue whole = self, parts[3] = {last ? nothing : whole, nothing, last ? whole : nothing};
    if (at >= 0) {
        size_t end = (size_t)at + what->length;
        parts[0] = jinja_slice(jinja, text, 0, (size_t)at);
        parts[1] = jinja_slice(jinja, text, (size_t)at, end);
        parts[2] = jinja_slice(jinja, text, end, text->length);
    }
    for (int i = 0; i < 3; i++) jinja_list_add(jinja, out.list, parts[i]);
    return out;
}

static JinjaValue run_partition(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return partition(jinja, self, args, false);
}
static JinjaValue run_rpartition(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return partition(jinja, self, args, true);
}

/* --- padding --- */

static JinjaValue pad(Jinja *jinja, JinjaValue self, const JinjaValue *args, int sides) {
    int64_t width, n = jinja_length(jinja, self);
    const JinjaString *fill = string_of(jinja, args[1], "width", &SPACE);
    JinjaBuilder out = {0};
    if (!fill || !integer_of(jinja, args[0], "width", 0, &width) || width <= n) return self;
    if (width > JINJA_MOST_STRING) return jinja_fail(jinja, "a text is longer than 64 MiB");
    int64_t left = sides == TEXT_LEFT    ? width - n
                   : sides == TEXT_RIGHT ? 0
                                         : (width - n) / 2 + ((width - n) & width & 1);
    for (int64_t i = 0; i < left; i++) jinja_put_string(jinja, &out, fill);
    jinja_put_string(jinja, &out, self.string);
    for (int64_t i = left; i < width - n; i++) jinja_put_string(jinja, &out, fill);
    return jinja_built(jinja, &out);
}

static JinjaValue run_center(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return pad(jinja, self, args, TEXT_BOTH);
}
static JinjaValue run_ljust(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return pad(jinja, self, args, TEXT_RIGHT);
}
static JinjaValue run_rjust(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return pad(jinja, self, args, TEXT_LEFT);
}

static JinjaValue run_zfill(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    static const JinjaString ZERO = {.text = "0", .length = 1};
    const JinjaString *text = self.string;
    int64_t width;
    if (!integer_of(jinja, args[0], "zfill", 0, &width)) return self;
    size_t sign = text->length > 0 && (text->text[0] == '+' || text->text[0] == '-');
    JinjaValue rest = jinja_slice(jinja, text, sign, text->length);
    JinjaValue how[2] = {jinja_int(width - (int64_t)sign),
                         JINJA_VALUE(JINJA_STRING, string, &ZERO)};
    JinjaValue padded = pad(jinja, rest, how, TEXT_LEFT);
    JinjaBuilder out = {0};
    if (jinja->failed) return self;
    jinja_put_slice(jinja, &out, text, 0, sign);
    jinja_put_string(jinja, &out, padded.string);
    return jinja_built(jinja, &out);
}

/* --- what it is of --- */

typedef bool CharacterTest(uint32_t character);

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}
static bool is_digit(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}
static bool is_letter(uint32_t c) {
    utf8proc_category_t of = category(c);
    return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}
static bool is_letter_or_digit(uint32_t c) {
    utf8proc_category_t of = category(c);
    return is_letter(c) || (of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO);
}

static JinjaValue all(Jinja *jinja, JinjaValue self, CharacterTest *test) {
    uint32_t c;
    for (size_t at = 0; at < self.string->length;) {
        at += text_character(self.string, at, &c);
        if (!test(c)) return jinja_bool(false);
    }
    jinja_step(jinja, self.string->length / 16);
    return jinja_bool(self.string->length > 0);
}

static JinjaValue run_isdigit(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, all(jinja, self, is_digit);
}
static JinjaValue run_isalpha(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, all(jinja, self, is_letter);
}
static JinjaValue run_isalnum(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, all(jinja, self, is_letter_or_digit);
}
static JinjaValue run_isspace(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, all(jinja, self, text_is_space);
}

/* Letters of one case, and at least one. */
static JinjaValue is_case(JinjaValue self, utf8proc_category_t wanted, utf8proc_category_t other) {
    bool any = false;
    uint32_t c;
    for (size_t at = 0; at < self.string->length;) {
        at += text_character(self.string, at, &c);
        utf8proc_category_t of = category(c);
        if (of == other || of == UTF8PROC_CATEGORY_LT) return jinja_bool(false);
        any = any || of == wanted;
    }
    return jinja_bool(any);
}

static JinjaValue run_isupper(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, (void)jinja, is_case(self, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL);
}
static JinjaValue run_islower(Jinja *jinja, JinjaValue self, const JinjaValue *args) {
    return (void)args, (void)jinja, is_case(self, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU);
}

static JinjaValue run_format(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return jinja_format_braces(jinja, self.string, call);
}

const JinjaBuiltin *jinja_find_string_method(const char *name) {
    static const JinjaBuiltin METHODS[] = {
        {"strip", run_strip, 0, {"chars"}, NULL},
        {"lstrip", run_lstrip, 0, {"chars"}, NULL},
        {"rstrip", run_rstrip, 0, {"chars"}, NULL},
        {"split", run_split, 0, {"sep", "maxsplit"}, NULL},
        {"rsplit", run_rsplit, 0, {"sep", "maxsplit"}, NULL},
        {"splitlines", run_splitlines, 0, {"keepends"}, NULL},
        {"startswith", run_startswith, 1, {"prefix", "start"}, NULL},
        {"endswith", run_endswith, 1, {"suffix", "start"}, NULL},
        {"removeprefix", run_removeprefix, 1, {"prefix"}, NULL},
        {"removesuffix", run_removesuffix, 1, {"suffix"}, NULL},
        {"upper", run_upper, 0, {NULL}, NULL},
        {"lower", run_lower, 0, {NULL}, NULL},
        {"title", run_title, 0, {NULL}, NULL},
        {"capitalize", run_capitalize, 0, {NULL}, NULL},
        {"swapcase", run_swapcase, 0, {NULL}, NULL},
        {"replace", run_replace, 2, {"old", "new", "count"}, NULL},
        {"join", run_join, 1, {"iterable"}, NULL},
        {"find", run_find, 1, {"sub", "start", "end"}, NULL},
        {"rfind", run_rfind, 1, {"sub", "start", "end"}, NULL},
        {"index", run_index, 1, {"sub", "start", "end"}, NULL},
        {"rindex", run_rindex, 1, {"sub", "start", "end"}, NULL},
        {"count", run_count, 1, {"sub", "start", "end"}, NULL},
        {"partition", run_partition, 1, {"sep"}, NULL},
        {"rpartition", run_rpartition, 1, {"sep"}, NULL},
        {"center", run_center, 1, {"width", "fillchar"}, NULL},
        {"ljust", run_ljust, 1, {"width", "fillchar"}, NULL},
        {"rjust", run_rjust, 1, {"width", "fillchar"}, NULL},
        {"zfill", run_zfill, 1, {"width"}, NULL},
        {"isdigit", run_isdigit, 0, {NULL}, NULL},
        {"isalpha", run_isalpha, 0, {NULL}, NULL},
        {"isalnum", run_isalnum, 0, {NULL}, NULL},
        {"isspace", run_isspace, 0, {NULL}, NULL},
        {"isupper", run_isupper, 0, {NULL}, NULL},
        {"islower", run_islower, 0, {NULL}, NULL},
        {"format", NULL, 0, {NULL}, run_format},
    };
    for (size_t i = 0; i < sizeof(METHODS) / sizeof(METHODS[0]); i++) {
        if (strcmp(METHODS[i].name, name) == 0) return &METHODS[i];
    }
    return NULL;
}
