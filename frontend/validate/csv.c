#include "frontend/validate/csv.h"

#include "ir/base/file.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct Reader {
    Arena *arena;
    const char *path;
    Diag *diag;
    char *at; /* fields are terminated in place */
    const char *end;
    int line;
} Reader;

static bool fail(const Reader *reader, int line, const char *what) {
    diag_error(reader->diag, (SourceLoc){reader->path, line}, "%s", what);
    return false;
}

/* Length of the UTF-8 sequence at `text`, 0 if there is none (overlong forms, surrogates and what
 * lies beyond U+10FFFF are none). */
static int utf8_length(const unsigned char *text, const unsigned char *end) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int length = text[0] < 0x80             ? 1
                 : (text[0] & 0xe0) == 0xc0 ? 2
                 : (text[0] & 0xf0) == 0xe0 ? 3
                 : (text[0] & 0xf8) == 0xf0 ? 4
                                            : 0;
    if (length < 2) return length;
    if (end - text < length) return 0;
    uint32_t code = text[0] & (0xffU >> (length + 1));
    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < least[length] || code > 0x10ffff || surrogate ? 0 : length;
}

static bool check_text(const Reader *reader) {
    const unsigned char *text = (const unsigned char *)reader->at;
    const unsigned char *end = (const unsigned char *)reader->end;
    int line = 1;
    while (text < end) {
        int length = utf8_length(text, end);
        if (length == 0 || *text == 0) return fail(reader, line, "is not text in UTF-8");
        line += *text == '\n';
        text += length;
    }
    return true;
}

/* At a line end or the end of the text: moves past it. */
static bool take_line_end(Reader *reader) {
    if (reader->at == reader->end) return true;
    size_t length = reader->at[0] == '\n' ? 1
                    : reader->at[0] == '\r' && reader->at + 1 < reader->end && reader->at[1] == '\n'
                        ? 2
                        : 0;
    reader->at += length;
    reader->line += length > 0;
    return length > 0;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* A field in quotes; ends before the comma or the line's end. */
static char *take_quoted(Reader *reader, size_t *out_length) {
    int first_line = reader->line;
    char *field = ++reader->at, *to = field;
    for (;; reader->at++) {
        if (reader->at == reader->end) {
            fail(reader, first_line, "the quote that begins here does not end");
            return NULL;
        }
        if (*reader->at == '"') {
            if (reader->at + 1 == reader->end || reader->at[1] != '"') break;
            reader->at++;
        }
        reader->line += *reader->at == '\n';
        *to++ = *reader->at;
    }
    reader->at++;
    while (reader->at < reader->end && is_blank(*reader->at)) reader->at++;
    *out_length = (size_t)(to - field);
    return field;
}

static char *take_plain(Reader *reader, size_t *out_length) {
    char *field = reader->at;
    while (reader->at < reader->end && *reader->at != ',' && *reader->at != '\n') reader->at++;
    char *to = reader->at;
    if (to > field && to[-1] == '\r' && (to == reader->end || *to == '\n')) reader->at = --to;
    if (reader->at + 1 == reader->end && *reader->at == '\r') reader->at++;
    while (to > field && is_blank(to[-1])) to--;
    *out_length = (size_t)(to - field);
    return field;
}

/* One field. *out_last: it was its line's last. NULL: reported. */
static const char *take_field(Reader *reader, bool *out_last) {
    while (reader->at < reader->end && is_blank(*reader->at)) reader->at++;
    size_t length;
    bool quoted = reader->at < reader->end && *reader->at == '"';
    int line = reader->line;
    char *field = quoted ? take_quoted(reader, &length) : take_plain(reader, &length);
    if (!field) return NULL;
    *out_last = take_line_end(reader);
    if (!*out_last && *reader->at != ',') {
        fail(reader, line, "after a quoted field comes a comma or the end of the line");
        return NULL;
    }
    reader->at += !*out_last;
    field[length] = '\0'; /* what stood here has been taken */
    return field;
}

static void skip_blank_lines(Reader *reader) {
    for (char *at = reader->at; at < reader->end; at++) {
        if (!is_blank(*at) && *at != '\r' && *at != '\n') return;
        if (*at != '\n') continue;
        reader->at = at + 1;
        reader->line++;
    }
    reader->at += reader->end - reader->at; /* blanks without a line end */
}

/* The fields of one line, probably n_expected. */
static const char **take_line(Reader *reader, int n_expected, int *out_count) {
    const char **fields = ARENA_ARRAY(reader->arena, const char *, n_expected);
    int count = 0, capacity = n_expected;
    bool last = false;
    while (!last) {
        const char *field = take_field(reader, &last);
        if (!field) return NULL;
        if (count == CSV_MAX_COLUMNS) {
            fail(reader, reader->line, "more fields than a table may have columns, 256");
            return NULL;
        }
        ARENA_PUSH(reader->arena, fields, count, capacity, field);
    }
    *out_count = count;
    return fields;
}

static bool take_header(Reader *reader, CsvHeaderCheck *check, CsvTable *table) {
    skip_blank_lines(reader);
    if (reader->at == reader->end) return fail(reader, 0, "is empty");
    table->header_line = reader->line;
    table->names = take_line(reader, 32, &table->n_columns);
    if (!table->names || (check && !check(table, reader->diag))) return false;
    for (int c = 0; c < table->n_columns; c++) {
        if (csv_column(table, table->names[c]) == c) continue;
        diag_error(reader->diag, (SourceLoc){reader->path, table->header_line},
                   "two columns are named '%.60s'", table->names[c]);
        return false;
    }
    return true;
}

static bool take_rows(Reader *reader, CsvTable *table) {
    int capacity = 0;
    for (skip_blank_lines(reader); reader->at < reader->end; skip_blank_lines(reader)) {
        int n_fields, line = reader->line;
        const char **fields = take_line(reader, table->n_columns, &n_fields);
        if (!fields) return false;
        if (n_fields != table->n_columns) {
            diag_error(reader->diag, (SourceLoc){reader->path, line},
                       "%d fields, but the header names %d columns", n_fields, table->n_columns);
            return false;
        }
        if (table->n_rows == CSV_MAX_ROWS) return fail(reader, line, "more than 100000 rows");
        ARENA_PUSH(reader->arena, table->rows, table->n_rows, capacity,
                   ((CsvRow){.line = line, .fields = fields}));
    }
    return table->n_rows > 0 || fail(reader, 0, "has a header, but no rows");
}

CsvTable *csv_read(Arena *arena, const char *path, CsvHeaderCheck *check, Diag *diag) {
    size_t length;
    char *text = file_read(arena, path, CSV_LIMIT_BYTES, &length, diag);
    if (!text) return NULL;
    CsvTable *table = ARENA_NEW(arena, CsvTable);
    table->path = arena_strdup(arena, path);
    Reader reader = {.arena = arena,
                     .path = table->path,
                     .diag = diag,
                     .at = text,
                     .end = text + length,
                     .line = 1};
    if (!check_text(&reader)) return NULL;
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) reader.at += 3;
    return take_header(&reader, check, table) && take_rows(&reader, table) ? table : NULL;
}

int csv_column(const CsvTable *table, const char *name) {
    for (int c = 0; c < table->n_columns; c++) {
        if (strcmp(table->names[c], name) == 0) return c;
    }
    return -1;
}
