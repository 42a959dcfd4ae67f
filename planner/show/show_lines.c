#include "planner/show/show_lines.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The rest of a UTF-8 character? */
static bool continues(unsigned char c) {
    return (c & 0xc0) == 0x80;
}

static int put_bytes(StrBuf *out, const char *text, size_t n_bytes, int n_columns) {
    int n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!continues(c) && n == n_columns) break;
        n += !continues(c);
        strbuf_printf(out, "%c", c < 32 || c == 127 ? '?' : c);
    }
    return n;
}

int lines_put_name(StrBuf *out, const char *name, int n_columns) {
    if (!name) name = "?";
    return put_bytes(out, name, strlen(name), n_columns);
}

void lines_put_column(StrBuf *out, const char *name, int n_columns) {
    int n = lines_put_name(out, name, n_columns);
    strbuf_printf(out, "%*s", n_columns - n, "");
}

void lines_put_wrapped(StrBuf *out, const char *label, int indent, const char *text) {
    strbuf_printf(out, "%-*s", indent, label);
    int column = indent;
    while (*text) {
        size_t n_bytes = strcspn(text, " ");
        int length = 0;
        for (size_t i = 0; i < n_bytes; i++) length += !continues((unsigned char)text[i]);
        bool first = column == indent;
        if (!first && column + 1 + length > LINE_COLUMNS) {
            strbuf_printf(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        if (!first) strbuf_put(out, " ");
        column += put_bytes(out, text, n_bytes, LINE_COLUMNS - indent) + !first;
        text += n_bytes;
        while (*text == ' ') text++;
    }
    strbuf_put(out, "\n");
}
