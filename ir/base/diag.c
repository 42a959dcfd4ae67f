#include "ir/base/diag.h"

#include "ir/base/strbuf.h"
#include "ir/base/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct Diag {
    StrBuf text;
    int n_errors;
};

Diag *diag_create(void) {
    Diag *diag = calloc(1, sizeof(*diag));
    if (!diag) BUG("out of memory");
    diag->text = strbuf_create();
    return diag;
}

void diag_destroy(Diag *diag) {
    if (!diag) return;
    strbuf_destroy(&diag->text);
    free(diag);
}

static bool is_within_character(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Of what is from `start` on the first and the last bytes, if it is long: a name of a megabyte must
 * not hide what is wrong with it. */
static void shorten(StrBuf *text, size_t start) {
    enum { FIRST = 3000, LAST = 900 };
    static const char BETWEEN[] = " ... ";
    if (text->length - start <= FIRST + LAST + sizeof(BETWEEN)) return;
    size_t to = start + FIRST, from = text->length - LAST;
    for (int i = 0; i < 3 && is_within_character(text->text[to]); i++) to--;
    for (int i = 0; i < 3 && is_within_character(text->text[from]); i++) from++;
    memcpy(text->text + to, BETWEEN, sizeof(BETWEEN) - 1);
    to += sizeof(BETWEEN) - 1;
    memmove(text->text + to, text->text + from, text->length + 1 - from);
    text->length = to + text->length - from;
}

static void add_location(Diag *diag, SourceLoc loc) {
    if (loc.file && loc.line > 0) {
        strbuf_printf(&diag->text, "%s:%d: ", loc.file, loc.line);
    } else if (loc.file) {
        strbuf_printf(&diag->text, "%s: ", loc.file);
    }
}

static void add_line(Diag *diag, SourceLoc loc, const char *format, va_list args) {
    const size_t start = diag->text.length;
    add_location(diag, loc);
    strbuf_vprintf(&diag->text, format, args);
    shorten(&diag->text, start);
    utf8_keep_printable(diag->text.text + start); /* what others wrote is in it; and it is a line */
    strbuf_put(&diag->text, "\n");
}

void diag_error(Diag *diag, SourceLoc loc, const char *format, ...) {
    va_list args;
    diag->n_errors++;
    va_start(args, format);
    add_line(diag, loc, format, args);
    va_end(args);
}

void diag_note(Diag *diag, SourceLoc loc, const char *format, ...) {
    va_list args;
    strbuf_put(&diag->text, "  note: ");
    va_start(args, format);
    add_line(diag, loc, format, args);
    va_end(args);
}

void diag_append(Diag *diag, const Diag *from) {
    diag->n_errors += from->n_errors;
    strbuf_put(&diag->text, diag_text(from));
}

int diag_error_count(const Diag *diag) {
    return diag->n_errors;
}

const char *diag_text(const Diag *diag) {
    return diag->text.text;
}

void diag_print(const Diag *diag, FILE *stream) {
    fputs(diag->text.text, stream);
}

void bug_abort(const char *file, int line, const char *format, ...) {
    va_list args;
    fprintf(stderr, "perilune: internal error at %s:%d: ", file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}
