/* The line that tells a person how training goes.
 *
 *     step 120/2000  loss 3.4021  grad norm 0.87  lr 2.94e-04  48.1k tokens/s  3m12s left
 *
 * On a terminal one line is rewritten, at most 10 times a second. Elsewhere (a file, a pipe) whole
 * lines come at most every 2 seconds. The last step is always shown, and so is every step with a
 * validation loss. Updates do not allocate.
 */
#ifndef RUNTIME_METRICS_PROGRESS_H
#define RUNTIME_METRICS_PROGRESS_H

#include "runtime/metrics/step_metrics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { PROGRESS_VALUES = 64 }; /* single numbers of a step that a line has, at most */

typedef enum ProgressMode {
    PROGRESS_AUTO, /* terminal or lines, by what the stream is */
    PROGRESS_TERMINAL,
    PROGRESS_LINES,
    PROGRESS_QUIET
} ProgressMode;

/* Plain data; only progress.c touches it. */
typedef struct Progress {
    FILE *stream;
    ProgressMode mode;
    int64_t n_steps;
    int64_t first_step; /* the first one seen; the time left is judged from its end on */
    double first_s, shown_s;
    int64_t shown_step;
    int shown_width;
    StepMetrics last; /* with values of its own: what came with an update is gone by now */
    StepValue values[PROGRESS_VALUES];
} Progress;

/* stream: stderr but for tests. n_steps: the last step's number. */
Progress progress_start(FILE *stream, int64_t n_steps, ProgressMode mode);
/* After every step. */
void progress_update(Progress *progress, const StepMetrics *metrics);
/* Shows the last update if it is not on screen and ends the line. Also after an error, before its
 * message. May be called again. */
void progress_finish(Progress *progress);

/* The line itself, without an end of line; seconds_left < 0: unknown. At most size - 1 characters;
 * returns their number. */
int progress_format(char *text, size_t size, const StepMetrics *metrics, int64_t n_steps,
                    double seconds_left);

#endif
