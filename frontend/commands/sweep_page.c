/* The page of a sweep: its table, all curves of losses, and the last losses against each setting.
 */
#include "frontend/commands/run_chart.h"
#include "frontend/commands/sweep_report.h"
#include "planner/show/show_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 64, TOP = 12, WIDTH = 860, HEIGHT = 220, BOTTOM = 26, MOST_LABELS = 12, TICKS = 4 };

/* The values that a setting takes, in order: of numbers theirs, else as runs have them. */
typedef struct Scale {
    int n;
    const char **texts; /* [n] */
    double *at;         /* [n]: from 0 to 1 */
    bool is_log;
} Scale;

typedef struct ScaleValue {
    const char *text;
    double number;
} ScaleValue;

static int compare_values(const void *x, const void *y) {
    const ScaleValue *a = x, *b = y;
    return (a->number > b->number) - (a->number < b->number);
}

/* Numbers are on a logarithmic axis where their ratios are more alike than their differences. */
static bool is_log_spaced(const ScaleValue *values, int n) {
    if (n < 2 || !(values[0].number > 0)) return false;
    const double most = values[n - 1].number, least = values[0].number;
    if (n == 2) return most / least >= 4;
    double linear = 0, ratio = 0; /* the largest gap, as a share of all */
    for (int i = 1; i < n; i++) {
        linear = fmax(linear, (values[i].number - values[i - 1].number) / (most - least));
        ratio = fmax(ratio, log(values[i].number / values[i - 1].number) / log(most / least));
    }
    return ratio < linear;
}

static Scale scale_of(Arena *arena, const SweepReport *report, int key) {
    const Sweep *sweep = report->sweep;
    ScaleValue *values = ARENA_ARRAY(arena, ScaleValue, sweep->n_runs);
    Scale scale = {0};
    bool numbers = true;
    for (int r = 0; r < sweep->n_runs; r++) {
        const char *text = sweep->runs[r].settings[key];
        int i = 0;
        while (text && i < scale.n && strcmp(values[i].text, text) != 0) i++;
        if (!text || i < scale.n) continue;
        char *end;
        const double number = strtod(text, &end);
        numbers = numbers && end > text && !*end && isfinite(number);
        values[scale.n++] = (ScaleValue){text, number};
    }
    if (numbers && scale.n) qsort(values, (size_t)scale.n, sizeof(ScaleValue), compare_values);
    scale.is_log = numbers && is_log_spaced(values, scale.n);
    scale.texts = ARENA_ARRAY(arena, const char *, scale.n + 1);
    scale.at = ARENA_ARRAY(arena, double, scale.n + 1);
    for (int i = 0; i < scale.n; i++) {
        const double least = values[0].number, most = values[scale.n - 1].number;
        scale.texts[i] = values[i].text;
        scale.at[i] = scale.n == 1                ? 0.5
                      : !numbers || most == least ? (double)i / (scale.n - 1)
                      : scale.is_log ? log(values[i].number / least) / log(most / least)
                                     : (values[i].number - least) / (most - least);
    }
    return scale;
}

/* -1: the run does not say it. */
static int place_of(const Scale *scale, const char *text) {
    for (int i = 0; text && i < scale->n; i++) {
        if (strcmp(scale->texts[i], text) == 0) return i;
    }
    return -1;
}

/* --- the table --- */

static const char STYLE[] =
    "<style>\n"
    "th{cursor:pointer;white-space:nowrap}th:hover{color:var(--ink)}"
    "th[data-up='1']::after{content:' \\25b4'}th[data-up='0']::after{content:' \\25be'}"
    "td:last-child,th:last-child{text-align:left;color:var(--dim)}td:first-child{min-width:4em}"
    "dd,.legend{overflow-wrap:anywhere}tr.best td{font-weight:600}tbody "
    "tr:hover{background:var(--page)}"
    ".legend span{margin-right:14px;white-space:nowrap}.lead{color:var(--dim);margin:0 0 10px}"
    "polyline.run{stroke:currentColor;stroke-width:1.5}polyline.run:hover{stroke-width:4}"
    "circle.run{fill:currentColor}polyline.best{stroke:var(--dim);stroke-dasharray:4 4}\n";

