#include "frontend/commands/run_chart.h"

#include "planner/show/show_html.h"

#include <math.h>

enum { MAX_POINTS = 600, MAX_TICKS = 20 };

/* A panel's drawing area in its own coordinates. */
enum { LEFT = 64, TOP = 12, WIDTH = 860, HEIGHT = 220, BOTTOM = 26 };

typedef struct Scale {
    double x_least, x_most, y_least, y_most;
} Scale;

static double scale_x(const Scale *scale, double x) {
    double span = scale->x_most - scale->x_least;
    return LEFT + (span > 0 ? (x - scale->x_least) / span : 0.5) * WIDTH;
}

static double scale_y(const Scale *scale, double y) {
    return TOP + (1 - (y - scale->y_least) / (scale->y_most - scale->y_least)) * HEIGHT;
}

/* Of all lines together. */
static Scale fit_scale(const ChartLine *lines, int n, bool from_zero) {
    Scale scale = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int k = 0; k < n; k++) {
        const double *steps = lines[k].curve->series[S_STEP].values;
        int n_steps = lines[k].curve->n_steps;
        scale.x_least = fmin(scale.x_least, steps[0]);
        scale.x_most = fmax(scale.x_most, steps[n_steps - 1]);
        for (int i = 0; i < n_steps; i++) {
            double value = lines[k].series->values[i];
            if (!isfinite(value)) continue;
            scale.y_least = fmin(scale.y_least, value);
            scale.y_most = fmax(scale.y_most, value);
        }
    }
    if (from_zero && scale.y_least > 0) scale.y_least = 0;
    double least_span = fmax(1, fabs(scale.y_least) * 1e-6);
    if (!(scale.y_most > scale.y_least)) scale.y_most = scale.y_least + least_span;
    double margin = (scale.y_most - scale.y_least) * 0.04;
    if (!from_zero) scale.y_least -= margin;
    scale.y_most += margin;
    return scale;
}

/* 1, 2 or 5 times a power of ten: about `count` of them in `span`. */
static double tick_step(double span, int count) {
    double rough = span / count, power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* Ticks are counted, not added up: beside 1e17 a step of 1 changes nothing. */
static int count_ticks(double least, double most, double step, double *out_first) {
    *out_first = ceil(least / step);
    double count = floor(most / step) - *out_first + 1;
    return count >= 0 && count <= MAX_TICKS ? (int)count : 0;
}

static void put_ticks(StrBuf *out, const Scale *scale) {
    double first, step = tick_step(scale->y_most - scale->y_least, 5);
    int n = count_ticks(scale->y_least, scale->y_most, step, &first);
    for (int i = 0; i < n; i++) {
        double y = (first + i) * step, at = scale_y(scale, y);
        strbuf_printf(out,
                      "<line class=grid x1=%d x2=%d y1=%.1f y2=%.1f />"
                      "<text x=%d y=%.1f text-anchor=end>%.6g</text>\n",
                      LEFT, LEFT + WIDTH, at, at, LEFT - 8, at + 4, fabs(y) < step / 2 ? 0 : y);
    }
    step = fmax(1, tick_step(fmax(1, scale->x_most - scale->x_least), 8));
    n = count_ticks(scale->x_least, scale->x_most, step, &first);
    for (int i = 0; i < n; i++) {
        double x = (first + i) * step;
        strbuf_printf(out, "<text x=%.1f y=%d text-anchor=middle>%.10g</text>\n", scale_x(scale, x),
                      TOP + HEIGHT + 18, x);
    }
}

/* Means over neighbouring steps, so that a page of a million steps stays small. */
static void put_curve(StrBuf *out, const ChartLine *line, const Scale *scale) {
    const RunCurve *curve = line->curve;
    const Series *series = line->series;
    int width = (curve->n_steps + MAX_POINTS - 1) / MAX_POINTS;
    strbuf_printf(out, "<polyline class=\"%s\" points=\"", line->class);
    for (int first = 0; first < curve->n_steps; first += width) {
        double x = 0, y = 0;
        int count = 0;
        for (int i = first; i < first + width && i < curve->n_steps; i++) {
            if (!isfinite(series->values[i])) continue;
            x += curve->series[S_STEP].values[i];
            y += series->values[i];
            count++;
        }
        if (count == 0) continue;
        strbuf_printf(out, "%.1f,%.1f ", scale_x(scale, x / count), scale_y(scale, y / count));
    }
    strbuf_put(out, "\">");
    if (line->title) {
        strbuf_put(out, "<title>");
        html_put(out, line->title);
        strbuf_put(out, "</title>");
    }
    strbuf_put(out, "</polyline>\n");
}

/* Measured now and then: every one is drawn as a point. */
static void put_points(StrBuf *out, const ChartLine *line, const Scale *scale) {
    const RunCurve *curve = line->curve;
    const Series *series = line->series;
    int stride = series->count / MAX_POINTS + 1, seen = 0;
    for (int i = 0; i < curve->n_steps; i++) {
        double y = series->values[i], x = curve->series[S_STEP].values[i];
        if (!isfinite(y) || seen++ % stride != 0) continue;
        strbuf_printf(out,
                      "<circle class=\"%s\" cx=%.1f cy=%.1f r=4><title>step %.0f: %.6g</title>"
                      "</circle>\n",
                      line->class, scale_x(scale, x), scale_y(scale, y), x, y);
    }
}

void run_chart_put(StrBuf *out, const char *label, const ChartLine *lines, int n, bool from_zero) {
    Scale scale = fit_scale(lines, n, from_zero);
    strbuf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"", LEFT + WIDTH + 12,
                  TOP + HEIGHT + BOTTOM);
    html_put(out, label);
    strbuf_put(out, "\">\n");
    put_ticks(out, &scale);
    for (int i = 0; i < n; i++) {
        bool single = lines[i].series->count == 1; /* makes no line */
        if (!single) put_curve(out, &lines[i], &scale);
        if (single || lines[i].points) put_points(out, &lines[i], &scale);
    }
    strbuf_put(out, "</svg>");
}

