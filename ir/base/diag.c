#include "ir/base/diag.h"

#include "ir/base/strbuf.h"

#include <stdarg.h>
#include <stdlib.h>

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

static void add_location(Diag *diag, SourceLoc loc) {
    if (loc.file && loc.line > 0) {
        strbuf_printf(&diag->text, "%s:%d: ", loc.file, loc.line);
    } else if (loc.file) {
        strbuf_printf(&diag->text, "%s: ", loc.file);
    }
}

void diag_error(Diag *diag, SourceLoc loc, const char *format, ...) {
    va_list args;
    diag->n_errors++;
    add_location(diag, loc);
    va_start(args, format);
    strbuf_vprintf(&diag->text, format, args);
    va_end(args);
    strbuf_put(&diag->text, "\n");
}

void diag_note(Diag *diag, SourceLoc loc, const char *format, ...) {
    va_list args;
    strbuf_put(&diag->text, "  note: ");
    add_location(diag, loc);
    va_start(args, format);
    strbuf_vprintf(&diag->text, format, args);
    va_end(args);
    strbuf_put(&diag->text, "\n");
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
