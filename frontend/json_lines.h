/* Files of JSON lines, packed (.gz, .zst) or not: an object a line, blank lines between them as one
 * likes. Or rows of Parquet, as far as parquet_rows.h makes objects of their columns; others are
 * left out. A row's number is a line's then. */
#ifndef FRONTEND_JSON_LINES_H
#define FRONTEND_JSON_LINES_H

#include "ir/base/diag.h"

#include <jansson.h>

/* One line of n_lines; the object goes after the call unless json_incref keeps it. False: reported
 * at `loc`, and no more lines are read. */
typedef bool JsonLineFn(void *user, json_t *object, SourceLoc loc, int n_lines);

/* False, reported: the file cannot be read, a line is no JSON, or `each` said so. `path` outlives
 * what is reported. */
bool json_lines_each(const char *path, JsonLineFn *each, void *user, Diag *diag);

#endif
