/* Finished runs that a scaling law is fitted to: logs of train, and tables. */
#ifndef FRONTEND_COMMANDS_FIT_RUNS_H
#define FRONTEND_COMMANDS_FIT_RUNS_H

#include "ir/base/arena.h"
#include "planner/show/show_fit.h"

/* Of a log (.jsonl): the parameters (with experts: those that a token meets) and tokens that it
 * says, and its last validation loss, or, where a log has none, for all logs the mean training loss
 * over the last tenth of the steps. Of a table (.csv, with columns parameters, tokens, loss and
 * perhaps name): each row. Files are untrusted. Sets all but report->fit; false: reported. */
bool fit_runs_read(Arena *arena, const char *const *paths, int n_paths, FitReport *report,
                   Diag *diag);

#endif
