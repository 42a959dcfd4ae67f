#include "planner/show/show_points.h"

#include "planner/show/show_search_page.h"

#include <math.h>

const char POINTS_STYLE[] =
    ".grids{display:grid;gap:18px;grid-template-columns:repeat(2,minmax(0,1fr));margin-top:18px}"
    ".grids section{margin-top:0}"
    ".curve{position:relative;margin:4px 10px 26px 74px}"
    ".curve svg{width:100%;height:210px;background:var(--idle);border-radius:6px;overflow:visible}"
    ".curve .grid{stroke:var(--line)}.curve .ideal{stroke:var(--faint);stroke-dasharray:4 4}"
    ".curve .line{stroke:var(--accent);stroke-width:2}"
    ".curve .dot{fill:var(--accent);stroke:var(--card);stroke-width:1.5}"
    ".curve .dot.far{fill:var(--card);stroke:var(--accent)}"
    ".curve .dot.best{stroke:var(--ink);stroke-width:2.5}"
    ".curve .x,.curve .y{position:absolute;font-size:12px;color:var(--faint);white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.curve .x{top:214px;transform:translateX(-50%)}"
    ".curve .y{right:calc(100% + 8px);transform:translateY(-50%)}"
    "@media(max-width:1000px){.grids{grid-template-columns:minmax(0,1fr)}}"
    "@media(max-width:600px){.curve .x:nth-of-type(even){display:none}}";

enum { MOST_Y_TICKS = 12 };

typedef struct Axes {
    LogAxis x;
    double y_least, y_most;
} Axes;

static void widen(Axes *axes, const PlotPoint *points, int n) {
    for (int i = 0; i < n; i++) {
        axes->x.least = fmin(axes->x.least, points[i].x);
        axes->x.most = fmax(axes->x.most, points[i].x);
        axes->y_least = fmin(axes->y_least, points[i].y);
        axes->y_most = fmax(axes->y_most, points[i].y);
    }
}

static Axes fit_axes(const Plot *plot) {
    Axes axes = {{INFINITY, -INFINITY}, INFINITY, -INFINITY};
    widen(&axes, plot->points, plot->n_points);
    for (int i = 0; i < plot->n_lines; i++) widen(&axes, plot->lines[i].points, plot->lines[i].n);
    axes.x.least /= 1.15, axes.x.most *= 1.15;
    double air = fmax(0.08 * (axes.y_most - axes.y_least), 1e-6 * fabs(axes.y_most));
    if (air <= 0) air = 1;
    axes.y_least -= air, axes.y_most += air;
    return axes;
}

static double x_at(const Axes *axes, double x) {
    return 100 * log_axis_at(&axes->x, x);
}

static double y_at(const Axes *axes, double y) {
    return 100 * (axes->y_most - y) / (axes->y_most - axes->y_least);
}

/* 1, 2 or 5 times a power of ten, about five of them in the axis. */
static double tick_step(const Axes *axes) {
    double rough = (axes->y_most - axes->y_least) / 5, power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static void put_y_ticks(StrBuf *out, const Plot *plot, const Axes *axes, bool labels) {
    double step = tick_step(axes), first = ceil(axes->y_least / step);
    for (int i = 0; i < MOST_Y_TICKS && (first + i) * step <= axes->y_most; i++) {
        double value = (first + i) * step, at = y_at(axes, value);
        if (fabs(value) < step / 2) value = 0;
        if (!labels) {
            strbuf_printf(
                out, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>", at,
                at);
            continue;
        }
        char text[UNIT_TEXT];
        snprintf(text, sizeof(text), plot->y_format, value);
        strbuf_printf(out, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>", at, text);
    }
}

static void put_x_labels(StrBuf *out, const Plot *plot, const Axes *axes) {
    double ticks[MOST_TICKS], last = -100;
    int n = log_axis_ticks(&axes->x, ticks);
    bool wide = axes->x.most / axes->x.least > 300;
    for (int i = 0; i < n; i++) {
        char text[UNIT_TEXT];
        double at = x_at(axes, ticks[i]), decade = log10(ticks[i]);
        if (at < last + 9 || (wide && fabs(decade - round(decade)) > 1e-6)) continue;
        last = at;
        strbuf_printf(out, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>", at,
                      plot->x_text(ticks[i], text));
    }
}

static void put_line(StrBuf *out, const Axes *axes, const PlotLine *line) {
    for (int i = 1; i < line->n; i++) {
        const PlotPoint *a = &line->points[i - 1], *b = &line->points[i];
        strbuf_printf(
            out, "<line class=\"%s\" x1=\"%.2f%%\" y1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"%.2f%%\"/>",
            line->dashed ? "ideal" : "line", x_at(axes, a->x), y_at(axes, a->y), x_at(axes, b->x),
            y_at(axes, b->y));
    }
}

void html_put_plot(StrBuf *out, const Plot *plot) {
    if (plot->n_points == 0) return;
    Axes axes = fit_axes(plot);
    html_open_section(out, plot->id, plot->title, plot->lead);
    strbuf_printf(out, "<div class=\"curve\"><svg role=\"img\" aria-label=\"%s\">", plot->title);
    put_y_ticks(out, plot, &axes, false);
    for (int i = 0; i < plot->n_lines; i++) put_line(out, &axes, &plot->lines[i]);
    for (int i = 0; i < plot->n_points; i++) {
        const PlotPoint *point = &plot->points[i];
        strbuf_printf(out, "<circle class=\"dot%s%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"5\"><title>",
                      point->hollow ? " far" : "", point->best ? " best" : "",
                      x_at(&axes, point->x), y_at(&axes, point->y));
        html_put(out, point->title ? point->title : "");
        strbuf_put(out, "</title></circle>");
    }
    strbuf_put(out, "</svg>");
    put_y_ticks(out, plot, &axes, true);
    put_x_labels(out, plot, &axes);
    strbuf_put(out, "</div>");
    html_close_section(out);
}