/* Numbers as numbers, others as texts; what is empty comes last. */
static const char SCRIPT[] =
    "<script>\n"
    "document.querySelectorAll('th').forEach(th=>th.onclick=()=>{\n"
    "const i=th.cellIndex,table=th.closest('table'),body=table.tBodies[0],"
    "up=th.dataset.up!=='1';\n"
    "table.querySelectorAll('th').forEach(o=>delete o.dataset.up);th.dataset.up=up?'1':'0';\n"
    "const key=r=>{const t=r.cells[i].textContent.trim();return t===''||t==='-'?null:"
    "isNaN(t)?t:+t};\n"
    "[...body.rows].sort((a,b)=>{const x=key(a),y=key(b);if(x===null||y===null)"
    "return (x===null)-(y===null);const o=typeof x===typeof y?(x<y?-1:x>y?1:0):"
    "typeof x==='number'?-1:1;return up?o:-o}).forEach(r=>body.append(r))});\n"
    "</script>\n";

/* From blue over green to red, over the values' order. */
static void put_colours(StrBuf *out, const Scale *scale) {
    static const double HUES[] = {222, 190, 140, 42, 5, 5};
    for (int i = 0; i < scale->n; i++) {
        const double at = scale->n > 1 ? 4.0 * i / (scale->n - 1) : 0;
        const int below = (int)at;
        const double hue = HUES[below] + (at - below) * (HUES[below + 1] - HUES[below]);
        strbuf_printf(out, ".v%d{color:hsl(%.0f,75%%,%.0f%%)}", i, hue,
                      hue > 30 && hue < 200 ? 42.0 : 54.0);
    }
    strbuf_put(out, "\n.v{color:var(--dim)}</style>\n");
}

static void put_number(StrBuf *out, const char *format, double value) {
    char text[64];
    snprintf(text, sizeof(text), fabs(value) < 1e7 ? format : "%.4g", value);
    strbuf_printf(out, "<td>%s", isfinite(value) ? text : "-");
}

static void put_square(StrBuf *out, const SweepRun *run, int key, const Scale *scale) {
    const int place = key < 0 ? -1 : place_of(scale, run->settings[key]);
    if (place >= 0) {
        strbuf_printf(out, "<span class=v%d>&#9632;</span> ", place);
    } else {
        strbuf_put(out, "<span class=v>&#9632;</span> ");
    }
}

static void put_table(StrBuf *out, Arena *arena, const SweepReport *report, int key,
                      const Scale *colours) {
    const Sweep *sweep = report->sweep;
    strbuf_put(out, "<section><table><thead><tr><th>run");
    for (int k = 0; k < sweep->n_keys; k++) {
        strbuf_put(out, "<th>");
        html_put(out, sweep->keys[k]);
    }
    strbuf_put(out, "<th>step<th>loss");
    if (report->has_val) strbuf_put(out, "<th>val loss");
    if (sweep->by) {
        strbuf_put(out, "<th>");
        html_put(out, sweep->by);
    }
    strbuf_put(out, "<th>tokens/s<th>seconds<th></thead><tbody>");
    for (int i = 0; i < sweep->n_runs; i++) {
        const SweepRow *row = &report->rows[i];
        const RunFigures *f = &row->figures;
        const bool there = row->has_log, best = i == 0 && row->state == SWEEP_DONE;
        strbuf_printf(out, "\n<tr%s><td>", best ? " class=best" : "");
        put_square(out, row->run, key, colours);
        html_put(out, row->run->name);
        for (int k = 0; k < sweep->n_keys; k++) {
            strbuf_put(out, "<td>");
            html_put(out, row->run->settings[k] ? row->run->settings[k] : "-");
        }
        put_number(out, "%.0f", there ? f->last_step : (double)NAN);
        put_number(out, "%.4f", there ? f->end_loss : (double)NAN);
        if (report->has_val) put_number(out, "%.4f", there ? f->val_loss : (double)NAN);
        if (sweep->by) put_number(out, "%.4f", sweep_shown(report, row->loss));
        put_number(out, "%.0f", there ? f->tokens_per_s : (double)NAN);
        put_number(out, "%.1f", there ? f->seconds : (double)NAN);
        strbuf_put(out, "<td>");
        html_put(out, sweep_row_note(arena, row));
    }
    strbuf_put(out, "</tbody></table></section>\n");
}

static void put_groups(StrBuf *out, Arena *arena, const SweepReport *report) {
    if (report->seed < 0) return;
    strbuf_put(out, "<section><h2>Over seeds</h2><table><thead><tr><th>settings<th>runs<th>");
    html_put(out, sweep_measure(report));
    strbuf_put(out, "<th>&#177;</thead><tbody>");
    for (int g = 0; g < report->n_groups; g++) {
        const SweepGroup *group = &report->groups[g];
        strbuf_put(out, "\n<tr><td>");
        html_put(out, sweep_group_name(arena, report, group));
        put_number(out, "%.0f", group->n);
        put_number(out, "%.4f", sweep_shown(report, group->mean));
        put_number(out, "%.4f", group->deviation);
    }
    strbuf_put(out, "</tbody></table></section>\n");
}

