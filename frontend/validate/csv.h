/* CSV: a table with a header, read whole from a file that is not trusted (RFC 4180).
 *
 * Fields are separated by commas; a field in double quotes may hold commas, line ends and quotes
 * (doubled). Lines end in LF or CRLF, a byte order mark is skipped, and so are lines without
 * anything. Every row has as many fields as the header, whose names differ. The text is UTF-8
 * without zero bytes. White space around a field without quotes is not part of it.
 */
#ifndef FRONTEND_VALIDATE_CSV_H
#define FRONTEND_VALIDATE_CSV_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stddef.h>

enum { CSV_LIMIT_BYTES = 16 << 20, CSV_MAX_COLUMNS = 256, CSV_MAX_ROWS = 100000 };

typedef struct CsvRow {
    int line; /* where it begins, from 1 */
    const char **fields;
} CsvRow;

typedef struct CsvTable {
    const char *path;
    int header_line, n_columns, n_rows;
    const char **names; /* [n_columns] */
    CsvRow *rows;
} CsvTable;

/* Is this the header of such a table as is wanted? Asked before any row is looked at, so that a
 * file of another kind is called one. False: reported. */
typedef bool CsvHeaderCheck(const CsvTable *header, Diag *diag);

/* Everything is owned by `arena`. `check` may be NULL. NULL: reported with the line. */
CsvTable *csv_read(Arena *arena, const char *path, CsvHeaderCheck *check, Diag *diag);

/* Index of a column, or -1. */
int csv_column(const CsvTable *table, const char *name);

#endif
