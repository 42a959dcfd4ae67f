#include "frontend/lua/lua_pattern.h"

#include "ir/base/diag.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdarg.h>
#include <string.h>

enum {
    MAX_DEPTH = 200,
    STEPS_PER_REPORT = 100000, /* half a millisecond: a report may look at a clock */
};

/* --- steps --- */

void pattern_report(Pattern *pattern) {
    int64_t n = STEPS_PER_REPORT - pattern->allowance;
    pattern->n_steps += n;
    pattern->allowance = STEPS_PER_REPORT;
    pattern->meter(pattern->lua, n);
}

static void report_and_go_on(Pattern *pattern) {
    pattern_report(pattern);
    if (pattern->n_steps <= PATTERN_MAX_STEPS) return;
    luaL_error(pattern->lua, "string.%s: this pattern takes too long on a text of %d bytes",
               pattern->function, (int)(pattern->text_end - pattern->text));
}

static inline void count_steps(Pattern *pattern, size_t n) {
    pattern->allowance -= (int64_t)n;
    if (pattern->allowance < 0) report_and_go_on(pattern);
}

void pattern_count_bytes(Pattern *pattern, size_t n_bytes) {
    count_steps(pattern, n_bytes / PATTERN_BYTES_PER_STEP);
}

/* Caught errors are no way around the count. */
_Noreturn static void fail(Pattern *pattern, const char *format, ...) {
    va_list arguments;
    pattern_report(pattern);
    va_start(arguments, format);
    luaL_where(pattern->lua, 1);
    lua_pushvfstring(pattern->lua, format, arguments);
    va_end(arguments);
    lua_concat(pattern->lua, 2);
    lua_error(pattern->lua);
    BUG("lua_error returned");
}

/* --- items: what matches one byte --- */

/* A single byte, a class or a set, and how often it may be there. */
typedef struct Item {
    const char *begin, *end;
    const char *rest; /* of the pattern */
    char repeat;      /* '*', '+', '-', '?' or 0: once */
} Item;

/* From after the '['. A ']' that comes first is an element; what looks like a range may hide the
 * end of the set from those who compare, not from here: [+-%]] ends at the second ']'. */
static const char *set_end(Pattern *pattern, const char *p) {
    if (p < pattern->end && *p == '^') p++;
    for (bool is_first = true; p < pattern->end; is_first = false) {
        if (*p == ']' && !is_first) return p + 1;
        p += *p == '%' ? 2 : 1;
    }
    fail(pattern, "malformed pattern (missing ']')");
}

static Item read_item(Pattern *pattern, const char *p) {
    Item item = {.begin = p, .end = p + 1};
    if (*p == '%') {
        if (p + 1 == pattern->end) {
            fail(pattern, "malformed pattern (ends with '%%')");
        }
        item.end = p + 2;
    } else if (*p == '[') {
        item.end = set_end(pattern, p + 1);
    }
    item.rest = item.end;
    if (item.end < pattern->end && *item.end && strchr("*+-?", *item.end)) {
        item.repeat = *item.end;
        item.rest++;
    }
    return item;
}

/* What is no letter of a class stands for itself. */
static bool class_has(unsigned char class, unsigned char byte) {
    bool has;
    switch (tolower(class)) {
    case 'a': has = isalpha(byte); break;
    case 'c': has = iscntrl(byte); break;
    case 'd': has = isdigit(byte); break;
    case 'g': has = isgraph(byte); break;
    case 'l': has = islower(byte); break;
    case 'p': has = ispunct(byte); break;
    case 's': has = isspace(byte); break;
    case 'u': has = isupper(byte); break;
    case 'w': has = isalnum(byte); break;
    case 'x': has = isxdigit(byte); break;
    case 'z': has = byte == 0; break; /* of old versions, but still there */
    default: return class == byte;
    }
    return has != (bool)isupper(class);
}

/* The set from its '[' to after its ']'. */
static bool set_has(const char *begin, const char *end, unsigned char byte) {
    const char *p = begin + 1, *last = end - 1;
    bool is_inverted = *p == '^', found = false;
    if (is_inverted) p++;
    while (p < last && !found) {
        if (*p == '%') {
            found = class_has((unsigned char)p[1], byte);
            p += 2;
        } else if (p + 2 < last && p[1] == '-') {
            found = (unsigned char)p[0] <= byte && byte <= (unsigned char)p[2];
            p += 3;
        } else {
            found = (unsigned char)*p++ == byte;
        }
    }
    return found != is_inverted;
}

