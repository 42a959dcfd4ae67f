/* Lines of text for people: at most 100 columns, untrusted names made harmless. Internal to
 * show_*.c and compare*.c. A column is a character, however many bytes it has. */
#ifndef PLANNER_SHOW_SHOW_LINES_H
#define PLANNER_SHOW_SHOW_LINES_H

#include "ir/base/strbuf.h"

enum { LINE_COLUMNS = 100 };

/* At most n_columns of it; control characters become '?', NULL too. Returns how many columns. */
int lines_put_name(StrBuf *out, const char *name, int n_columns);
/* The same, filled up with spaces. */
void lines_put_column(StrBuf *out, const char *name, int n_columns);
/* `label`, then `text` from column `indent` on, broken between words. */
void lines_put_wrapped(StrBuf *out, const char *label, int indent, const char *text);

#endif
