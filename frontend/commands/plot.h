/* A curve as text: braille dots where the terminal's characters are UTF-8, else stars. */
#ifndef FRONTEND_COMMANDS_PLOT_H
#define FRONTEND_COMMANDS_PLOT_H

#include "ir/base/strbuf.h"

#include <stdbool.h>

/* Does the environment (LC_ALL, LC_CTYPE, LANG) say so? */
bool plot_is_utf8(void);

/* Values y[n] at ascending x[n], those that are finite: means of neighbours, in 64 by 12 characters
 * beside two labels of y, above two of x. The first few are cut off at the top where they are far
 * above the others, as a run's first losses are. Nothing where fewer than two are finite. */
void plot_put(StrBuf *out, const double *x, const double *y, int n, bool utf8);

#endif
