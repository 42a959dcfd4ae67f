/* Tables of text whose columns are as wide as what is in them. */
#ifndef FRONTEND_COMMANDS_TEXT_COLUMNS_H
#define FRONTEND_COMMANDS_TEXT_COLUMNS_H

#include "ir/base/strbuf.h"

#include <stdbool.h>

/* cells[n_rows][n_columns], the first row with the names; the first n_left columns are flush left,
 * the others right, but for the last one if it is `open`: flush left, of any width. */
void text_columns_put(StrBuf *out, const char *const *cells, int n_rows, int n_columns, int n_left,
                      bool open);

#endif
