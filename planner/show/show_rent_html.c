/* The HTML page of a choice of machines: money against days, a curve for each, and the table. */
#include "planner/show/rent_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_points.h"
#include "planner/show/show_search_page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { N_HUES = 8 };

static const char RENT_STYLE[] =
    ".figures{grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr))}"
    ".rent svg{height:340px}.curve.rent .x{top:344px}"
    ".rent .line{stroke:currentColor}.rent .dot{fill:currentColor}"
    ".rent .dot.far{fill:var(--card);stroke:currentColor}"
    ".keys span{margin-right:18px;white-space:nowrap}.keys b{color:var(--ink);font-weight:400}"
    ".hue0{color:#2f6fde}.hue1{color:#d9480f}.hue2{color:#2b8a3e}.hue3{color:#ae3ec9}"
    ".hue4{color:#c2255c}.hue5{color:#0b7285}.hue6{color:#a37200}.hue7{color:#868e96}";

static bool is_drawn(const RentPoint *point) {
    return point->days > 0 && point->money > 0;
}

typedef struct Axes {
    LogAxis days, money;
} Axes;

static double x_at(const Axes *axes, double days) {
    return 100 * log_axis_at(&axes->days, days);
}

static double y_at(const Axes *axes, double money) {
    return 100 - 100 * log_axis_at(&axes->money, money);
}

static void widen(LogAxis *axis, double value) {
    axis->least = fmin(axis->least, value), axis->most = fmax(axis->most, value);
}

/* Limits are on the axes, too. False: no point has both. */
static bool fit_axes(const RentFacts *facts, Axes *out) {
    const RentLimits *limits = &facts->report->limits;
    int n = 0;
    *out = (Axes){{INFINITY, 0}, {INFINITY, 0}};
    for (int i = 0; i < facts->n_points; i++) {
        if (!is_drawn(&facts->points[i])) continue;
        widen(&out->days, facts->points[i].days);
        widen(&out->money, facts->points[i].money);
        n++;
    }
    if (n && limits->days > 0) widen(&out->days, limits->days);
    if (n && limits->money > 0) widen(&out->money, limits->money);
    out->days.least /= 1.2, out->days.most *= 1.2;
    out->money.least /= 1.15, out->money.most *= 1.3;
    return n > 0;
}

static void put_line(StrBuf *out, const char *css, double x0, double y0, double x1, double y1) {
    strbuf_printf(out,
                  "<line class=\"%s\" x1=\"%.2f%%\" y1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"%.2f%%\"/>",
                  css, x0, y0, x1, y1);
}

static void put_grid(StrBuf *out, const Axes *axes, bool labels) {
    double ticks[MOST_TICKS], last = -100;
    char text[UNIT_TEXT];
    int n = log_axis_ticks(&axes->money, ticks);
    for (int i = 0; i < n; i++) {
        double at = y_at(axes, ticks[i]);
        if (!labels) {
            put_line(out, "grid", 0, at, 100, at);
        } else {
            strbuf_printf(out, "<span class=\"y\" style=\"top:%.2f%%\">%s</span>", at,
                          unit_count(ticks[i], text));
        }
    }
    n = labels ? log_axis_ticks(&axes->days, ticks) : 0;
    for (int i = 0; i < n; i++) {
        double at = x_at(axes, ticks[i]);
        if (at < last + 7) continue;
        last = at;
        strbuf_printf(out, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>", at,
                      small_text(ticks[i], text));
    }
}

static void put_dot(StrBuf *out, const RentFacts *facts, const Axes *axes, int index) {
    const RentPoint *point = &facts->points[index];
    const Found *found = facts->scaled[index]->found;
    char layout[LAYOUT_TEXT];
    bool best = index == facts->choice.cheapest || index == facts->choice.fastest;
    strbuf_printf(out, "<circle class=\"dot%s%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"%d\"><title>",
                  found->unusual ? " far" : "", best ? " best" : "", x_at(axes, point->days),
                  y_at(axes, point->money), best ? 7 : 5);
    html_put(out, rent_place(facts, point));
    strbuf_put(out, ": ");
    html_put(out, rent_bill(facts, point, true));
    strbuf_printf(out, "\n%s</title></circle>", layout_text(&found->candidate, layout));
}

