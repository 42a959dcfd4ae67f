#include "ir/base/json.h"

#include "ir/base/file.h"
#include "ir/base/memory.h"

#include <string.h>

json_t *json_parse_bytes(const char *path, const void *bytes, size_t length, Diag *diag) {
    json_error_t error;
    json_t *json = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        if (json_error_code(&error) == json_error_out_of_memory) memory_exhausted(0);
        SourceLoc loc = {path, error.line > 0 ? error.line : 0};
        diag_error(diag, loc, "JSON: %s (column %d)", error.text, error.column);
    }
    return json;
}

json_t *json_parse_file(const char *path, size_t limit_bytes, Diag *diag) {
    Arena *arena = arena_create();
    size_t length;
    const char *text = file_read(arena, path, limit_bytes, &length, diag);
    json_t *json = text ? json_parse_bytes(path, text, length, diag) : NULL;
    arena_destroy(arena);
    return json;
}

void json_put_text(StrBuf *out, const char *text) {
    json_put_bytes(out, text, strlen(text));
}

void json_put_bytes(StrBuf *out, const char *text, size_t length) {
    strbuf_put(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text, *end = c + length; c < end; c++) {
        if (*c == '"' || *c == '\\') {
            strbuf_printf(out, "\\%c", *c);
        } else if (*c < 0x20 || *c >= 0x7f) {
            strbuf_printf(out, "\\u%04x", *c); /* byte by byte: valid whatever the encoding */
        } else {
            strbuf_put_bytes(out, c, 1);
        }
    }
    strbuf_put(out, "\"");
}
