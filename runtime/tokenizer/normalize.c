#include "runtime/tokenizer/normalize.h"

#include "ir/base/diag.h"
#include "runtime/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- NFC --- */

/* Characters that stay as they are beside whatever other ones that stay: they combine with nothing
 * and nothing becomes them (NFC_Quick_Check=Yes, class 0). Some ranges of much used ones; the rest
 * is left to utf8proc. */
static bool is_inert(uint32_t c) {
    return c < 0x300 || (c >= 0x400 && c < 0x483) || (c >= 0x2010 && c < 0x2028) ||
           (c >= 0x3000 && c < 0x302a) || (c >= 0x3041 && c < 0x3097) ||
           (c >= 0x30a0 && c < 0x3100) || (c >= 0x3400 && c < 0x4dc0) ||
           (c >= 0x4e00 && c < 0xa000) || (c >= 0xac00 && c < 0xd7a4) ||
           (c >= 0xff00 && c < 0xfff0) || (c >= 0x1f300 && c < 0x1fb00);
}

/* How many bytes from the beginning on need no second look. */
static size_t inert_bytes(const unsigned char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        uint64_t eight;
        uint32_t character;
        if (at + 8 <= length) {
            memcpy(&eight, text + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        int bytes = utf8_read(text + at, length - at, &character);
        if (bytes == 0 || !is_inert(character)) break;
        at += (size_t)bytes;
    }
    return at;
}

static void put(NormalText *out, const void *bytes, size_t length) {
    if (length > out->capacity - out->length) {
        out->capacity = 2 * (out->length + length);
        out->bytes = realloc(out->bytes, out->capacity);
        if (!out->bytes) BUG("out of memory");
    }
    if (length) memcpy(out->bytes + out->length, bytes, length);
    out->length += length;
}

/* One run from an ASCII character, or the text's beginning, up to the next: nothing combines across
 * its ends. */
static void put_composed(NormalText *out, const unsigned char *run, size_t length) {
    utf8proc_uint8_t *composed = NULL;
    utf8proc_ssize_t n =
        utf8proc_map(run, (utf8proc_ssize_t)length, &composed, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) BUG("utf8proc: %s", utf8proc_errmsg(n));
    put(out, composed, (size_t)n);
    free(composed);
}

/* `text` from `at` on may not be normal; what is before it is. */
static void compose(const unsigned char *text, size_t length, size_t at, NormalText *out) {
    size_t copied = 0;
    while (at < length) {
        size_t begin = at, end = at;
        while (begin > copied && text[begin] >= 0x80) begin--;
        while (end < length && text[end] >= 0x80) end++;
        put(out, text + copied, begin - copied);
        put_composed(out, text + begin, end - begin);
        copied = end;
        at = end + inert_bytes(text + end, length - end);
    }
    put(out, text + copied, length - copied);
}

/* --- SentencePiece's --- */

static void replace_spaces(const Normalizer *normalizer, const unsigned char *text, size_t length,
                           bool is_first, NormalText *out) {
    size_t n = normalizer->prepend ? strlen(normalizer->prepend) : 0;
    bool has_space =
        length > 0 &&
        (text[0] == ' ' || (n && length >= n && memcmp(text, normalizer->prepend, n) == 0));
    if (n && is_first && length > 0 && (normalizer->prepend_before_space || !has_space)) {
        put(out, normalizer->prepend, n);
    }
    for (size_t at = 0; at < length;) {
        const unsigned char *space = normalizer->space ? memchr(text + at, ' ', length - at) : NULL;
        size_t end = space ? (size_t)(space - text) : length;
        put(out, text + at, end - at);
        if (space) put(out, normalizer->space, strlen(normalizer->space));
        at = end + (space != NULL);
    }
}

void normalize(const Normalizer *normalizer, const unsigned char *text, size_t length,
               bool is_first, NormalText *room, const unsigned char **out_text,
               size_t *out_length) {
    size_t inert = normalizer->nfc ? inert_bytes(text, length) : length;
    *out_text = text;
    *out_length = length;
    room->length = 0;
    if (inert < length) {
        compose(text, length, inert, room);
    } else if (normalizer->prepend || normalizer->space) {
        replace_spaces(normalizer, text, length, is_first, room);
    } else {
        return;
    }
    *out_text = room->bytes ? room->bytes : text;
    *out_length = room->length;
}
