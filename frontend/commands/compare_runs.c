#include "frontend/commands/compare_runs.h"

#include "frontend/commands/run_chart.h"
#include "frontend/commands/run_figures.h"
#include "ir/base/json.h"
#include "planner/show/show_html.h"

#include <math.h>

/* Losses closer than this are one curve: what f32 sums in another order leave of some steps. */
static const double ONE_CURVE = 1e-5;

/* Of a run against the first, over the steps that both logs have. */
typedef struct RunDifference {
    int n_common;
    bool same;                   /* every loss to the last digit of the log */
    double apart_at;             /* first step whose losses differ by ONE_CURVE; NaN: none */
    double apart_a, apart_b;     /* its losses */
    double largest, largest_at;  /* relative to the first's loss */
    double reaches_at, of_steps; /* the step whose validation loss is at most the first's best one,
                                  * and what the first took; NaN: none */
} RunDifference;

/* Both logs are walked once; a step that only one has is passed over. */
static RunDifference difference_of(const RunFigures *a, const RunFigures *b) {
    const Series *x = a->curve->series, *y = b->curve->series;
    RunDifference d = {.same = true, .apart_at = NAN, .largest_at = NAN, .reaches_at = NAN};
    for (int i = 0, j = 0; i < a->curve->n_steps && j < b->curve->n_steps;) {
        double step = x[S_STEP].values[i], other = y[S_STEP].values[j];
        double loss = x[S_LOSS].values[i], theirs = y[S_LOSS].values[j];
        i += step <= other;
        j += other <= step;
        if (step != other || (!isfinite(loss) && !isfinite(theirs))) continue;
        if (!isfinite(loss) || !isfinite(theirs)) { /* one of them has lost its way */
            d.n_common++;
            d.same = false;
            if (isnan(d.apart_at)) d.apart_at = step, d.apart_a = loss, d.apart_b = theirs;
            continue;
        }
        double relative = fabs(theirs - loss) / fmax(fabs(loss), 1e-30);
        d.n_common++;
        d.same = d.same && theirs == loss;
        if (relative > d.largest) d.largest = relative, d.largest_at = step;
        if (isnan(d.apart_at) && relative > ONE_CURVE) {
            d.apart_at = step, d.apart_a = loss, d.apart_b = theirs;
        }
    }
    d.of_steps = a->best_at;
    for (int j = 0; j < b->curve->n_steps && isnan(d.reaches_at); j++) {
        if (y[S_VAL_LOSS].values[j] <= a->best_val_loss) d.reaches_at = y[S_STEP].values[j];
    }
    return d;
}

static void put_loss(StrBuf *out, double loss) {
    if (isfinite(loss))
        strbuf_printf(out, "%.6g", loss);
    else
        strbuf_put(out, "no number");
}

static void put_verdict(StrBuf *out, const RunDifference *d) {
    if (d->n_common == 0) {
        strbuf_put(out, "no step in common");
    } else if (d->same) {
        strbuf_printf(out, "the same losses in all %d common steps", d->n_common);
    } else if (isnan(d->apart_at)) {
        strbuf_printf(out, "one curve: losses of %d common steps within %.1e of each other",
                      d->n_common, d->largest);
    } else {
        strbuf_printf(out, "parts at step %.0f: ", d->apart_at);
        put_loss(out, d->apart_b);
        strbuf_put(out, ", not ");
        put_loss(out, d->apart_a);
        if (d->largest > 0)
            strbuf_printf(out, "; furthest at step %.0f, by %.3g %%", d->largest_at,
                          d->largest * 100);
    }
    if (!isfinite(d->reaches_at) || !isfinite(d->apart_at)) return;
    strbuf_printf(out, "; as good in validation after %.0f steps", d->reaches_at);
    if (d->reaches_at != d->of_steps) strbuf_printf(out, ", not %.0f", d->of_steps);
}

static void format_figure(char *text, size_t size, const RunFigures *run, int f) {
    double value = run_figure(run, f);
    snprintf(text, size, isfinite(value) ? RUN_FIGURES[f].format : "-", value);
}

static void put_text(StrBuf *out, const RunFigures *runs, int n) {
    strbuf_put(out, "run");
    for (int f = 0; f < N_RUN_FIGURES; f++)
        strbuf_printf(out, "%*s", f ? 11 : 9, RUN_FIGURES[f].title);
    strbuf_put(out, "\n");
    for (int r = 0; r < n; r++) {
        strbuf_printf(out, "%-3d", r + 1);
        for (int f = 0; f < N_RUN_FIGURES; f++) {
            char text[64];
            format_figure(text, sizeof(text), &runs[r], f);
            strbuf_printf(out, "%*s", f ? 11 : 9, text);
        }
        strbuf_put(out, "\n");
    }
    strbuf_printf(out, "\n1  %s\n", runs[0].curve->path);
    for (int r = 1; r < n; r++) {
        RunDifference d = difference_of(&runs[0], &runs[r]);
        strbuf_printf(out, "%-2d %s: ", r + 1, runs[r].curve->path);
        put_verdict(out, &d);
        strbuf_put(out, "\n");
    }
}

