/* The line on stderr that tells how far some measuring is: after 2 s, ten times a second on a
 * terminal, else every 5 s. */
#ifndef FRONTEND_PROGRESS_LINE_H
#define FRONTEND_PROGRESS_LINE_H

#include <stdbool.h>

typedef struct ProgressLine {
    const char *done; /* "measured" */
    double start, shown;
    bool terminal, written;
} ProgressLine;

ProgressLine progress_line_start(const char *done);
/* n_all 0: not known. `user` is a ProgressLine: fits the progress callbacks of runtime/. */
void progress_line_show(void *user, int n_done, int n_all, const char *what);
/* Clears the line; seconds since it was started. */
double progress_line_end(const ProgressLine *line);

#endif
