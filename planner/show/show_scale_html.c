/* The HTML page of a scaling report: plots against the number of ranks, and the table. */
#include "planner/show/scale_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_points.h"
#include "planner/show/show_search_page.h"

#include <inttypes.h>
#include <math.h>

typedef struct Curve {
    const char *id, *title, *lead;
    bool log;       /* the y axis */
    double largest; /* of a linear axis; 0: a little above the largest value */
    bool ideal;     /* draws what perfect scaling would give */
    double (*value)(const ScaleFacts *facts, const ScalePoint *point);
    const char *(*text)(double value, char *text);
} Curve;

static double rate_of(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return point->facts.tokens_per_second;
}
static double step_of(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return point->facts.step_seconds * 1e6;
}
static double mfu_of(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return point->facts.mfu;
}
static double efficiency_of(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return point->efficiency;
}
static double memory_of(const ScaleFacts *facts, const ScalePoint *point) {
    return facts->limit_bytes > 0 ? (double)point->found->cost.memory_bytes / facts->limit_bytes
                                  : 0;
}
static double price_of(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return point->tokens_price;
}
static double goodput_of_point(const ScaleFacts *facts, const ScalePoint *point) {
    (void)facts;
    return goodput_is_counted(&point->facts.goodput) ? point->facts.goodput.share : 0;
}
static const char *percent_text(double value, char *text) {
    snprintf(text, UNIT_TEXT, "%.0f %%", 100 * value);
    return text;
}

static const Curve CURVES[] = {
    {"rate", "Tokens per second", "Dashed: as many times more as there are ranks.", true, 0, true,
     rate_of, unit_count},
    {"step", "Step time", "Both axes are logarithmic.", true, 0, false, step_of, unit_us},
    {"mfu", "Model FLOPs utilisation", "Share of the devices' peak, recomputation not counted.",
     false, 1, false, mfu_of, percent_text},
    {"efficiency", "Efficiency", "Tokens per second and rank against the smallest number.", false,
     1.1, false, efficiency_of, percent_text},
    {"memory", "Memory of the fullest rank", "Share of what a device can hold.", false, 1.05, false,
     memory_of, percent_text},
    {"price", "Price of a billion tokens", "At the cluster's price per device and hour", false, 0,
     false, price_of, unit_count},
    {"goodput", "Goodput", "Share of the days that is training, when devices fail.", false, 1,
     false, goodput_of_point, percent_text},
};

typedef struct Frame {
    const ScaleFacts *facts;
    const Curve *curve;
    LogAxis x, y; /* y: 0 to y.most where linear */
} Frame;

static double x_at(const Frame *frame, double ranks) {
    return 100 * log_axis_at(&frame->x, ranks);
}

static double y_at(const Frame *frame, double value) {
    return 100 - 100 * (frame->curve->log ? log_axis_at(&frame->y, value) : value / frame->y.most);
}

/* False: there is nothing to draw. */
static bool frame_create(const ScaleFacts *facts, const Curve *curve, Frame *out) {
    *out = (Frame){.facts = facts, .curve = curve};
    int n = 0;
    double first = 0;
    for (int i = 0; i < facts->n_points; i++) {
        const ScalePoint *point = &facts->points[i];
        double value = point->found ? curve->value(facts, point) : 0;
        double ranks = point->row->request.n_ranks;
        if (!(value > 0)) continue;
        if (n == 0) {
            out->x = (LogAxis){ranks, ranks}, out->y = (LogAxis){value, value};
            first = value / ranks;
        }
        if (curve->ideal) out->y.most = fmax(out->y.most, first * ranks);
        out->x.least = fmin(out->x.least, ranks), out->x.most = fmax(out->x.most, ranks);
        out->y.least = fmin(out->y.least, value), out->y.most = fmax(out->y.most, value);
        n++;
    }
    out->x.least /= 1.15, out->x.most *= 1.15;
    if (curve->log) {
        out->y.least /= 1.3, out->y.most *= 1.3;
    } else {
        out->y.most = fmax(curve->largest, out->y.most * (curve->largest > 0 ? 1 : 1.15));
    }
    return n > 0;
}

static void put_grid_line(StrBuf *out, const Frame *frame, double value, bool label) {
    double at = y_at(frame, value);
    char text[UNIT_TEXT];
    if (at < -0.5 || at > 100.5) return;
    if (label) {
        strbuf_printf(out, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>", at,
                      frame->curve->text(value, text));
    } else {
        strbuf_printf(out,
                      "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>",
                      at, at);
    }
}

