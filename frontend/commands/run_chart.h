/* Charts of runs' logs over their steps, for pages of one run and of several. */
#ifndef FRONTEND_COMMANDS_RUN_CHART_H
#define FRONTEND_COMMANDS_RUN_CHART_H

#include "frontend/commands/run_curve.h"
#include "ir/base/strbuf.h"

/* Curves in one chart take turns with so many colours: the classes hue0, hue1, ... */
enum { N_HUES = 8 };

/* A series in a chart; its points are drawn, too, where it was measured now and then. */
typedef struct ChartLine {
    const RunCurve *curve;
    const Series *series;
    const char *class; /* "training", "validation" or "source hueN" */
    bool points;
    const char *title; /* told where one points at it; NULL: nothing is */
} ChartLine;

/* The page up to its first section: the head, and a heading. */
void run_chart_begin_page(StrBuf *out, const char *title);
/* One of the page's figures, in a <dl>; nothing where it is not finite. */
void run_chart_put_figure(StrBuf *out, const char *name, const char *format, double value);

/* Ticks and lines of one chart, all on one scale. */
void run_chart_put(StrBuf *out, const char *label, const ChartLine *lines, int n, bool from_zero);

#endif
