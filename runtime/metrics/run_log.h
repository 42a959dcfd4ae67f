/* The run log: one JSON object per line and step (JSON Lines), for plots and for scripts.
 *
 *     {"step":1,"loss":5.52,"grad_norm":2.1,"lr":6e-06,"tokens_per_s":48211,"seconds":0.0212}
 *
 * "samples" is how many the run has taken with this step's, those that it left out counted. With a
 * loss scale there is "loss_scale", that of the next step's gradients, and "skipped": true
 * where gradients were not finite and nothing was updated; "spike": true where it was their norm.
 * "val_loss_ema" is beside "val_loss" where a plan keeps averages of weights. "val_loss" is there
 * when the step measured one, and "val_bits_per_byte" when it is known, too; of several sources
 * there is one object more, "val_losses", with each one's. "labels" is how many of the batch's
 * labels count, where not all do. The file's first line has "parameters", "active_parameters" where
 * a token does not meet all of them, and "row_tokens", how many a sample has. "stragglers" is an
 * object of what was found of ranks' work, with the last step of each window
 * (frontend/commands/straggler_text.h). "norms" is one of parameters: of each, by name, the norms
 * of its weights, its gradient and its change, [4.1,0.02,0.0013]. NaN and infinities are written as
 * null. Each line is in the file when its call returns, so it can be followed while training runs.
 */
#ifndef RUNTIME_METRICS_RUN_LOG_H
#define RUNTIME_METRICS_RUN_LOG_H

#include "ir/base/diag.h"
#include "runtime/metrics/step_metrics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct RunLog RunLog;

/* Creates or empties the file; anything that is not a regular file is refused, and a file that
 * another run is writing. Reports, NULL. */
RunLog *run_log_open(const char *path, Diag *diag);
/* For a run that goes on after `step`: keeps the lines up to it, removes those after it, which will
 * be written again. A file that is not there is created; one that is no run log is refused. */
RunLog *run_log_continue(const char *path, int64_t step, Diag *diag);
/* Does not allocate unless it reports or the step has objects of stragglers or norms. */
bool run_log_write(RunLog *log, const StepMetrics *metrics, Diag *diag);
/* A line of another kind, with its end of line, which begins {"step":N, as all do. */
bool run_log_write_text(RunLog *log, const char *text, size_t length, Diag *diag);
void run_log_close(RunLog *log);

/* One line with its end of line, at most size - 1 characters; returns their number.
 * RUN_LOG_LINE_BYTES suffice. */
enum {
    RUN_LOG_SOURCES_BYTES = 3584,
    RUN_LOG_VALUES_BYTES = 3072,
    RUN_LOG_LINE_BYTES = 640 + RUN_LOG_SOURCES_BYTES + RUN_LOG_VALUES_BYTES
};
int run_log_format(char *text, size_t size, const StepMetrics *metrics);

#endif
