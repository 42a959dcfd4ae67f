#include "runtime/tokenizer/line_text.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdint.h>
#include <string.h>

enum {
    MOST_DEPTH = 16,
    MOST_KEYS = 64,    /* of an object: each is compared with those before it */
    MOST_DIGITS = 300, /* of a number, which is a double for jansson */
};

typedef struct Slice {
    const unsigned char *at;
    size_t length;
    bool escapes;
} Slice;

typedef struct Reader {
    const unsigned char *at, *end;
    const char *field;
    size_t field_length;
    const char *const *others;
    size_t n_others;
    Slice found;
    bool has_found;
} Reader;

static void skip_blanks(Reader *r) {
    while (r->at < r->end && (*r->at == ' ' || (*r->at >= '\t' && *r->at <= '\r' &&
                                                *r->at != '\v' && *r->at != '\f'))) {
        r->at++;
    }
}

static bool take(Reader *r, unsigned char byte) {
    skip_blanks(r);
    if (r->at == r->end || *r->at != byte) return false;
    r->at++;
    return true;
}

/* --- strings --- */

#define EACH_BYTE UINT64_C(0x0101010101010101)
#define HIGH_BITS UINT64_C(0x8080808080808080)

/* Set high bits where bytes are zero; false ones only above a true one. */
static uint64_t zero_bytes(uint64_t word) {
    return (word - EACH_BYTE) & ~word & HIGH_BITS;
}

/* Is one of eight bytes a quote, a backslash or a control character? */
static uint64_t any_special(uint64_t word) {
    return zero_bytes(word ^ EACH_BYTE * '"') | zero_bytes(word ^ EACH_BYTE * '\\') |
           ((word - EACH_BYTE * 0x20) & ~word & HIGH_BITS);
}

static bool is_escape(const unsigned char *at, const unsigned char *end) {
    return at < end && (*at == 'u' || strchr("\"\\/bfnrt", *at)) && *at;
}

/* Behind its first quote: to behind its last. */
static bool take_string(Reader *r, Slice *out) {
    const unsigned char *begin = r->at, *at = begin;
    uint64_t high = 0;
    out->escapes = false;
    for (;;) {
        uint64_t word;
        while ((size_t)(r->end - at) >= sizeof(word)) {
            memcpy(&word, at, sizeof(word));
            if (any_special(word)) break;
            high |= word & HIGH_BITS;
            at += sizeof(word);
        }
        while (at < r->end && *at != '"' && *at != '\\' && *at >= 0x20) high |= *at++ & 0x80u;
        if (at == r->end || *at < 0x20) return false;
        if (*at == '"') break;
        if (!is_escape(at + 1, r->end)) return false;
        out->escapes = true;
        at += 2;
    }
    *out = (Slice){begin, (size_t)(at - begin), out->escapes};
    r->at = at + 1;
    return !high || utf8_valid_bytes(begin, out->length) == out->length;
}

static int hex_digits(const unsigned char *at, const unsigned char *end) {
    int value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* The character of \u and what follows at `*at`, which goes on behind it; -1: half of a pair, or
 * none. */
static int take_character(const unsigned char **at, const unsigned char *end) {
    int high = hex_digits(*at, end);
    *at += 4;
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high > 0xdbff || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return -1;
    int low = hex_digits(*at + 2, end);
    *at += 6;
    return low >= 0xdc00 && low <= 0xdfff ? 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00) : -1;
}

/* A string with escapes never becomes longer. False: one that is none. */
static bool unescape(const Slice *raw, LineRoom *room, size_t *out_length) {
    static const char NAMES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    if (room->size < raw->length) {
        room->size = 2 * raw->length;
        room->bytes = memory_grow(room->bytes, room->size);
    }
    const unsigned char *at = raw->at, *end = raw->at + raw->length;
    unsigned char *to = room->bytes;
    while (at < end) {
        const unsigned char *next = memchr(at, '\\', (size_t)(end - at));
        size_t n = (size_t)((next ? next : end) - at);
        memcpy(to, at, n);
        to += n;
        at += n;
        if (at == end) break;
        unsigned char name = at[1];
        at += 2;
        if (name != 'u') {
            *to++ = (unsigned char)MEANT[strchr(NAMES, name) - NAMES];
            continue;
        }
        int character = take_character(&at, end);
        if (character < 0) return false;
        to += utf8_write((uint32_t)character, to);
    }
    *out_length = (size_t)(to - room->bytes);
    return true;
}

