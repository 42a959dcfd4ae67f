#include "frontend/commands/text_columns.h"

#include "ir/base/memory.h"

#include <stdlib.h>

/* Characters of UTF-8. */
static int width_of(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void put_spaces(StrBuf *out, int n) {
    if (n > 0) strbuf_printf(out, "%*s", n, "");
}

void text_columns_put(StrBuf *out, const char *const *cells, int n_rows, int n_columns, int n_left,
                      bool open) {
    int *widest = memory_zeroed((size_t)n_columns, sizeof(int));
    for (int i = 0; i < n_rows * n_columns; i++) {
        const int width = width_of(cells[i]);
        if (width > widest[i % n_columns]) widest[i % n_columns] = width;
    }
    for (int row = 0; row < n_rows; row++) {
        for (int c = 0; c < n_columns; c++) {
            const char *cell = cells[row * n_columns + c];
            const bool left = c < n_left || (open && c == n_columns - 1);
            const int more = widest[c] - width_of(cell);
            if (c > 0) strbuf_put(out, "  ");
            if (!left) put_spaces(out, more);
            strbuf_put(out, cell);
            if (left) put_spaces(out, more);
        }
        while (out->length && out->text[out->length - 1] == ' ') out->length--;
        out->text[out->length] = '\0';
        strbuf_put(out, "\n");
    }
    free(widest);
}