static const char PAGE_STYLE[] =
    "<style>\n"
    ":root{color-scheme:light dark;--ink:#1c2330;--dim:#667085;--line:#e4e7ec;--card:#fff;"
    "--page:#f6f7f9;--a:#2f6fde;--b:#d9480f}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--dim:#98a2b3;--line:#2b3342;"
    "--card:#171c26;--page:#0f131a;--a:#6ea3ff;--b:#ff9f5a}}\n"
    "body{margin:0 auto;max-width:1000px;padding:28px 24px;background:var(--page);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:24px;margin:0 0 18px}h2{font-size:15px;margin:0 0 8px}\n"
    ".key{color:var(--b);font-weight:400;margin-left:10px}\n"
    "dl{display:flex;flex-wrap:wrap;gap:12px;margin:0 0 20px}\n"
    "dl div{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:10px 16px}dt{color:var(--dim);font-size:13px}dd{margin:0;font-size:20px;"
    "font-variant-numeric:tabular-nums}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:16px 18px;margin:0 0 16px;overflow-x:auto}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}"
    "svg text{fill:var(--dim);font-size:12px}\n"
    "@media(max-width:700px){body{padding:20px 12px}svg text{font-size:24px}}\n"
    ".grid{stroke:var(--line)}polyline{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".training{stroke:var(--a)}.validation{stroke:var(--b)}circle.training{fill:var(--a)}"
    "circle.validation{fill:var(--b)}\n"
    "polyline.validation{stroke-dasharray:5 4;stroke-width:1.5}\n"
    "polyline.source{stroke:currentColor}circle.source{fill:currentColor;r:3}\n"
    ".hue0{color:#2f6fde}.hue1{color:#d9480f}.hue2{color:#2b8a3e}.hue3{color:#ae3ec9}"
    ".hue4{color:#c2255c}.hue5{color:#0b7285}.hue6{color:#a37200}.hue7{color:#868e96}\n"
    ".heat{fill:var(--b)}.cold{fill:var(--line)}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 10px;text-align:right;border-bottom:1px solid var(--line)}"
    "th{color:var(--dim);font-weight:400}th:first-child,td:first-child{text-align:left}"
    "td:first-child{min-width:8em;overflow-wrap:anywhere}\n"
    "</style>\n";

void run_chart_begin_page(StrBuf *out, const char *title) {
    strbuf_put(out, "<!doctype html>\n<html lang=en><meta charset=utf-8>"
                    "<meta name=viewport content=\"width=device-width\"><title>");
    html_put(out, title);
    strbuf_printf(out, "</title>\n%s<h1>", PAGE_STYLE);
    html_put(out, title);
    strbuf_put(out, "</h1>\n");
}

void run_chart_put_figure(StrBuf *out, const char *name, const char *format, double value) {
    char text[64];
    if (!isfinite(value)) return;
    snprintf(text, sizeof(text), format, value);
    strbuf_printf(out, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, text);
}
