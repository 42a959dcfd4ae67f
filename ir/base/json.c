#include "ir/base/json.h"

#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <string.h>

static json_t *parse(const char *path, const void *bytes, size_t length, size_t flags, Diag *diag) {
    json_error_t error;
    json_t *json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES | flags, &error);
    if (!json) {
        if (json_error_code(&error) == json_error_out_of_memory) memory_exhausted(0);
        SourceLoc loc = {path, error.line > 0 ? error.line : 0};
        diag_error(diag, loc, "JSON: %s (column %d)", error.text, error.column);
    }
    return json;
}

json_t *json_parse_bytes(const char *path, const void *bytes, size_t length, Diag *diag) {
    return parse(path, bytes, length, 0, diag);
}

static json_t *parse_file(const char *path, size_t limit_bytes, size_t flags, Diag *diag) {
    Arena *arena = arena_create();
    size_t length;
    const char *text = file_read(arena, path, limit_bytes, &length, diag);
    json_t *json = text ? parse(path, text, length, flags, diag) : NULL;
    arena_destroy(arena);
    return json;
}

json_t *json_parse_file(const char *path, size_t limit_bytes, Diag *diag) {
    return parse_file(path, limit_bytes, 0, diag);
}

json_t *json_parse_file_texts(const char *path, size_t limit_bytes, Diag *diag) {
    return parse_file(path, limit_bytes, JSON_DECODE_INT_AS_REAL, diag);
}

void json_put_text(StrBuf *out, const char *text) {
    json_put_bytes(out, text, strlen(text));
}

/* A character beyond ASCII: beyond U+FFFF as two halves of UTF-16. */
static void put_character(StrBuf *out, uint32_t c) {
    if (c >= 0x10000) {
        strbuf_printf(out, "\\u%04x", 0xd800 + ((c - 0x10000) >> 10));
        c = 0xdc00 + ((c - 0x10000) & 0x3ff);
    }
    strbuf_printf(out, "\\u%04x", c);
}

void json_put_bytes(StrBuf *out, const char *text, size_t length) {
    const unsigned char *c = (const unsigned char *)text, *end = c + length;
    strbuf_put(out, "\"");
    while (c < end) {
        uint32_t character = *c;
        int n = *c < 0x80 ? 1 : utf8_read(c, (size_t)(end - c), &character);
        if (*c == '"' || *c == '\\') {
            strbuf_printf(out, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            put_character(out, character); /* of a byte that is no UTF-8: its number */
        } else {
            strbuf_put_bytes(out, c, 1);
        }
        c += n ? n : 1;
    }
    strbuf_put(out, "\"");
}