static inline bool item_fits(Pattern *pattern, const Item *item, const char *at) {
    if (at == pattern->text_end) return false;
    unsigned char byte = (unsigned char)*at;
    count_steps(pattern, (size_t)(item->end - item->begin));
    switch (*item->begin) {
    case '.': return true;
    case '%': return class_has((unsigned char)item->begin[1], byte);
    case '[': return set_has(item->begin, item->end, byte);
    default: return (unsigned char)*item->begin == byte;
    }
}

/* --- the rest of a pattern --- */

static const char *match_items(Pattern *pattern, const char *at, const char *p);

/* For what can match in several ways, or is to be undone when the rest does not match. */
static const char *match_rest(Pattern *pattern, const char *at, const char *p) {
    if (pattern->depth == MAX_DEPTH) fail(pattern, "pattern too complex");
    pattern->depth++;
    const char *end = match_items(pattern, at, p);
    pattern->depth--;
    return end;
}

static const char *match_most(Pattern *pattern, const char *at, const Item *item) {
    const char *last = at;
    while (item_fits(pattern, item, last)) last++;
    for (; last >= at; last--) {
        const char *end = match_rest(pattern, last, item->rest);
        if (end) return end;
    }
    return NULL;
}

static const char *match_fewest(Pattern *pattern, const char *at, const Item *item) {
    for (;; at++) {
        const char *end = match_rest(pattern, at, item->rest);
        if (end) return end;
        if (!item_fits(pattern, item, at)) return NULL;
    }
}

/* `p` stands at the '('. */
static const char *open_capture(Pattern *pattern, const char *at, const char *p) {
    bool is_position = p + 1 < pattern->end && p[1] == ')';
    if (pattern->n_captures == PATTERN_MAX_CAPTURES) {
        fail(pattern, "too many captures");
    }
    pattern->captures[pattern->n_captures++] =
        (Capture){at, is_position ? CAPTURE_POSITION : CAPTURE_OPEN};
    const char *end = match_rest(pattern, at, p + (is_position ? 2 : 1));
    if (!end) pattern->n_captures--;
    return end;
}

static const char *close_capture(Pattern *pattern, const char *at, const char *p) {
    int i = pattern->n_captures - 1;
    while (i >= 0 && pattern->captures[i].length != CAPTURE_OPEN) i--;
    if (i < 0) fail(pattern, "invalid pattern capture");
    pattern->captures[i].length = at - pattern->captures[i].begin;
    const char *end = match_rest(pattern, at, p + 1);
    if (!end) pattern->captures[i].length = CAPTURE_OPEN;
    return end;
}

/* %bxy; `p` stands at the x. If both are the same, it closes. */
static const char *match_balanced(Pattern *pattern, const char *at, const char *p) {
    if (pattern->end - p < 2) {
        fail(pattern, "malformed pattern (missing arguments to '%%b')");
    }
    if (at == pattern->text_end || *at != p[0]) return NULL;
    size_t n_open = 1;
    while (++at < pattern->text_end) {
        count_steps(pattern, 1);
        if (*at == p[1]) {
            if (--n_open == 0) return at + 1;
        } else if (*at == p[0]) {
            n_open++;
        }
    }
    return NULL;
}

/* %f[set]; `p` stands at the '['. Around the text are zeros. Returns what follows, or NULL. */
static const char *match_frontier(Pattern *pattern, const char *at, const char *p) {
    if (p >= pattern->end || *p != '[') {
        fail(pattern, "missing '[' after '%%f' in pattern");
    }
    const char *end = set_end(pattern, p + 1);
    count_steps(pattern, 3 * (size_t)(end - p)); /* read once, compared twice */
    unsigned char before = at == pattern->text ? 0 : (unsigned char)at[-1];
    unsigned char here = at == pattern->text_end ? 0 : (unsigned char)*at;
    return !set_has(p, end, before) && set_has(p, end, here) ? end : NULL;
}

