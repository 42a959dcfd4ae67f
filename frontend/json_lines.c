#include "frontend/json_lines.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"
#include "ir/base/strbuf.h"
#include "runtime/data/unpack.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A file's text: mapped, or its own where the file is packed. */
typedef struct LinesText {
    const char *text;
    size_t length;
    FileMap map;
    StrBuf unpacked; /* text NULL: it is not packed */
} LinesText;

static int count_lines(const LinesText *lines) {
    int n = 0;
    for (size_t i = 0; i < lines->length; i++) n += lines->text[i] == '\n';
    return n + (lines->length > 0 && lines->text[lines->length - 1] != '\n');
}

static bool is_blank(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    }
    return true;
}

/* With fewer lines than an int counts. */
static bool check_size(size_t length, const char *path, Diag *diag) {
    if (length < INT_MAX) return true;
    diag_error(diag, (SourceLoc){path, 0}, "has %zu bytes; fewer than %d are read here", length,
               INT_MAX);
    return false;
}

static bool unpack(LinesText *lines, PackKind kind, const char *path, Diag *diag) {
    enum { PIECE = 1 << 16 };
    Unpacker *from = unpacker_create(kind, lines->map.data, lines->map.length_bytes);
    unsigned char *piece = memory_alloc(PIECE);
    const char *wrong = NULL;
    bool good = true;
    lines->unpacked = strbuf_create();
    for (size_t n = 1; n > 0 && !wrong && good;) {
        n = unpacker_read(from, piece, PIECE, &wrong);
        strbuf_put_bytes(&lines->unpacked, (const char *)piece, n);
        good = check_size(lines->unpacked.length, path, diag);
    }
    free(piece);
    unpacker_destroy(from);
    if (wrong) diag_error(diag, (SourceLoc){path, 0}, "%s", wrong);
    lines->text = lines->unpacked.text;
    lines->length = lines->unpacked.length;
    return good && !wrong;
}

/* To be closed also where this fails. */
static bool open_text(const char *path, LinesText *out, Diag *diag) {
    *out = (LinesText){0};
    if (!file_map(path, &out->map, diag)) return false;
    const PackKind kind = pack_kind_of(out->map.data, out->map.length_bytes);
    if (kind != PACK_NONE) return unpack(out, kind, path, diag);
    out->text = (const char *)out->map.data; /* NULL, of an empty file */
    out->length = out->map.length_bytes;
    return check_size(out->length, path, diag);
}

static void close_text(LinesText *lines) {
    if (lines->unpacked.text) strbuf_destroy(&lines->unpacked);
    file_unmap(&lines->map);
}

bool json_lines_each(const char *path, JsonLineFn *each, void *user, Diag *diag) {
    LinesText lines;
    bool good = open_text(path, &lines, diag);
    const char *text = lines.text, *end = lines.length ? text + lines.length : text;
    const int n_lines = good ? count_lines(&lines) : 0;
    for (int line = 1; good && text < end; line++) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((next ? next : end) - text);
        if (!is_blank(text, length)) {
            char where[512];
            snprintf(where, sizeof(where), "%s:%d", path, line);
            json_t *object = json_parse_bytes(where, text, length, diag);
            good = object && each(user, object, (SourceLoc){path, line}, n_lines);
            json_decref(object);
        }
        text = next ? next + 1 : end;
    }
    close_text(&lines);
    return good;
}
