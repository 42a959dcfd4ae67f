/* A plot of points and lines over a logarithmic axis, for pages: hovering a point tells what it is.
 * Internal to show_*.c. */
#ifndef PLANNER_SHOW_SHOW_POINTS_H
#define PLANNER_SHOW_SHOW_POINTS_H

#include "planner/show/show_html.h"

/* Styles of a plot, for html_open_page; show_scale_html.c draws with them, too. */
extern const char POINTS_STYLE[];

typedef struct PlotPoint {
    double x, y;       /* x > 0 */
    const char *title; /* escaped here; NULL in lines */
    bool hollow, best;
} PlotPoint;

/* Points joined in their order. */
typedef struct PlotLine {
    int n;
    const PlotPoint *points;
    bool dashed;
} PlotLine;

typedef struct Plot {
    const char *id, *title, *lead;               /* trusted literals */
    const char *(*x_text)(double x, char *text); /* text: UNIT_TEXT */
    const char *y_format;                        /* of printf, of one double */
    int n_points, n_lines;
    const PlotPoint *points;
    const PlotLine *lines;
} Plot;

/* A section with the plot; nothing where there are no points. y is linear. */
void html_put_plot(StrBuf *out, const Plot *plot);

#endif