static void put_axes(StrBuf *out, const Frame *frame, bool labels) {
    const ScaleFacts *facts = frame->facts;
    if (frame->curve->log) {
        double ticks[MOST_TICKS];
        int n = log_axis_ticks(&frame->y, ticks);
        for (int i = 0; i < n; i++) put_grid_line(out, frame, ticks[i], labels);
    } else {
        LogAxis fifth = {frame->y.most / 5, frame->y.most};
        double step = log_axis_first(&fifth);
        for (int i = 0; i * step <= frame->y.most * 1.001; i++) {
            put_grid_line(out, frame, i * step, labels);
        }
    }
    double last = -100;
    for (int i = 0; labels && i < facts->n_points; i++) {
        double at = x_at(frame, facts->points[i].row->request.n_ranks);
        if (at < 0 || at > 100 || at < last + 9) continue;
        last = at;
        strbuf_printf(out, "<span class=\"x\" style=\"left:%.2f%%\">%d</span>", at,
                      facts->points[i].row->request.n_ranks);
    }
}

static void put_line(StrBuf *out, const char *css, double x0, double y0, double x1, double y1) {
    strbuf_printf(out,
                  "<line class=\"%s\" x1=\"%.2f%%\" y1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"%.2f%%\"/>",
                  css, x0, y0, x1, y1);
}

static void put_points(StrBuf *out, const Frame *frame) {
    const ScaleFacts *facts = frame->facts;
    const ScalePoint *first = NULL, *before = NULL;
    StrBuf dots = strbuf_create();
    for (int i = 0; i < facts->n_points; i++) {
        const ScalePoint *point = &facts->points[i];
        double value = point->found ? frame->curve->value(facts, point) : 0;
        char layout[LAYOUT_TEXT], text[UNIT_TEXT];
        if (!(value > 0)) continue;
        if (!first) first = point;
        double ranks = point->row->request.n_ranks, x = x_at(frame, ranks), y = y_at(frame, value);
        if (before) {
            put_line(out, "line", x_at(frame, before->row->request.n_ranks),
                     y_at(frame, frame->curve->value(facts, before)), x, y);
        }
        strbuf_printf(&dots,
                      "<circle class=\"dot%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"5\"><title>%d "
                      "rank%s: %s\n%s</title></circle>",
                      point->found->unusual ? " far" : "", x, y, point->row->request.n_ranks,
                      point->row->request.n_ranks == 1 ? "" : "s", frame->curve->text(value, text),
                      layout_text(&point->found->candidate, layout));
        before = point;
    }
    if (frame->curve->ideal && first && before != first) {
        double start = frame->curve->value(facts, first), ranks = before->row->request.n_ranks;
        double ratio = ranks / first->row->request.n_ranks;
        put_line(out, "ideal", x_at(frame, first->row->request.n_ranks), y_at(frame, start),
                 x_at(frame, ranks), y_at(frame, start * ratio));
    }
    strbuf_put(out, dots.text ? dots.text : "");
    strbuf_destroy(&dots);
}

/* After "... per device and hour" and "Price of 1 G": nothing without a price. */
static void put_currency(StrBuf *out, const ScaleFacts *facts) {
    if (facts->cluster->price_per_device_hour <= 0) return;
    strbuf_put(out, ", ");
    html_put(out, facts->cluster->currency);
    if (facts->counts_failures) strbuf_put(out, ", without failures");
}

static void put_curve(StrBuf *out, const ScaleFacts *facts, const Curve *curve) {
    Frame frame;
    if (!frame_create(facts, curve, &frame)) return;
    StrBuf lead = strbuf_create();
    strbuf_put(&lead, curve->lead);
    if (curve->value == price_of) put_currency(&lead, facts);
    html_open_section(out, curve->id, curve->title, lead.text);
    strbuf_destroy(&lead);
    strbuf_printf(out, "<div class=\"curve\"><svg role=\"img\" aria-label=\"%s\">", curve->title);
    put_axes(out, &frame, false);
    put_points(out, &frame);
    strbuf_put(out, "</svg>");
    put_axes(out, &frame, true);
    strbuf_put(out, "</div>");
    html_close_section(out);
}