static void put_json(StrBuf *out, const RunFigures *runs, int n) {
    strbuf_put(out, "{\"runs\":[");
    for (int r = 0; r < n; r++) {
        strbuf_put(out, r ? ",{\"file\":" : "{\"file\":");
        json_put_text(out, runs[r].curve->path);
        run_figures_put(out, &runs[r]);
        if (r > 0) {
            RunDifference d = difference_of(&runs[0], &runs[r]);
            strbuf_printf(out, ",\"against_first\":{\"common_steps\":%d,\"same\":%s", d.n_common,
                          d.n_common && d.same ? "true" : "false");
            run_figures_put_number(out, "apart_at_step", d.apart_at);
            run_figures_put_number(out, "largest_difference", d.n_common ? d.largest : NAN);
            run_figures_put_number(out, "largest_at_step", d.largest_at);
            run_figures_put_number(out, "as_good_after_steps", d.reaches_at);
            strbuf_put(out, "}");
        }
        strbuf_put(out, "}");
    }
    strbuf_put(out, "]}\n");
}

static void put_table(StrBuf *out, const RunFigures *runs, int n) {
    strbuf_put(out, "<section><table><tr><th>run");
    for (int f = 0; f < N_RUN_FIGURES; f++) strbuf_printf(out, "<th>%s", RUN_FIGURES[f].title);
    for (int r = 0; r < n; r++) {
        strbuf_printf(out, "\n<tr><td><span class=\"hue%d\">&#9632;</span> ", r % N_HUES);
        html_put(out, runs[r].curve->path);
        for (int f = 0; f < N_RUN_FIGURES; f++) {
            char text[64];
            format_figure(text, sizeof(text), &runs[r], f);
            strbuf_printf(out, "<td>%s", text);
        }
    }
    strbuf_put(out, "</table>\n");
    for (int r = 1; r < n; r++) {
        RunDifference d = difference_of(&runs[0], &runs[r]);
        strbuf_printf(out,
                      "<p><span class=\"hue%d\">&#9632;</span> against the first: ", r % N_HUES);
        put_verdict(out, &d);
        strbuf_put(out, "</p>\n");
    }
    strbuf_put(out, "</section>\n");
}

static void put_chart(StrBuf *out, const RunFigures *runs, int n, int series, bool from_zero) {
    ChartLine lines[COMPARE_MOST_RUNS];
    char classes[COMPARE_MOST_RUNS][32];
    int n_lines = 0;
    for (int r = 0; r < n; r++) {
        const Series *shown = &runs[r].curve->series[series];
        if (shown->count == 0) continue;
        snprintf(classes[r], sizeof(classes[r]), "source hue%d", r % N_HUES);
        lines[n_lines++] = (ChartLine){runs[r].curve, shown, classes[r], series == S_VAL_LOSS,
                                       runs[r].curve->path};
    }
    if (n_lines == 0) return;
    const char *title = lines[0].series->title;
    strbuf_put(out, "<section><h2>");
    html_put(out, title);
    strbuf_put(out, "</h2>\n");
    run_chart_put(out, title, lines, n_lines, from_zero);
    strbuf_put(out, "</section>\n");
}

static void put_page(StrBuf *out, const RunFigures *runs, int n) {
    run_chart_begin_page(out, "Training runs");
    put_table(out, runs, n);
    put_chart(out, runs, n, S_LOSS, false);
    put_chart(out, runs, n, S_VAL_LOSS, false);
    put_chart(out, runs, n, S_GRAD_NORM, true);
    put_chart(out, runs, n, S_LR, true);
    put_chart(out, runs, n, S_SPEED, true);
    strbuf_put(out, "</html>\n");
}

bool compare_runs(StrBuf *out, const char *const *paths, int n, RunsForm form, Diag *diag) {
    static void (*const PUT[])(StrBuf *, const RunFigures *, int) = {
        [RUNS_TEXT] = put_text, [RUNS_JSON] = put_json, [RUNS_HTML] = put_page};
    Arena *arena = arena_create();
    RunFigures runs[COMPARE_MOST_RUNS];
    bool good = true;
    for (int r = 0; r < n && good; r++) {
        const RunCurve *curve = run_curve_read(arena, paths[r], diag);
        good = curve != NULL;
        if (curve) runs[r] = run_figures(arena, curve);
    }
    if (good) PUT[form](out, runs, n);
    arena_destroy(arena);
    return good;
}
