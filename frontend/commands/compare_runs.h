/* Run logs beside each other: figures of each, where their losses part, their curves. */
#ifndef FRONTEND_COMMANDS_COMPARE_RUNS_H
#define FRONTEND_COMMANDS_COMPARE_RUNS_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

enum { COMPARE_MOST_RUNS = 16 };

typedef enum RunsForm { RUNS_TEXT, RUNS_JSON, RUNS_HTML } RunsForm;

/* Appends the comparison of logs paths[0..n), each against the first; 2 <= n <= COMPARE_MOST_RUNS.
 * Logs are untrusted: false, reported with the line. */
bool compare_runs(StrBuf *out, const char *const *paths, int n, RunsForm form, Diag *diag);

#endif
