#include "frontend/judge/answer_match.h"

#include "frontend/judge/math_equal.h"
#include "ir/base/strbuf.h"
#include "ir/base/utf8.h"
#include "runtime/jinja/text.h"

#include <string.h>

static const AnswerText NONE = {0};

const char *answer_filter_name(AnswerFilter filter) {
    static const char *const NAMES[N_ANSWER_FILTERS] = {
        "exact-match", "strict-match", "flexible-extract", "dollar-match", "boxed",
    };
    return NAMES[filter];
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* [0-9.,], and `more`. */
static bool is_numeral(char c, char more) {
    return is_digit(c) || c == '.' || c == ',' || c == more;
}

static bool begins(AnswerText text, size_t at, const char *with) {
    const size_t n = strlen(with);
    return n <= text.length - at && memcmp(text.text + at, with, n) == 0;
}

/* The last place of it; text.length: there is none. */
static size_t find_last(AnswerText text, const char *what) {
    for (size_t at = text.length; at-- > 0;) {
        if (begins(text, at, what)) return at;
    }
    return text.length;
}

static AnswerText piece(AnswerText text, size_t begin, size_t end) {
    return (AnswerText){text.text + begin, end - begin};
}

/* Its bytes; 1 where it is no UTF-8. */
static size_t character_at(AnswerText text, size_t at, uint32_t *out) {
    const unsigned char *bytes = (const unsigned char *)text.text + at;
    const int n = utf8_read(bytes, text.length - at, out);
    if (n > 0) return (size_t)n;
    *out = bytes[0] < 0x80 ? bytes[0] : 0xfffd;
    return 1;
}

/* As str.strip of Python. */
static AnswerText strip(AnswerText text) {
    uint32_t character;
    size_t begin = text.length, end = text.length;
    for (size_t at = 0; at < text.length;) {
        const size_t next = at + character_at(text, at, &character);
        if (!text_is_space(character)) {
            if (begin == text.length) begin = at;
            end = next;
        }
        at = next;
    }
    return piece(text, begin, end);
}

static AnswerText find_hashes(AnswerText text) {
    const char MARK[] = "#### ";
    for (size_t at = 0; at < text.length; at++) {
        if (!begins(text, at, MARK)) continue;
        const size_t begin = at + strlen(MARK);
        size_t end = begin + (begin < text.length && text.text[begin] == '-');
        const size_t first = end;
        while (end < text.length && is_numeral(text.text[end], '.')) end++;
        if (end > first) return piece(text, begin, end);
    }
    return NONE;
}

static AnswerText find_number(AnswerText text) {
    AnswerText found = NONE;
    for (size_t at = 0; at < text.length;) {
        const size_t first = at + (text.text[at] == '-');
        size_t end = first;
        while (end < text.length && is_numeral(text.text[end], '$')) end++;
        const bool lone = end == first + 1 && is_digit(text.text[first]);
        const bool is_number = end > first + 1 || lone;
        if (is_number) found = piece(text, at, end);
        at = is_number ? end : at + 1;
    }
    return found;
}

static AnswerText find_dollars(AnswerText text) {
    const char *first = memchr(text.text, '$', text.length);
    const size_t last = find_last(text, "$");
    if (!first || first == text.text + last) return text;
    return piece(text, (size_t)(first - text.text) + 1, last);
}

/* Where the brace is closed that is the first one from `at` on; text.length: nowhere. */
static size_t find_closing(AnswerText text, size_t at) {
    int depth = 0;
    for (; at < text.length; at++) {
        depth += (text.text[at] == '{') - (text.text[at] == '}');
        if (text.text[at] == '}' && depth == 0) return at;
    }
    return text.length;
}

/* remove_boxed(last_boxed_only_string(text)): a space behind any box wins over braces. */
static AnswerText find_boxed(AnswerText text) {
    const char SPACED[] = "\\boxed ", BRACED[] = "\\boxed{";
    const size_t spaced = find_last(text, SPACED), box = find_last(text, "\\boxed");
    if (spaced < text.length) {
        const AnswerText rest = piece(text, spaced + strlen(SPACED), text.length);
        const char *dollar = memchr(rest.text, '$', rest.length);
        return dollar ? piece(rest, 0, (size_t)(dollar - rest.text)) : rest;
    }
    if (box == text.length || !begins(text, box, BRACED)) return NONE;
    const size_t end = find_closing(text, box);
    return end < text.length ? piece(text, box + strlen(BRACED), end) : NONE;
}

AnswerText answer_extract(AnswerFilter filter, AnswerText text) {
    if (!text.text) return NONE;
    switch (filter) {
    case ANSWER_WHOLE: return strip(text);
    case ANSWER_HASHES: return find_hashes(text);
    case ANSWER_NUMBER: return find_number(text);
    case ANSWER_DOLLARS: return find_dollars(text);
    case ANSWER_BOXED: return find_boxed(text);
    case N_ANSWER_FILTERS: break;
    }
    return NONE;
}

/* gsm8k.yaml's regexes_to_ignore, in their order, and ignore_case. */
static StrBuf normalize(AnswerText answer) {
    StrBuf plain = strbuf_create(), out = strbuf_create();
    for (size_t i = 0; i < answer.length; i++) {
        const char c = answer.text[i];
        if (c != ',' && c != '$') strbuf_put_bytes(&plain, &c, 1);
    }
    AnswerText rest = {plain.text, plain.length};
    const size_t mark = find_last(rest, "#### ");
    if (mark < rest.length) rest = piece(rest, mark + strlen("#### "), rest.length);
    const size_t line = rest.length - (rest.length > 0 && rest.text[rest.length - 1] == '\n');
    const bool full = rest.length > 0 && rest.text[rest.length - 1] == '.';
    const size_t stop = full ? rest.length - 1 : line > 0 ? line - 1 : rest.length;
    for (size_t at = 0; at < rest.length;) {
        uint32_t character;
        unsigned char lower[4];
        const size_t n = character_at(rest, at, &character);
        if (at == stop && rest.text[at] == '.') {
            at++;
            continue;
        }
        const bool is_text = n > 1 || character < 0x80;
        if (is_text) {
            strbuf_put_bytes(&out, lower, (size_t)utf8_write(text_lower(character), lower));
        } else {
            strbuf_put_bytes(&out, rest.text + at, 1);
        }
        at += n;
    }
    strbuf_destroy(&plain);
    return out;
}

bool answer_is_right(AnswerFilter filter, AnswerText extracted, AnswerText right) {
    if (!extracted.text || !right.text) return false;
    if (filter == ANSWER_DOLLARS || filter == ANSWER_BOXED) return math_is_equal(extracted, right);
    if (filter == ANSWER_WHOLE) right = strip(right);
    StrBuf a = normalize(extracted), b = normalize(right);
    const bool same = a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
    strbuf_destroy(&a);
    strbuf_destroy(&b);
    return same;
}
