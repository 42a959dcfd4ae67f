/* A run log (JSON Lines, runtime/metrics/run_log.h): its figures and loss curve as text, its
 * figures as JSON, or a page with its curves. */
#ifndef FRONTEND_COMMANDS_SHOW_RUN_H
#define FRONTEND_COMMANDS_SHOW_RUN_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

/* All append. The log is untrusted: false, reported with its line. */
bool show_run_text(StrBuf *out, const char *path, Diag *diag);
bool show_run_json(StrBuf *out, const char *path, Diag *diag);
bool show_run_html(StrBuf *out, const char *path, Diag *diag);

#endif