/* A captured position is no text: nothing matches it. */
static const char *match_again(Pattern *pattern, const char *at, char digit) {
    int i = digit - '1';
    if (i < 0 || i >= pattern->n_captures || pattern->captures[i].length == CAPTURE_OPEN) {
        fail(pattern, "invalid capture index %%%d", i + 1);
    }
    ptrdiff_t length = pattern->captures[i].length;
    if (length == CAPTURE_POSITION || length > pattern->text_end - at) return NULL;
    pattern_count_bytes(pattern, (size_t)length);
    return memcmp(at, pattern->captures[i].begin, (size_t)length) == 0 ? at + length : NULL;
}

/* One item and what follows where it leaves a choice: *p is then NULL. */
static const char *match_item(Pattern *pattern, const char *at, const char **p) {
    Item item = read_item(pattern, *p);
    bool fits = item_fits(pattern, &item, at);
    count_steps(pattern, (size_t)(item.end - item.begin)); /* they were read */
    *p = item.rest;
    if (!fits) return item.repeat && item.repeat != '+' ? at : NULL;
    if (!item.repeat) return at + 1;
    if (item.repeat == '?') {
        const char *end = match_rest(pattern, at + 1, item.rest);
        if (end) *p = NULL;
        return end ? end : at;
    }
    *p = NULL;
    if (item.repeat == '-') return match_fewest(pattern, at, &item);
    return match_most(pattern, item.repeat == '+' ? at + 1 : at, &item);
}

/* A loop as far as there is one way to match. */
static const char *match_items(Pattern *pattern, const char *at, const char *p) {
    while (at && p && p < pattern->end) {
        char next = p + 1 < pattern->end ? p[1] : '\0';
        if (*p == '(') return open_capture(pattern, at, p);
        if (*p == ')') return close_capture(pattern, at, p);
        if (*p == '$' && p + 1 == pattern->end) return at == pattern->text_end ? at : NULL;
        if (*p == '%' && next == 'b') {
            at = match_balanced(pattern, at, p + 2);
            p += 4;
        } else if (*p == '%' && next == 'f') {
            p = match_frontier(pattern, at, p + 2);
            if (!p) return NULL;
        } else if (*p == '%' && next >= '0' && next <= '9') {
            at = match_again(pattern, at, next);
            p += 2;
        } else {
            at = match_item(pattern, at, &p);
        }
    }
    return at;
}

/* --- for the functions --- */

Pattern pattern_create(lua_State *lua, PatternMeter *meter, const char *function, int text_index,
                       int pattern_index, bool may_anchor) {
    size_t text_length, length;
    const char *text = lua_tolstring(lua, text_index, &text_length);
    const char *begin = lua_tolstring(lua, pattern_index, &length);
    bool is_anchored = may_anchor && length > 0 && *begin == '^';
    return (Pattern){.lua = lua,
                     .meter = meter,
                     .function = function,
                     .text = text,
                     .text_end = text + text_length,
                     .begin = begin + is_anchored,
                     .end = begin + length,
                     .is_anchored = is_anchored,
                     .allowance = STEPS_PER_REPORT};
}

const char *pattern_match(Pattern *pattern, const char *at) {
    pattern->n_captures = 0;
    count_steps(pattern, 1);
    return match_rest(pattern, at, pattern->begin);
}

void pattern_push_capture(Pattern *pattern, int index, const char *at, const char *end) {
    Capture capture = {at, end - at};
    if (index < pattern->n_captures) {
        capture = pattern->captures[index];
    } else if (index > 0) {
        fail(pattern, "invalid capture index %%%d", index + 1);
    }
    if (capture.length == CAPTURE_OPEN) fail(pattern, "unfinished capture");
    if (capture.length == CAPTURE_POSITION) {
        lua_pushinteger(pattern->lua, capture.begin - pattern->text + 1);
        return;
    }
    pattern_count_bytes(pattern, (size_t)capture.length);
    lua_pushlstring(pattern->lua, capture.begin, (size_t)capture.length);
}

int pattern_push_captures(Pattern *pattern, const char *at, const char *end) {
    int n = pattern->n_captures > 0 ? pattern->n_captures : 1;
    luaL_checkstack(pattern->lua, n, "too many captures");
    for (int i = 0; i < n; i++) pattern_push_capture(pattern, i, at, end);
    return n;
}
