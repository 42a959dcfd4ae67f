#include "frontend/progress_line.h"

#include "ir/base/clock.h"

#include <stdio.h>
#include <unistd.h>

ProgressLine progress_line_start(const char *done) {
    return (ProgressLine){.done = done, .start = clock_now(), .terminal = isatty(STDERR_FILENO)};
}

void progress_line_show(void *user, int n_done, int n_all, const char *what) {
    ProgressLine *line = user;
    double time = clock_now(), elapsed = time - line->start;
    if (elapsed < 2 || n_done == 0 || time - line->shown < (line->terminal ? 0.1 : 5)) return;
    double rate = n_done / elapsed;
    char all[16] = "", left[32] = "";
    if (n_all > 0) {
        snprintf(all, sizeof(all), "/%d", n_all);
        snprintf(left, sizeof(left), "%.0f s left  ", (n_all - n_done) / rate);
    }
    fprintf(stderr, "%s%d%s %s  %.*f/s  %s%s%s", line->terminal ? "\r\033[K" : "", n_done, all,
            line->done, rate < 10, rate, left, what, line->terminal ? "" : "\n");
    fflush(stderr);
    line->shown = time;
    line->written = true;
}

double progress_line_end(const ProgressLine *line) {
    if (line->written && line->terminal) fprintf(stderr, "\r\033[K");
    return clock_now() - line->start;
}