/* --- curves --- */

static void put_legend(StrBuf *out, const SweepReport *report, int key, const Scale *scale) {
    if (key < 0) return;
    strbuf_put(out, "<p class=legend>");
    html_put(out, report->sweep->keys[key]);
    strbuf_put(out, ": ");
    const int stride = (scale->n + MOST_LABELS - 1) / MOST_LABELS;
    for (int i = 0; i < scale->n; i += stride) {
        strbuf_printf(out, "<span><span class=v%d style=margin:0>&#9632;</span> ", i);
        html_put(out, scale->texts[i]);
        strbuf_put(out, "</span>");
    }
    strbuf_put(out, "</p>\n");
}

static void put_curves(StrBuf *out, Arena *arena, const SweepReport *report, int series, int key,
                       const Scale *colours) {
    const Sweep *sweep = report->sweep;
    ChartLine *lines = ARENA_ARRAY(arena, ChartLine, sweep->n_runs);
    int n = 0;
    for (int i = sweep->n_runs - 1; i >= 0; i--) { /* the best on top */
        const SweepRow *row = &report->rows[i];
        if (!row->curve || row->curve->series[series].count == 0) continue;
        const int place = key < 0 ? -1 : place_of(colours, row->run->settings[key]);
        const char *class = place < 0 ? "run v" : arena_printf(arena, "run v%d", place);
        const char *title =
            arena_printf(arena, "%s: %s", row->run->name, sweep_describe(arena, sweep, row->run));
        lines[n++] = (ChartLine){row->curve, &row->curve->series[series], class,
                                 series == S_VAL_LOSS, title};
    }
    if (n == 0) return;
    const char *title = lines[0].series->title;
    strbuf_put(out, "<section><h2>");
    html_put(out, title);
    strbuf_put(out, "</h2>\n");
    put_legend(out, report, key, colours);
    run_chart_put(out, title, lines, n, false);
    strbuf_put(out, "</section>\n");
}

/* --- losses against a setting --- */

typedef struct Range {
    double least, most;
} Range;

/* Of what is drawn: runs that are done. */
static Range range_of(const SweepReport *report) {
    Range range = {INFINITY, -INFINITY};
    for (int i = 0; i < report->sweep->n_runs; i++) {
        const SweepRow *row = &report->rows[i];
        if (row->state != SWEEP_DONE || !isfinite(row->loss)) continue;
        range.least = fmin(range.least, sweep_shown(report, row->loss));
        range.most = fmax(range.most, sweep_shown(report, row->loss));
    }
    const double air = fmax((range.most - range.least) * 0.06, 1e-6 * fabs(range.most));
    return (Range){range.least - air, range.most + air};
}

static double x_of(double share) {
    return LEFT + WIDTH * (0.04 + 0.92 * share);
}

static double y_of(const Range *range, double loss) {
    return TOP + HEIGHT * (range->most - loss) / (range->most - range->least);
}

static void put_axes(StrBuf *out, const Scale *scale, const Range *range) {
    for (int i = 0; i <= TICKS; i++) {
        const double loss = range->least + (range->most - range->least) * i / TICKS;
        const double y = y_of(range, loss);
        strbuf_printf(out,
                      "<line class=grid x1=%d x2=%d y1=%.1f y2=%.1f />"
                      "<text x=%d y=%.1f text-anchor=end>%.4g</text>\n",
                      LEFT, LEFT + WIDTH, y, y, LEFT - 8, y + 4, loss);
    }
    double last = -1;
    for (int i = 0; i < scale->n; i++) {
        if (last >= 0 && scale->at[i] - last < 1.0 / MOST_LABELS) continue; /* no room */
        last = scale->at[i];
        strbuf_printf(out, "<text x=%.1f y=%d text-anchor=middle>", x_of(last), TOP + HEIGHT + 18);
        html_put(out, scale->texts[i]);
        strbuf_put(out, "</text>\n");
    }
}

