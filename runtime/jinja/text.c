#define _GNU_SOURCE /* memmem */
#include "runtime/jinja/text.h"

#include "ir/base/utf8.h"
#include "runtime/jinja/run.h"

#include <string.h>
#include <utf8proc.h>

size_t text_character(const JinjaString *text, size_t at, uint32_t *out) {
    int n = utf8_read((const unsigned char *)text->text + at, text->length - at, out);
    if (n == 0) *out = 0xfffd;
    return n ? (size_t)n : 1;
}

bool text_is_space(uint32_t c) {
    return utf8_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

int64_t text_count_characters(const JinjaString *text, size_t begin, size_t end) {
    int64_t count = 0;
    uint32_t character;
    for (; begin < end; count++) begin += text_character(text, begin, &character);
    return count;
}

/* --- finding --- */

int64_t text_find(const JinjaString *text, const JinjaString *what, size_t from) {
    if (from > text->length) return -1;
    const char *found = memmem(text->text + from, text->length - from, what->text, what->length);
    return found ? found - text->text : -1;
}

bool text_begins(const JinjaString *text, const JinjaString *with) {
    return text->length >= with->length && memcmp(text->text, with->text, with->length) == 0;
}

bool text_ends(const JinjaString *text, const JinjaString *with) {
    return text->length >= with->length &&
           memcmp(text->text + text->length - with->length, with->text, with->length) == 0;
}

/* --- stripping --- */

static bool is_among(uint32_t character, const JinjaString *chars) {
    uint32_t one;
    if (!chars) return text_is_space(character);
    for (size_t at = 0; at < chars->length;) {
        at += text_character(chars, at, &one);
        if (one == character) return true;
    }
    return false;
}

/* Where the character before `at` begins. */
static size_t before(const JinjaString *text, size_t at) {
    size_t begin = at - 1;
    uint32_t character;
    while (begin > 0 && at - begin < 4 && ((unsigned char)text->text[begin] & 0xc0) == 0x80) {
        begin--;
    }
    return begin + text_character(text, begin, &character) == at ? begin : at - 1;
}

JinjaValue text_strip(Jinja *jinja, const JinjaString *text, const JinjaString *chars, int sides) {
    size_t begin = 0, end = text->length, n;
    uint32_t character;
    while ((sides & TEXT_LEFT) && begin < end) {
        n = text_character(text, begin, &character);
        if (!is_among(character, chars)) break;
        begin += n;
    }
    while ((sides & TEXT_RIGHT) && end > begin) {
        n = before(text, end);
        text_character(text, n, &character);
        if (!is_among(character, chars)) break;
        end = n;
    }
    jinja_step(jinja, (begin + text->length - end) / 8 * (chars ? chars->length + 1 : 1));
    return jinja_slice(jinja, text, begin, end);
}

/* --- parts --- */

static void add_part(Jinja *jinja, JinjaList *parts, const JinjaString *text, size_t begin,
                     size_t end) {
    jinja_list_add(jinja, parts, jinja_slice(jinja, text, begin, end));
}

static void reverse(JinjaList *list) {
    for (size_t i = 0, k = list->count; i + 1 < k; i++) {
        JinjaValue item = list->items[i];
        list->items[i] = list->items[--k];
        list->items[k] = item;
    }
}

static JinjaValue split_space(Jinja *jinja, const JinjaString *text, int64_t most) {
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, 0);
    size_t at = 0, n;
    uint32_t c;
    while (!jinja->failed) {
        while (at < text->length && (n = text_character(text, at, &c), text_is_space(c))) at += n;
        if (at >= text->length) break;
        if (most >= 0 && (int64_t)out.list->count >= most) {
            add_part(jinja, out.list, text, at, text->length);
            break;
        }
        size_t begin = at;
        while (at < text->length && (n = text_character(text, at, &c), !text_is_space(c))) at += n;
        add_part(jinja, out.list, text, begin, at);
    }
    return out;
}

static JinjaValue split_space_right(Jinja *jinja, const JinjaString *text, int64_t most) {
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, 0);
    size_t end = text->length;
    uint32_t c;
    while (!jinja->failed) {
        while (end > 0 && (text_character(text, before(text, end), &c), text_is_space(c))) {
            end = before(text, end);
        }
        if (end == 0) break;
        if (most >= 0 && (int64_t)out.list->count >= most) {
            add_part(jinja, out.list, text, 0, end);
            break;
        }
        size_t begin = end;
        while (begin > 0 && (text_character(text, before(text, begin), &c), !text_is_space(c))) {
            begin = before(text, begin);
        }
        add_part(jinja, out.list, text, begin, end);
        end = begin;
    }
    reverse(out.list);
    return out;
}

/* The last place that begins before `end` and ends there at most. */
static int64_t find_last(const JinjaString *text, const JinjaString *what, size_t end) {
    for (size_t at = end < what->length ? 0 : end - what->length + 1; at-- > 0;) {
        if (memcmp(text->text + at, what->text, what->length) == 0) return (int64_t)at;
    }
    return -1;
}

static JinjaValue split_right(Jinja *jinja, const JinjaString *text, const JinjaString *separator,
                              int64_t most) {
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, 0);
    size_t end = text->length;
    int64_t at;
    while (!jinja->failed && (most < 0 || (int64_t)out.list->count < most) &&
           (at = find_last(text, separator, end)) >= 0) {
        add_part(jinja, out.list, text, (size_t)at + separator->length, end);
        end = (size_t)at;
    }
    add_part(jinja, out.list, text, 0, end);
    reverse(out.list);
    return out;
}

