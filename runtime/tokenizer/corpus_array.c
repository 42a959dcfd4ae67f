#include "runtime/tokenizer/corpus_array.h"

#include <string.h>

size_t corpus_array_skip(const unsigned char *text, size_t length, size_t at) {
    while (at < length && (text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r'))) at++;
    return at;
}

bool corpus_array_begins(const unsigned char *text, size_t length, size_t *out_first) {
    bool marked = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    size_t at = corpus_array_skip(text, length, marked ? 3 : 0);
    if (at == length || text[at] != '[') return false;
    *out_first = corpus_array_skip(text, length, at + 1);
    return *out_first < length && text[*out_first] == '{';
}

/* Behind the text whose first byte is at `at`; length: it does not end. */
static size_t skip_string(const unsigned char *text, size_t length, size_t at) {
    while (at < length) {
        const unsigned char *quote = memchr(text + at, '"', length - at);
        if (!quote) return length;
        size_t end = (size_t)(quote - text), n_escapes = 0;
        while (end - n_escapes > at && text[end - n_escapes - 1] == '\\') n_escapes++;
        if (n_escapes % 2 == 0) return end + 1;
        at = end + 1; /* no escape reaches over a quote that is escaped */
    }
    return length;
}

size_t corpus_array_object_end(const unsigned char *text, size_t length, size_t at) {
    size_t depth = 0;
    while (at < length) {
        const unsigned char c = text[at++];
        if (c == '"') {
            at = skip_string(text, length, at);
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return at;
        }
    }
    return 0;
}

bool corpus_array_has_field(const unsigned char *text, size_t length, size_t at, const char *name) {
    const size_t n = strlen(name);
    size_t depth = 0;
    while (at < length) {
        const unsigned char c = text[at++];
        if (c == '"') {
            size_t end = skip_string(text, length, at),
                   colon = corpus_array_skip(text, length, end);
            bool is = depth == 1 && end - at == n + 1 && memcmp(text + at, name, n) == 0;
            if (is && colon < length && text[colon] == ':') return true;
            at = end;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            return false;
        }
    }
    return false;
}

const char *corpus_array_next(const unsigned char *text, size_t length, size_t at,
                              size_t *out_next) {
    *out_next = at = corpus_array_skip(text, length, at);
    if (at == length) return "the array does not end";
    if (text[at] == ']') {
        *out_next = corpus_array_skip(text, length, at + 1);
        return *out_next == length ? NULL : "something follows the array";
    }
    if (text[at] != ',') return "neither ',' nor ']' follows an object";
    *out_next = corpus_array_skip(text, length, at + 1);
    if (*out_next < length && text[*out_next] == '{') return NULL;
    return *out_next == length ? "the array does not end" : "not all in the array are objects";
}
