/* The figures of a run: what is told of it in a line. */
#ifndef FRONTEND_COMMANDS_RUN_FIGURES_H
#define FRONTEND_COMMANDS_RUN_FIGURES_H

#include "frontend/commands/run_curve.h"
#include "ir/base/strbuf.h"

/* Of one run; NaN: the log has none. */
typedef struct RunFigures {
    const RunCurve *curve;
    double last_step, loss, end_loss;        /* end_loss: mean over the last tenth of its steps */
    double val_loss, best_val_loss, best_at; /* best_at: its step */
    double tokens_per_s, seconds;            /* tokens_per_s: the median */
} RunFigures;

RunFigures run_figures(Arena *arena, const RunCurve *curve);

/* Columns of a table, and keys of JSON. */
enum { N_RUN_FIGURES = 8 };
extern const struct RunFigure { const char *key, *title, *format; } RUN_FIGURES[N_RUN_FIGURES];
double run_figure(const RunFigures *run, int f);
/* ,"last_step":120,"loss":2.8,... */
void run_figures_put(StrBuf *out, const RunFigures *run);
/* ,"key":0.5, or null. */
void run_figures_put_number(StrBuf *out, const char *key, double value);

/* Of what a series has that is finite; NaN: nothing. */
double series_median(Arena *arena, const RunCurve *curve, const Series *series);

#endif