/* A machine's points, joined by ranks, which ascend. */
static void put_curve(StrBuf *out, const RentFacts *facts, const Axes *axes, int machine) {
    const RentPoint *before = NULL;
    strbuf_printf(out, "<g class=\"hue%d\">", machine % N_HUES);
    for (int i = 0; i < facts->n_points; i++) {
        const RentPoint *point = &facts->points[i];
        if (point->machine != machine || !is_drawn(point)) continue;
        if (before) {
            put_line(out, "line", x_at(axes, before->days), y_at(axes, before->money),
                     x_at(axes, point->days), y_at(axes, point->money));
        }
        before = point;
    }
    for (int i = 0; i < facts->n_points; i++) {
        const RentPoint *point = &facts->points[i];
        if (point->machine == machine && is_drawn(point)) put_dot(out, facts, axes, i);
    }
    strbuf_put(out, "</g>");
}

static void put_keys(StrBuf *out, const RentFacts *facts) {
    strbuf_put(out, "<p class=\"note keys\">");
    for (int i = 0; i < facts->report->n_machines; i++) {
        const RentMachine *machine = &facts->report->machines[i];
        strbuf_printf(out, "<span class=\"hue%d\">&#9679; <b>", i % N_HUES);
        html_put(out, machine->cluster->name);
        strbuf_put(out, machine->refusal                               ? " (not searched)"
                        : machine->cluster->price_per_device_hour <= 0 ? " (no price)"
                                                                       : "");
        strbuf_put(out, "</b></span>");
    }
    strbuf_put(out, "</p>");
}

static void put_plot(StrBuf *out, const RentFacts *facts) {
    const RentLimits *limits = &facts->report->limits;
    Axes axes;
    if (!fit_axes(facts, &axes)) return;
    html_open_section(out, "curve", "Money against days",
                      "Both axes are logarithmic: to the left is sooner, below is cheaper. Dashed: "
                      "the limits. Ringed: the choice.");
    put_keys(out, facts);
    strbuf_put(out, "<div class=\"curve rent\"><svg role=\"img\" aria-label=\"Money against "
                    "days\">");
    put_grid(out, &axes, false);
    if (limits->days > 0) {
        double at = x_at(&axes, limits->days);
        put_line(out, "ideal", at, 0, at, 100);
    }
    if (limits->money > 0) {
        double at = y_at(&axes, limits->money);
        put_line(out, "ideal", 0, at, 100, at);
    }
    for (int i = 0; i < facts->report->n_machines; i++) put_curve(out, facts, &axes, i);
    strbuf_put(out, "</svg>");
    put_grid(out, &axes, true);
    strbuf_put(out, "</div>");
    html_close_section(out);
}

static void put_row(StrBuf *out, const RentFacts *facts, int index) {
    const RentPoint *point = &facts->points[index];
    const ScalePoint *scaled = facts->scaled[index];
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT], layout[LAYOUT_TEXT];
    strbuf_put(out, "<tr><td class=\"l\">");
    html_put(out, facts->report->machines[point->machine].cluster->name);
    strbuf_printf(out, "</td><td>%d</td>", point->n_ranks);
    if (!scaled->found) {
        strbuf_put(out, "<td class=\"l zero\" colspan=\"8\">");
        html_put(out, scaled->trouble);
        strbuf_put(out, "</td></tr>\n");
        return;
    }
    bool cheapest = index == facts->choice.cheapest, fastest = index == facts->choice.fastest;
    strbuf_printf(out,
                  "<td class=\"l\">%s%s%s%s</td><td>%s</td><td>%.1f %%</td><td>%s</td><td>%s</td>",
                  layout_text(&scaled->found->candidate, layout),
                  scaled->found->unusual ? " *" : "", cheapest ? " (cheapest)" : "",
                  fastest ? " (fastest)" : "", unit_us(scaled->found->cost.step_us, a),
                  100 * scaled->facts.mfu, unit_count(scaled->facts.tokens_per_second, b),
                  unit_bytes((double)scaled->found->cost.memory_bytes, c));
    if (point->days > 0) {
        strbuf_printf(out, "<td>%s</td><td>%s</td>", days_text(point->days, a),
                      unit_count(rent_device_hours(point), b));
    } else {
        strbuf_put(out, "<td>never</td><td>–</td>");
    }
    strbuf_printf(out, "<td>%s</td></tr>\n", point->money > 0 ? unit_count(point->money, d) : "–");
}

