/* The HTML page of a fitted law: runs and the best that the law says of a budget, residuals, the
 * table of budgets. */
#include "planner/show/show_fit.h"
#include "planner/show/show_points.h"

#include <math.h>

enum { LINE_POINTS = 60 };

static double flops_of(const FitRun *run) {
    return LAW_FLOPS * run->parameters * run->tokens;
}

static const char *flops_text(double flops, char *text) {
    snprintf(text, UNIT_TEXT, "%.0e", flops);
    return text;
}

static const char *run_title(Arena *arena, const FitRun *run, double residual) {
    char a[UNIT_TEXT], b[UNIT_TEXT];
    return arena_printf(arena, "%s\n%s parameters, %s tokens\nloss %.4f; the law: %.4f (%+.2f %%)",
                        run->name, unit_count(run->parameters, a), unit_count(run->tokens, b),
                        run->loss, run->loss * (1 + residual), 100 * residual);
}

static void put_plots(StrBuf *out, Arena *arena, const FitReport *report,
                      const FitBudget *budgets) {
    const ScalingLaw *law = &report->fit->law;
    PlotPoint *runs = ARENA_ARRAY(arena, PlotPoint, report->n_runs + FIT_BUDGETS);
    PlotPoint *off = ARENA_ARRAY(arena, PlotPoint, report->n_runs);
    PlotPoint best[LINE_POINTS], zero[2];
    double least = INFINITY, most = budgets[FIT_BUDGETS - 1].flops, last = budgets[0].flops;
    for (int i = 0; i < report->n_runs; i++) {
        const FitRun *run = &report->runs[i];
        double residual = report->fit->residuals[i];
        const char *title = run_title(arena, run, residual);
        runs[i] = (PlotPoint){.x = flops_of(run), .y = run->loss, .title = title};
        off[i] = (PlotPoint){.x = flops_of(run), .y = 100 * residual, .title = title};
        least = fmin(least, flops_of(run));
    }
    for (int b = 0; b < FIT_BUDGETS; b++) {
        const LawOptimum *of = &budgets[b].best;
        char n[UNIT_TEXT], d[UNIT_TEXT];
        const char *title = arena_printf(
            arena, "best of %.2e FLOPs\n%s parameters, %s tokens\nloss %.4f", budgets[b].flops,
            unit_count(of->parameters, n), unit_count(of->tokens, d), of->loss);
        runs[report->n_runs + b] =
            (PlotPoint){.x = budgets[b].flops, .y = of->loss, .title = title, .hollow = true};
    }
    for (int i = 0; i < LINE_POINTS; i++) {
        double flops = least * pow(most / least, (double)i / (LINE_POINTS - 1));
        best[i] = (PlotPoint){.x = flops, .y = law_optimum(&law->terms, flops).loss};
    }
    zero[0] = (PlotPoint){.x = least}, zero[1] = (PlotPoint){.x = last};
    PlotLine line = {.n = LINE_POINTS, .points = best}, none = {2, zero, true};
    html_put_plot(out, &(Plot){"runs", "Runs, and the best of a budget",
                               "Loss in nats a token against FLOPs, 6 N D. The line: what the law "
                               "says of the best split of them; hollow: beyond the runs.",
                               flops_text, "%.3g", report->n_runs + FIT_BUDGETS, 1, runs, &line});
    html_put_plot(out,
                  &(Plot){"residuals", "Residuals", "How far, in %, the law is above a run's loss.",
                          flops_text, "%.3g", report->n_runs, 1, off, &none});
}

static void put_cell(StrBuf *out, double value, Interval of) {
    char a[UNIT_TEXT], b[UNIT_TEXT];
    strbuf_printf(out, "<td>%s", unit_count(value, a));
    if (isfinite(of.low)) {
        strbuf_printf(out, " <small>%s to %s</small>", unit_count(of.low, a),
                      unit_count(of.high, b));
    }
    strbuf_put(out, "</td>");
}

static void put_table(StrBuf *out, const FitReport *report, const FitBudget *budgets) {
    html_open_section(out, "table", "The best of so many FLOPs",
                      "The first row is what the largest run took. Small: 80 % of the fits on runs "
                      "that were drawn again.");
    strbuf_put(out, "<table><tr><th>FLOPs</th><th>Parameters</th><th>Tokens</th><th>Tokens a "
                    "parameter</th><th>Loss</th></tr>\n");
    for (int b = 0; b < FIT_BUDGETS; b++) {
        const FitBudget *of = &budgets[b];
        strbuf_printf(out, "<tr><td>%.2e</td>", of->flops);
        put_cell(out, of->best.parameters, of->parameters);
        put_cell(out, of->best.tokens, of->tokens);
        strbuf_printf(out, "<td>%.3g</td><td>%.4f", of->best.tokens / of->best.parameters,
                      of->best.loss);
        if (isfinite(of->loss.low)) {
            strbuf_printf(out, " <small>%.3f to %.3f</small>", of->loss.low, of->loss.high);
        }
        strbuf_put(out, "</td></tr>\n");
    }
    strbuf_put(out, "</table>");
    for (int i = 0; i < report->n_warnings; i++) {
        strbuf_put(out, "<p class=\"note\">");
        html_put(out, report->warnings[i]);
        strbuf_put(out, "</p>");
    }
    html_close_section(out);
}

void show_fit_html(StrBuf *out, const FitReport *report) {
    Arena *arena = arena_create();
    FitBudget budgets[FIT_BUDGETS];
    char text[LAW_TEXT];
    fit_budgets(report, budgets);
    html_open_page(out, "A scaling law", "of runs", 0, POINTS_STYLE);
    strbuf_printf(out,
                  "<header><h1>A scaling law of %d runs</h1><p class=\"sub\">%s, nats a token · "
                  "residuals %.2f %% in the median, %.2f %% at most</p></header>\n<div "
                  "class=\"grids\">\n",
                  report->n_runs, law_text(&report->fit->law.terms, text),
                  100 * report->fit->median_residual, 100 * report->fit->worst_residual);
    put_plots(out, arena, report, budgets);
    strbuf_put(out, "</div>\n");
    put_table(out, report, budgets);
    strbuf_put(out, "<footer>The law holds for the data, vocabulary and recipe of these runs."
                    "</footer></main>\n</body></html>\n");
    arena_destroy(arena);
}