JinjaValue text_split(Jinja *jinja, const JinjaString *text, const JinjaString *separator,
                      int64_t most, bool from_right) {
    jinja_step(jinja, text->length / 16);
    if (!separator) {
        return from_right && most >= 0 ? split_space_right(jinja, text, most)
                                       : split_space(jinja, text, most);
    }
    if (separator->length == 0) return jinja_fail(jinja, "split: the separator is empty");
    if (from_right && most >= 0) return split_right(jinja, text, separator, most);
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, 0);
    size_t begin = 0;
    int64_t at;
    while (!jinja->failed && (most < 0 || (int64_t)out.list->count < most) &&
           (at = text_find(text, separator, begin)) >= 0) {
        add_part(jinja, out.list, text, begin, (size_t)at);
        begin = (size_t)at + separator->length;
    }
    add_part(jinja, out.list, text, begin, text->length);
    return out;
}

static bool ends_line(uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

JinjaValue text_split_lines(Jinja *jinja, const JinjaString *text, bool keeps_ends) {
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, 0);
    size_t begin = 0, at = 0;
    uint32_t c;
    while (at < text->length && !jinja->failed) {
        size_t n = text_character(text, at, &c), end = at;
        at += n;
        if (!ends_line(c)) continue;
        if (c == '\r' && at < text->length && text->text[at] == '\n') at++;
        add_part(jinja, out.list, text, begin, keeps_ends ? at : end);
        begin = at;
    }
    if (begin < text->length) add_part(jinja, out.list, text, begin, text->length);
    return out;
}

/* Between all characters, too. */
static JinjaValue replace_nothing(Jinja *jinja, const JinjaString *text, const JinjaString *to,
                                  int64_t most) {
    JinjaBuilder out = {0};
    uint32_t c;
    for (size_t at = 0, n; !jinja->failed; at += n) {
        if (most < 0 || most-- > 0) jinja_put_string(jinja, &out, to);
        if (at >= text->length) break;
        n = text_character(text, at, &c);
        jinja_put_slice(jinja, &out, text, at, at + n);
    }
    return jinja_built(jinja, &out);
}

JinjaValue text_replace(Jinja *jinja, const JinjaString *text, const JinjaString *from,
                        const JinjaString *to, int64_t most) {
    JinjaBuilder out = {0};
    size_t begin = 0;
    int64_t at;
    if (from->length == 0) return replace_nothing(jinja, text, to, most);
    jinja_step(jinja, text->length / 64);
    for (int64_t n = 0; !jinja->failed && (most < 0 || n < most); n++) {
        at = text_find(text, from, begin);
        if (at < 0) break;
        jinja_step(jinja, 1);
        jinja_put_slice(jinja, &out, text, begin, (size_t)at);
        jinja_put_string(jinja, &out, to);
        begin = (size_t)at + from->length;
    }
    if (begin == 0) return JINJA_VALUE(JINJA_STRING, string, text);
    jinja_put_slice(jinja, &out, text, begin, text->length);
    return jinja_built(jinja, &out);
}

JinjaValue text_join(Jinja *jinja, const JinjaString *between, const JinjaList *parts) {
    JinjaBuilder out = {0};
    for (size_t i = 0; i < parts->count && !jinja->failed; i++) {
        if (i) jinja_put_string(jinja, &out, between);
        jinja_put_str(jinja, &out, parts->items[i]);
    }
    return jinja_built(jinja, &out);
}

/* --- cases --- */

uint32_t text_lower(uint32_t character) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)character);
}

static bool is_cased(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT: return true;
    default: return false;
    }
}

static void put_character(Jinja *jinja, JinjaBuilder *out, uint32_t character, unsigned char mark) {
    unsigned char bytes[4];
    int n = utf8_write(character, bytes);
    jinja_put_bytes(jinja, out, (const char *)bytes, (size_t)n, mark);
}

/* One letter that becomes two is known: the German one. */
static void put_upper(Jinja *jinja, JinjaBuilder *out, uint32_t c, bool title, unsigned char mark) {
    if (c == 0xdf) {
        jinja_put_bytes(jinja, out, title ? "Ss" : "SS", 2, mark);
    } else {
        utf8proc_int32_t code = (utf8proc_int32_t)c;
        put_character(jinja, out,
                      (uint32_t)(title ? utf8proc_totitle(code) : utf8proc_toupper(code)), mark);
    }
}

JinjaValue text_case(Jinja *jinja, const JinjaString *text, TextCase how) {
    JinjaBuilder out = {0};
    bool begins = true; /* a word, or all */
    for (size_t at = 0, n; at < text->length && !jinja->failed; at += n) {
        uint32_t c;
        unsigned char mark = jinja_mark(text, at);
        n = text_character(text, at, &c);
        bool cased = c < 0x80 ? (c | 32) >= 'a' && (c | 32) <= 'z' : is_cased(c);
        bool is_upper = cased && text_lower(c) != c;
        bool upper = how == CASE_UPPER || (how == CASE_SWAP && !is_upper) ||
                     ((how == CASE_TITLE || how == CASE_CAPITAL) && begins);
        if (c == 0xfffd) {
            jinja_put_slice(jinja, &out, text, at, at + n);
        } else if (upper) {
            put_upper(jinja, &out, c, how == CASE_TITLE || how == CASE_CAPITAL, mark);
        } else {
            put_character(jinja, &out, text_lower(c), mark);
        }
        begins = how == CASE_TITLE && !cased;
    }
    return jinja_built_like(jinja, &out, text);
}
