#include "frontend/json_lines.h"

#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/memory.h"
#include "ir/base/strbuf.h"
#include "runtime/data/parquet_rows.h"
#include "runtime/data/unpack.h"

#include <inttypes.h>
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

/* --- rows of Parquet --- */

/* Those of a group; n_rows of the file. */
static bool each_of_group(const ParquetFile *file, int group, const ParquetUse *uses, int n_rows,
                          const char *path, JsonLineFn *each, void *user, Diag *diag) {
    ParquetRows rows = {0};
    ParquetValues scratch = {0};
    int leaf = 0;
    const int64_t first = file->groups[group].first_row;
    const char *wrong = parquet_rows_read(&rows, file, group, uses, &scratch, &leaf);
    bool good = !wrong;
    if (wrong) {
        diag_error(diag, (SourceLoc){path, 0}, "Parquet file: column '%.60s' %s",
                   file->leaves[leaf].column, wrong);
    }
    for (size_t i = 0; good && i < rows.n; i++) {
        const SourceLoc loc = {path, (int)(first + (int64_t)i + 1)};
        good = each(user, rows.items[i], loc, n_rows);
    }
    parquet_rows_release(&rows);
    parquet_values_release(&scratch);
    return good;
}

static bool each_of_parquet(const LinesText *lines, const char *path, JsonLineFn *each, void *user,
                            Diag *diag) {
    Arena *arena = arena_create();
    ParquetFile file;
    bool good =
        parquet_open(&file, arena, path, (const unsigned char *)lines->text, lines->length, diag);
    const ParquetGroup *last =
        good && file.n_groups > 0 ? &file.groups[file.n_groups - 1] : &(ParquetGroup){0};
    const int64_t n_rows = last->first_row + last->n_rows;
    if (good && n_rows >= INT_MAX) {
        diag_error(diag, (SourceLoc){path, 0}, "has %" PRId64 " rows; fewer than %d are read here",
                   n_rows, INT_MAX);
        good = false;
    }
    ParquetUse *uses = good ? ARENA_ARRAY(arena, ParquetUse, file.n_leaves + 1) : NULL;
    for (int i = 0; good && i < file.n_leaves; i++) {
        const ParquetLeaf *leaf = &file.leaves[i];
        const bool reads = parquet_leaf_is_readable(leaf) && (leaf->is_text || !leaf->is_element);
        uses[i] = reads ? PARQUET_VALUES : PARQUET_LEFT_OUT;
    }
    for (int i = 0; good && i < file.n_groups; i++) {
        good = each_of_group(&file, i, uses, (int)n_rows, path, each, user, diag);
    }
    arena_destroy(arena);
    return good;
}

/* --- all --- */

static bool each_of_lines(const LinesText *lines, const char *path, JsonLineFn *each, void *user,
                          Diag *diag) {
    bool good = true;
    const char *text = lines->text, *end = lines->length ? text + lines->length : text;
    const int n_lines = count_lines(lines);
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
    return good;
}

bool json_lines_each(const char *path, JsonLineFn *each, void *user, Diag *diag) {
    LinesText lines;
    bool good = open_text(path, &lines, diag);
    if (good && parquet_is((const unsigned char *)lines.text, lines.length)) {
        good = each_of_parquet(&lines, path, each, user, diag);
    } else if (good) {
        good = each_of_lines(&lines, path, each, user, diag);
    }
    close_text(&lines);
    return good;
}