static void put_row(StrBuf *out, const ScaleFacts *facts, const ScalePoint *point) {
    char text[LAYOUT_TEXT], a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], price[UNIT_TEXT] = "–";
    strbuf_printf(out, "<tr><td>%d</td><td>%d</td>", point->row->request.n_ranks,
                  point->row->request.global_batch);
    if (!point->found) {
        strbuf_printf(out, "<td class=\"l zero\" colspan=\"%d\">",
                      facts->counts_failures           ? 9
                      : facts->report->days_tokens > 0 ? 8
                                                       : 7);
        html_put(out, point->trouble);
        strbuf_put(out, "</td></tr>\n");
        return;
    }
    if (point->tokens_price > 0) unit_count(point->tokens_price, price);
    char days[2 * UNIT_TEXT + 40] = "";
    if (facts->report->days_tokens > 0) {
        const LayoutFacts *of = &point->facts;
        char text_of[UNIT_TEXT], good[UNIT_TEXT];
        int n = snprintf(days, sizeof(days), "<td>%s</td>",
                         of->real_days > 0 ? days_text(of->real_days, text_of) : "never");
        bool counted = goodput_is_counted(&of->goodput);
        if (facts->counts_failures) {
            snprintf(days + n, sizeof(days) - (size_t)n, "<td>%s%s</td>",
                     counted ? goodput_percent(of->goodput.share, good) : "–", counted ? " %" : "");
        }
    }
    strbuf_printf(out,
                  "<td class=\"l\">%s%s</td><td>%s</td><td>%s</td><td>%.1f %%</td><td>%s</td>"
                  "<td>%.1f %%</td><td>%s</td>%s</tr>\n",
                  layout_text(&point->found->candidate, text), point->found->unusual ? " *" : "",
                  unit_us(point->found->cost.step_us, a),
                  unit_count(point->facts.tokens_per_second, b), 100 * point->facts.mfu,
                  unit_bytes((double)point->found->cost.memory_bytes, c), 100 * point->efficiency,
                  facts->cluster->price_per_device_hour > 0 ? price : "–", days);
}

static void put_table(StrBuf *out, const ScaleFacts *facts) {
    html_open_section(out, "table", "Best layouts", "The fastest that fits, by number of ranks.");
    strbuf_put(out, "<table><tr><th>Ranks</th><th>Batch</th><th class=\"l\">Layout</th><th>Step"
                    "</th><th>Tokens/s</th><th>MFU</th><th>Memory</th><th>Efficiency</th>"
                    "<th>Price of 1 G");
    put_currency(out, facts);
    strbuf_put(out, "</th>");
    if (facts->report->days_tokens > 0) {
        char text[UNIT_TEXT];
        strbuf_printf(out, "<th>Days for %s</th>", unit_count(facts->report->days_tokens, text));
        if (facts->counts_failures) strbuf_put(out, "<th>Goodput</th>");
    }
    strbuf_put(out, "</tr>\n");
    for (int i = 0; i < facts->n_points; i++) put_row(out, facts, &facts->points[i]);
    strbuf_put(out, "</table>");
    for (int i = 0; i < facts->n_points; i++) {
        if (!facts->points[i].found || !facts->points[i].found->unusual) continue;
        strbuf_put(out, "<p class=\"note\">* and hollow points: beyond the range in which "
                        "predictions were compared with measurements.</p>");
        break;
    }
    html_close_section(out);
}

void show_scale_html(StrBuf *out, const ScaleReport *report) {
    Arena *arena = arena_create();
    const ScaleFacts *facts = scale_facts_create(arena, report);
    const SearchRequest *first = &report->rows[0].request;
    char text[UNIT_TEXT];
    html_open_page(out, report->costs->model, "scaling", 1, POINTS_STYLE);
    strbuf_put(out, "<header><h1>");
    html_put(out, report->costs->model);
    strbuf_put(out, " on ");
    html_put(out, facts->cluster->name ? facts->cluster->name : "?");
    int n_first = first->n_ranks, n_last = report->rows[report->n_rows - 1].request.n_ranks;
    strbuf_printf(out, "</h1><p class=\"sub\">%s parameters · ",
                  unit_count((double)report->costs->n_parameters, text));
    if (n_first < n_last) strbuf_printf(out, "%d to ", n_first);
    strbuf_printf(out, "%d rank%s · ", n_last, n_last == 1 ? "" : "s");
    if (report->weak) {
        strbuf_printf(out, "%.3g sequences a rank", (double)first->global_batch / first->n_ranks);
    } else {
        strbuf_printf(out, "batches of %d sequences", first->global_batch);
    }
    strbuf_printf(out, " of %" PRId64 " tokens · as ", report->costs->seq);
    html_put(out, facts->cluster->software.name ? facts->cluster->software.name : "?");
    strbuf_put(out, "</p></header>\n<div class=\"grids\">\n");
    for (size_t i = 0; i < sizeof(CURVES) / sizeof(*CURVES); i++) {
        put_curve(out, facts, &CURVES[i]);
    }
    strbuf_put(out, "</div>\n");
    put_table(out, facts);
    strbuf_put(out, "<footer>Times are predicted, from the cluster's description; every point is "
                    "the best of a search.</footer></main>\n</body></html>\n");
    arena_destroy(arena);
}
