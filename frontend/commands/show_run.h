/* A run log (JSON Lines, runtime/metrics/run_log.h) as a page with its loss curve. */
#ifndef FRONTEND_COMMANDS_SHOW_RUN_H
#define FRONTEND_COMMANDS_SHOW_RUN_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

/* Appends one self-contained HTML page. The log is untrusted: false, reported with its line. */
bool show_run_html(StrBuf *out, const char *path, Diag *diag);

#endif