/* Of a string that is not needed: are its escapes' characters good? */
static bool check_escapes(const Slice *raw) {
    const unsigned char *at = raw->at, *end = raw->at + raw->length;
    while (at < end && (at = memchr(at, '\\', (size_t)(end - at)))) {
        bool spelled = at[1] == 'u';
        at += 2;
        if (spelled && take_character(&at, end) < 0) return false;
    }
    return true;
}

/* --- values --- */

static bool take_digits(Reader *r) {
    const unsigned char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > begin && r->at - begin <= MOST_DIGITS;
}

/* Those with exponents are left to jansson, which knows which are too large. */
static bool take_number(Reader *r) {
    if (r->at < r->end && *r->at == '-') r->at++;
    const unsigned char *begin = r->at;
    if (!take_digits(r) || (*begin == '0' && r->at - begin > 1)) return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!take_digits(r)) return false;
    }
    return r->at == r->end || (*r->at != 'e' && *r->at != 'E');
}

static bool take_word(Reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool take_value(Reader *r, int depth);

static bool take_array(Reader *r, int depth) {
    if (take(r, ']')) return true;
    do {
        if (!take_value(r, depth)) return false;
    } while (take(r, ','));
    return take(r, ']');
}

static bool is_key(const Slice *key, const char *name, size_t length) {
    return key->length == length && memcmp(key->at, name, length) == 0;
}

/* The member's value, which is kept if it is what is looked for. */
static bool take_member(Reader *r, const Slice *key, int depth) {
    bool is_field = depth == 0 && is_key(key, r->field, r->field_length);
    for (size_t i = 0; depth == 0 && i < r->n_others; i++) {
        if (is_key(key, r->others[i], strlen(r->others[i]))) return false;
    }
    if (!is_field) return take_value(r, depth + 1);
    r->has_found = true;
    return take(r, '"') && take_string(r, &r->found);
}

static bool take_object(Reader *r, int depth) {
    Slice keys[MOST_KEYS];
    int n = 0;
    if (take(r, '}')) return true;
    do {
        Slice *key = &keys[n];
        if (n == MOST_KEYS || !take(r, '"') || !take_string(r, key) || key->escapes) return false;
        for (int i = 0; i < n; i++) {
            if (is_key(key, (const char *)keys[i].at, keys[i].length)) return false;
        }
        n++;
        if (!take(r, ':') || !take_member(r, key, depth)) return false;
    } while (take(r, ','));
    return take(r, '}');
}

static bool take_value(Reader *r, int depth) {
    Slice string;
    skip_blanks(r);
    if (r->at == r->end || depth == MOST_DEPTH) return false;
    switch (*r->at) {
    case '"':
        r->at++;
        return take_string(r, &string) && (!string.escapes || check_escapes(&string));
    case '{': r->at++; return take_object(r, depth);
    case '[': r->at++; return take_array(r, depth + 1);
    case 't': return take_word(r, "true");
    case 'f': return take_word(r, "false");
    case 'n': return take_word(r, "null");
    default: return take_number(r);
    }
}

bool line_text_find(const unsigned char *line, size_t length, const char *field,
                    const char *const *others, size_t n_others, LineRoom *room,
                    const unsigned char **out_text, size_t *out_length) {
    Reader r = {.at = line,
                .end = line + length,
                .field = field,
                .field_length = strlen(field),
                .others = others,
                .n_others = n_others};
    if (!take(&r, '{') || !take_object(&r, 0) || !r.has_found) return false;
    skip_blanks(&r);
    if (r.at != r.end) return false;
    *out_text = r.found.at;
    *out_length = r.found.length;
    if (!r.found.escapes) return true;
    if (!unescape(&r.found, room, out_length)) return false;
    *out_text = room->bytes;
    return true;
}
