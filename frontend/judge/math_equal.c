#include "frontend/judge/math_equal.h"

#include "ir/base/strbuf.h"
#include "ir/base/utf8.h"
#include "runtime/jinja/text.h"

#include <string.h>

/* Texts here are C strings that may hold zeros, so lengths count. */

static void take(StrBuf *text, StrBuf *made) {
    strbuf_destroy(text);
    *text = *made;
}

/* The next place of it from `at` on; text->length: there is none. */
static size_t find(const StrBuf *text, size_t at, const char *what) {
    const size_t n = strlen(what);
    for (; at + n <= text->length; at++) {
        if (memcmp(text->text + at, what, n) == 0) return at;
    }
    return text->length;
}

static int count(const StrBuf *text, const char *what) {
    int n = 0;
    for (size_t at = 0; (at = find(text, at, what)) < text->length; at += strlen(what)) n++;
    return n;
}

static void replace(StrBuf *text, const char *from, const char *to) {
    StrBuf made = strbuf_create();
    for (size_t at = 0; at < text->length;) {
        const size_t next = find(text, at, from);
        strbuf_put_bytes(&made, text->text + at, next - at);
        if (next < text->length) strbuf_put(&made, to);
        at = next + strlen(from);
    }
    take(text, &made);
}

/* Bytes of the character there; 0: the end. */
static size_t character_bytes(const StrBuf *text, size_t at, size_t end) {
    uint32_t character;
    if (at >= end) return 0;
    const int n = utf8_read((const unsigned char *)text->text + at, end - at, &character);
    return n > 0 ? (size_t)n : 1;
}

static void put_braced(StrBuf *out, const char *text, size_t length) {
    strbuf_put(out, "{");
    strbuf_put_bytes(out, text, length);
    strbuf_put(out, "}");
}

/* \sqrt3 -> \sqrt{3}. False: nothing follows one. */
static bool fix_sqrt(StrBuf *text) {
    const char ROOT[] = "\\sqrt";
    StrBuf made = strbuf_create();
    bool good = true;
    size_t at = find(text, 0, ROOT);
    strbuf_put_bytes(&made, text->text, at);
    while (good && at < text->length) {
        const size_t begin = at + strlen(ROOT), end = find(text, begin, ROOT);
        const size_t n = character_bytes(text, begin, end);
        const bool braced = n > 0 && text->text[begin] == '{';
        good = n > 0;
        strbuf_put(&made, ROOT);
        if (good && !braced) put_braced(&made, text->text + begin, n);
        const size_t rest = braced ? begin : begin + n;
        strbuf_put_bytes(&made, text->text + rest, end - rest);
        at = end;
    }
    take(text, &made);
    return good;
}

typedef enum Fixed { FIXED, LEFT_ALONE, NOT_UNDERSTOOD } Fixed;

/* What is behind a \frac, from begin to end. */
static Fixed fix_frac(const StrBuf *text, size_t begin, size_t end, StrBuf *out) {
    const size_t first = character_bytes(text, begin, end), at = begin + first;
    if (first == 0) return NOT_UNDERSTOOD;
    strbuf_put(out, "\\frac");
    if (text->text[begin] == '{') {
        strbuf_put_bytes(out, text->text + begin, end - begin);
        return FIXED;
    }
    const size_t second = character_bytes(text, at, end);
    if (second == 0) return LEFT_ALONE;
    put_braced(out, text->text + begin, first);
    if (text->text[at] == '{') {
        strbuf_put_bytes(out, text->text + at, end - at);
    } else {
        put_braced(out, text->text + at, second);
        strbuf_put_bytes(out, text->text + at + second, end - at - second);
    }
    return FIXED;
}

/* \frac12 and \frac1{2} -> \frac{1}{2}; all are left alone where the last is cut off. */
static bool fix_fracs(StrBuf *text) {
    StrBuf made = strbuf_create();
    Fixed fixed = FIXED;
    size_t at = find(text, 0, "\\frac");
    strbuf_put_bytes(&made, text->text, at);
    while (fixed == FIXED && at < text->length) {
        const size_t begin = at + strlen("\\frac");
        at = find(text, begin, "\\frac");
        fixed = fix_frac(text, begin, at, &made);
    }
    if (fixed == FIXED) {
        take(text, &made);
    } else {
        strbuf_destroy(&made);
    }
    return fixed != NOT_UNDERSTOOD;
}

static bool is_space(char c) {
    return (unsigned char)c < 0x80 && text_is_space((unsigned char)c);
}