static void put_table(StrBuf *out, const RentFacts *facts) {
    html_open_section(out, "table", "Best layouts",
                      "The fastest that fits, by cluster and number of ranks; days with failures.");
    strbuf_put(out, "<table><tr><th class=\"l\">Cluster</th><th>Ranks</th><th class=\"l\">Layout"
                    "</th><th>Step</th><th>MFU</th><th>Tokens/s</th><th>Memory</th><th>Days</th>"
                    "<th>Device-hours</th><th>Money");
    if (facts->currency) {
        strbuf_put(out, ", ");
        html_put(out, facts->currency);
    }
    strbuf_put(out, "</th></tr>\n");
    bool unusual = false;
    for (int i = 0; i < facts->n_points; i++) {
        put_row(out, facts, i);
        unusual |= facts->scaled[i]->found && facts->scaled[i]->found->unusual;
    }
    strbuf_put(out, "</table>");
    if (unusual) {
        strbuf_put(out, "<p class=\"note\">* and hollow points: beyond the range in which "
                        "predictions were compared with measurements.</p>");
    }
    html_close_section(out);
}

/* What each machine is, costs, or why it was not searched. */
static void put_machines(StrBuf *out, const RentFacts *facts) {
    html_open_section(out, "machines", "Machines", "What is rented, and at which price.");
    strbuf_put(out, "<table>");
    for (int i = 0; i < facts->report->n_machines; i++) {
        const RentMachine *machine = &facts->report->machines[i];
        strbuf_put(out, "<tr><td class=\"l\">");
        html_put(out, machine->cluster->name);
        strbuf_put(out, "</td><td class=\"l\">");
        html_put(out, rent_offer(facts->arena, machine));
        strbuf_put(out, "</td><td class=\"l\">");
        html_put(out, machine->refusal ? machine->refusal : "");
        strbuf_put(out, "</td></tr>\n");
    }
    strbuf_put(out, "</table>");
    html_close_section(out);
}

static void put_figure(StrBuf *out, const RentFacts *facts, const char *label, int index,
                       const char *none) {
    if (index < 0) {
        if (none) html_put_figure(out, label, "–", none);
        return;
    }
    const RentPoint *point = &facts->points[index];
    html_put_figure(out, label, rent_place(facts, point), rent_bill(facts, point, true));
}

void show_rent_html(StrBuf *out, const RentReport *report) {
    Arena *arena = arena_create();
    const RentFacts *facts = rent_facts_create(arena, report);
    char a[UNIT_TEXT], b[UNIT_TEXT];
    html_open_page(out, facts->costs->model, "renting", 1,
                   arena_printf(arena, "%s%s", POINTS_STYLE, RENT_STYLE));
    strbuf_put(out, "<header><h1>");
    html_put(out, facts->costs->model);
    strbuf_printf(out,
                  ": which machines to rent</h1><p class=\"sub\">%s parameters · %s tokens · "
                  "batches of %d sequences of %" PRId64 " tokens",
                  unit_count((double)facts->costs->n_parameters, a), unit_count(facts->tokens, b),
                  facts->one->global_batch, facts->costs->seq);
    if (report->limits.days > 0) strbuf_printf(out, " · at %s", rent_days_limit(facts));
    if (report->limits.money > 0) {
        strbuf_put(out, " · at ");
        html_put(out, rent_money_limit(facts));
    }
    strbuf_put(out, "</p></header>\n<dl class=\"figures\">");
    put_figure(out, facts, "Cheapest in time", facts->choice.cheapest, rent_no_cheapest(facts));
    put_figure(out, facts, "Fastest for the money", facts->choice.fastest, rent_no_fastest(facts));
    strbuf_put(out, "</dl>\n");
    put_plot(out, facts);
    put_table(out, facts);
    put_machines(out, facts);
    strbuf_put(out, "<footer>Times are predicted, from the clusters' descriptions; every point is "
                    "the best of a search.</footer></main>\n</body></html>\n");
    arena_destroy(arena);
}
