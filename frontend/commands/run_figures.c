#include "frontend/commands/run_figures.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double series_median(Arena *arena, const RunCurve *curve, const Series *series) {
    double *kept = ARENA_ARRAY(arena, double, curve->n_steps);
    int n = 0;
    for (int i = 0; i < curve->n_steps; i++) {
        if (isfinite(series->values[i])) kept[n++] = series->values[i];
    }
    if (n == 0) return NAN;
    qsort(kept, (size_t)n, sizeof(*kept), compare_doubles);
    return n % 2 ? kept[n / 2] : (kept[n / 2 - 1] + kept[n / 2]) / 2;
}

static double mean_of_end(const RunCurve *curve, const Series *series) {
    double sum = 0;
    int n = 0, first = curve->n_steps - (curve->n_steps + 9) / 10;
    for (int i = first; i < curve->n_steps; i++) {
        if (!isfinite(series->values[i])) continue;
        sum += series->values[i];
        n++;
    }
    return n ? sum / n : NAN;
}

RunFigures run_figures(Arena *arena, const RunCurve *curve) {
    const Series *series = curve->series, *val = &series[S_VAL_LOSS];
    RunFigures f = {.curve = curve,
                    .last_step = series[S_STEP].last,
                    .loss = series[S_LOSS].last,
                    .end_loss = mean_of_end(curve, &series[S_LOSS]),
                    .val_loss = val->last,
                    .best_val_loss = NAN,
                    .best_at = NAN,
                    .tokens_per_s = series_median(arena, curve, &series[S_SPEED]),
                    .seconds = run_curve_seconds(curve)};
    for (int i = 0; i < curve->n_steps; i++) {
        if (!isfinite(val->values[i]) || val->values[i] >= f.best_val_loss) continue;
        f.best_val_loss = val->values[i];
        f.best_at = series[S_STEP].values[i];
    }
    return f;
}

const struct RunFigure RUN_FIGURES[N_RUN_FIGURES] = {
    {"last_step", "step", "%.0f"},        {"loss", "loss", "%.4f"},
    {"end_loss", "last tenth", "%.4f"},   {"val_loss", "val loss", "%.4f"},
    {"best_val_loss", "best", "%.4f"},    {"best_val_step", "at step", "%.0f"},
    {"tokens_per_s", "tokens/s", "%.0f"}, {"seconds", "seconds", "%.1f"},
};

double run_figure(const RunFigures *run, int f) {
    const double values[N_RUN_FIGURES] = {run->last_step,    run->loss,          run->end_loss,
                                          run->val_loss,     run->best_val_loss, run->best_at,
                                          run->tokens_per_s, run->seconds};
    return values[f];
}

void run_figures_put_number(StrBuf *out, const char *key, double value) {
    strbuf_printf(out, ",\"%s\":", key);
    if (isfinite(value)) {
        strbuf_printf(out, "%.9g", value);
    } else {
        strbuf_put(out, "null");
    }
}

void run_figures_put(StrBuf *out, const RunFigures *run) {
    for (int f = 0; f < N_RUN_FIGURES; f++) {
        run_figures_put_number(out, RUN_FIGURES[f].key, run_figure(run, f));
    }
}