/* As Python spells a whole number; *out_valid: or as it reads one. */
static bool is_whole_number(const char *text, size_t length, bool *out_valid) {
    enum { PYTHON_MOST_DIGITS = 4300 };
    size_t at = 0, n_digits = 0;
    bool spaced = false;
    while (length > 0 && is_space(text[length - 1])) length--, spaced = true;
    while (at < length && is_space(text[at])) at++, spaced = true;
    const size_t sign = at;
    at += at < length && (text[at] == '-' || text[at] == '+');
    const size_t first = at;
    bool plain = !spaced && text[sign] != '+', valid = at < length;
    for (; at < length && valid; at++) {
        const bool digit = text[at] >= '0' && text[at] <= '9';
        const bool between = at > first && at + 1 < length && text[at - 1] != '_';
        n_digits += digit;
        valid = digit || (text[at] == '_' && between);
        plain &= digit;
    }
    *out_valid = valid && n_digits <= PYTHON_MOST_DIGITS;
    return *out_valid && plain && (text[first] != '0' || (length == 1 && first == 0));
}

/* 1/2 -> \frac{1}{2}. False: one of both is no whole number. */
static bool fix_slash(StrBuf *text) {
    if (count(text, "/") != 1) return true;
    const size_t at = find(text, 0, "/");
    bool over, under;
    const bool a = is_whole_number(text->text, at, &over);
    const bool b = is_whole_number(text->text + at + 1, text->length - at - 1, &under);
    if (!over || !under) return false;
    if (!a || !b) return true;
    StrBuf made = strbuf_create();
    strbuf_put(&made, "\\frac");
    put_braced(&made, text->text, at);
    put_braced(&made, text->text + at + 1, text->length - at - 1);
    take(text, &made);
    return true;
}

/* "x = 5" -> "5", where the name has up to two characters. */
static void drop_name(StrBuf *text) {
    if (count(text, "=") != 1) return;
    const size_t at = find(text, 0, "=");
    size_t end = character_bytes(text, 0, at);
    end += character_bytes(text, end, at);
    if (end < at) return;
    StrBuf made = strbuf_create();
    strbuf_put_bytes(&made, text->text + at + 1, text->length - at - 1);
    take(text, &made);
}

/* strip_string. False: it is not understood. */
static bool normalize(StrBuf *text) {
    static const char *const FIRST[][2] = {
        {"\n", ""},     {"\\!", ""},     {"\\\\", "\\"},    {"tfrac", "frac"}, {"dfrac", "frac"},
        {"\\left", ""}, {"\\right", ""}, {"^{\\circ}", ""}, {"^\\circ", ""},   {"\\$", ""},
    };
    static const char *const SECOND[][2] = {{"\\%", ""}, {" .", " 0."}, {"{.", "{0."}};
    for (size_t i = 0; i < sizeof(FIRST) / sizeof(FIRST[0]); i++) {
        replace(text, FIRST[i][0], FIRST[i][1]);
    }
    const int n_units = count(text, "\\text{ "); /* units, on the right */
    if (n_units > 1) return false;
    if (n_units == 1) text->length = find(text, 0, "\\text{ ");
    for (size_t i = 0; i < sizeof(SECOND) / sizeof(SECOND[0]); i++) {
        replace(text, SECOND[i][0], SECOND[i][1]);
    }
    if (text->length == 0) return true;
    if (text->text[0] == '.') {
        StrBuf made = strbuf_create();
        strbuf_put(&made, "0");
        strbuf_put_bytes(&made, text->text, text->length);
        take(text, &made);
    }
    drop_name(text);
    if (!fix_sqrt(text)) return false;
    replace(text, " ", "");
    if (!fix_fracs(text)) return false;
    if (text->length == 3 && memcmp(text->text, "0.5", 3) == 0) {
        text->length = 0;
        strbuf_put(text, "\\frac{1}{2}");
    }
    return fix_slash(text);
}

static StrBuf copy(AnswerText text) {
    StrBuf made = strbuf_create();
    strbuf_put_bytes(&made, text.text, text.length);
    return made;
}

static bool is_same(const StrBuf *a, const StrBuf *b) {
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

bool math_is_equal(AnswerText a, AnswerText b) {
    StrBuf one = copy(a), other = copy(b);
    bool understood = normalize(&one) && normalize(&other);
    if (!understood) {
        strbuf_destroy(&one);
        strbuf_destroy(&other);
        one = copy(a);
        other = copy(b);
    }
    const bool same = is_same(&one, &other);
    strbuf_destroy(&one);
    strbuf_destroy(&other);
    return same;
}