static void put_best(StrBuf *out, Arena *arena, const SweepReport *report, int key,
                     const Scale *scale, const Range *range) {
    double *best = ARENA_ARRAY(arena, double, scale->n);
    for (int v = 0; v < scale->n; v++) best[v] = INFINITY;
    for (int i = 0; i < report->sweep->n_runs; i++) {
        const SweepRow *row = &report->rows[i];
        const int v = place_of(scale, row->run->settings[key]);
        if (row->state != SWEEP_DONE || !isfinite(row->loss) || v < 0) continue;
        best[v] = fmin(best[v], row->loss);
    }
    strbuf_put(out, "<polyline class=best points=\"");
    for (int v = 0; v < scale->n; v++) {
        if (!isfinite(best[v])) continue;
        strbuf_printf(out, "%.1f,%.1f ", x_of(scale->at[v]),
                      y_of(range, sweep_shown(report, best[v])));
    }
    strbuf_put(out, "\" />\n");
}

static void put_scatter(StrBuf *out, Arena *arena, const SweepReport *report, int key, int colour,
                        const Scale *colours) {
    const Sweep *sweep = report->sweep;
    const Scale scale = scale_of(arena, report, key);
    const Range range = range_of(report);
    if (scale.n < 2 || !(range.most > range.least)) return;
    strbuf_put(out, "<section><h2>");
    if (sweep->by) {
        html_put(out, sweep->by);
        strbuf_put(out, " against ");
    } else {
        strbuf_put(out, report->validated ? "Last validation loss against " : "Last loss against ");
    }
    html_put(out, sweep->keys[key]);
    strbuf_printf(out,
                  "</h2>\n<p class=lead>A point for each run that is done%s; the line joins "
                  "the best of each value.</p>\n",
                  scale.is_log ? ", on a logarithmic axis" : "");
    strbuf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img>\n", LEFT + WIDTH + 12,
                  TOP + HEIGHT + BOTTOM);
    put_axes(out, &scale, &range);
    put_best(out, arena, report, key, &scale, &range);
    for (int i = sweep->n_runs - 1; i >= 0; i--) {
        const SweepRow *row = &report->rows[i];
        const int place = place_of(&scale, row->run->settings[key]);
        if (row->state != SWEEP_DONE || !isfinite(row->loss) || place < 0) continue;
        const int hue = colour < 0 ? -1 : place_of(colours, row->run->settings[colour]);
        const char *class = hue < 0 ? "v" : arena_printf(arena, "v%d", hue);
        strbuf_printf(out, "<circle class=\"run %s\" cx=%.1f cy=%.1f r=5><title>", class,
                      x_of(scale.at[place]), y_of(&range, sweep_shown(report, row->loss)));
        html_put(out, arena_printf(arena, "%s: %s: %.4f", row->run->name,
                                   sweep_describe(arena, sweep, row->run),
                                   sweep_shown(report, row->loss)));
        strbuf_put(out, "</title></circle>\n");
    }
    strbuf_put(out, "</svg></section>\n");
}

/* The first setting that takes several values, seeds last. */
static int colour_key(Arena *arena, const SweepReport *report) {
    for (int k = 0; k < report->sweep->n_keys; k++) {
        if (k != report->seed && scale_of(arena, report, k).n > 1) return k;
    }
    return report->seed;
}

void sweep_report_html(StrBuf *out, Arena *arena, const SweepReport *report) {
    const Sweep *sweep = report->sweep;
    const int key = colour_key(arena, report);
    Scale colours = {0};
    if (key >= 0) colours = scale_of(arena, report, key);
    const SweepRow *best = &report->rows[0];
    run_chart_begin_page(out, arena_printf(arena, "Sweep of %s", sweep->model));
    strbuf_put(out, STYLE);
    put_colours(out, &colours);
    strbuf_put(out, "<dl>\n");
    run_chart_put_figure(out, "runs", "%.0f", sweep->n_runs);
    run_chart_put_figure(out, "done", "%.0f", report->n_done);
    if (report->n_failed) run_chart_put_figure(out, "failed", "%.0f", report->n_failed);
    if (best->state == SWEEP_DONE) {
        run_chart_put_figure(out,
                             sweep->by           ? "best value"
                             : report->validated ? "best val loss"
                                                 : "best loss",
                             "%.4f", sweep_shown(report, best->loss));
        strbuf_put(out, "<div><dt>with</dt><dd>");
        html_put(out, sweep_describe(arena, sweep, best->run));
        strbuf_put(out, "</dd></div>\n");
    }
    strbuf_put(out, "</dl>\n");
    put_curves(out, arena, report, S_VAL_LOSS, key, &colours);
    put_curves(out, arena, report, S_LOSS, key, &colours);
    for (int k = 0; k < sweep->n_keys; k++) {
        if (k != report->seed) put_scatter(out, arena, report, k, key, &colours);
    }
    put_table(out, arena, report, key, &colours);
    put_groups(out, arena, report);
    strbuf_printf(out, "%s</html>\n", SCRIPT);
}
