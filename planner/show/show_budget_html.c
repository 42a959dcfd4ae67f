/* The HTML page of a budget: loss, or what it takes to reach one, against the size; how well each
 * size uses the devices; the table. */
#include "planner/show/budget_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_points.h"

enum { MOST_COLUMNS = 11 };

static const char *point_title(const BudgetFacts *facts, const BudgetPoint *point) {
    char a[UNIT_TEXT], b[UNIT_TEXT], c[2 * UNIT_TEXT], d[UNIT_TEXT], layout[LAYOUT_TEXT];
    return arena_printf(facts->arena,
                        "%s: %s parameters\nloss %.4f after %s tokens, %s, %s device-hours\n"
                        "%s\nMFU %.1f %%",
                        point->row->size, unit_count(point->parameters, a), point->loss,
                        unit_count(point->tokens, b), duration_text(point->days, c),
                        small_text(point->device_hours, d),
                        layout_text(&point->found->candidate, layout), 100 * point->facts.mfu);
}

static void put_plots(StrBuf *out, const BudgetFacts *facts) {
    bool spends = facts->report->days > 0;
    PlotPoint *losses = ARENA_ARRAY(facts->arena, PlotPoint, facts->n_points);
    PlotPoint *mfus = ARENA_ARRAY(facts->arena, PlotPoint, facts->n_points);
    int n = 0;
    for (int i = 0; i < facts->n_points; i++) {
        const BudgetPoint *point = &facts->points[i];
        if (point->trouble) continue;
        PlotPoint at = {.x = point->parameters,
                        .y = spends ? point->loss : point->device_hours / 1000,
                        .title = point_title(facts, point),
                        .hollow = point->beyond || point->found->unusual,
                        .best = i == facts->best};
        losses[n] = mfus[n] = at;
        mfus[n++].y = 100 * point->facts.mfu;
    }
    PlotLine line = {.n = n, .points = losses}, of_mfu = {.n = n, .points = mfus};
    html_put_plot(out, &(Plot){"loss", spends ? "Loss" : "Thousands of device-hours",
                               spends ? "Nats a token that the law predicts for each size, after "
                                        "what the budget pays for; ringed: the best."
                                      : "What each size takes to reach the loss; ringed: the best.",
                               unit_count, "%.4g", n, 1, losses, &line});
    html_put_plot(out, &(Plot){"mfu", "Model FLOPs utilisation",
                               "In % of the devices' peak, under each size's best layout.",
                               unit_count, "%.3g", n, 1, mfus, &of_mfu});
}

static void put_cell(StrBuf *out, const char *text) {
    strbuf_put(out, "<td>");
    html_put(out, text);
    strbuf_put(out, "</td>");
}

static void put_row(StrBuf *out, const BudgetFacts *facts, const BudgetPoint *point) {
    char a[LAYOUT_TEXT];
    strbuf_put(out, point->row == facts->points[facts->best < 0 ? 0 : facts->best].row &&
                            facts->best >= 0
                        ? "<tr><td class=\"l\"><b>"
                        : "<tr><td class=\"l\">");
    html_put(out, point->row->size);
    strbuf_put(out, "</td>");
    put_cell(out, point->parameters > 0 ? unit_count(point->parameters, a) : "–");
    if (point->trouble) {
        strbuf_printf(out, "<td class=\"l zero\" colspan=\"%d\">", MOST_COLUMNS);
        html_put(out, point->trouble);
        strbuf_put(out, "</td></tr>\n");
        return;
    }
    strbuf_printf(out, "<td class=\"l\">%s%s</td>", layout_text(&point->found->candidate, a),
                  point->found->unusual ? " *" : "");
    put_cell(out, unit_count(point->facts.tokens_per_second, a));
    strbuf_printf(out, "<td>%.1f %%</td>", 100 * point->facts.mfu);
    put_cell(out, unit_bytes((double)point->found->cost.memory_bytes, a));
    bool counted = goodput_is_counted(&point->facts.goodput);
    strbuf_printf(out, "<td>%s%s</td>",
                  counted ? goodput_percent(point->facts.goodput.share, a) : "–",
                  counted ? " %" : "");
    put_cell(out, unit_count(point->tokens, a));
    put_cell(out, per_parameter_text(point->per_parameter, a));
    if (point->epochs > 0) {
        strbuf_printf(out, "<td>%.3g</td>", point->epochs);
    } else {
        put_cell(out, "–");
    }
    strbuf_printf(out, "<td>%.4f%s</td>", point->loss, point->beyond ? " ~" : "");
    put_cell(out, days_text(point->days, a));
    put_cell(out, small_text(point->device_hours, a));
    strbuf_put(out, "</tr>\n");
}

static void put_note(StrBuf *out, const char *text) {
    strbuf_put(out, "<p class=\"note\">");
    html_put(out, text);
    strbuf_put(out, "</p>\n");
}

static void put_table(StrBuf *out, const BudgetFacts *facts) {
    const BudgetReport *report = facts->report;
    html_open_section(out, "table", "Sizes", "The fastest layout of each that fits.");
    strbuf_put(out,
               "<table><tr><th class=\"l\">Size</th><th>N</th><th class=\"l\">Layout</th>"
               "<th>Tokens/s</th><th>MFU</th><th>Memory</th><th>Goodput</th><th>Tokens</th><th>"
               "a parameter</th><th>Epochs</th><th>Loss</th><th>Days</th><th>Device-hours"
               "</th></tr>\n");
    for (int i = 0; i < facts->n_points; i++) put_row(out, facts, &facts->points[i]);
    strbuf_put(out, "</table>");
    put_note(out, "N: parameters that a token meets. * beyond the range in which predictions were "
                  "compared with measurements; ~ beyond the runs that the law was fitted on.");
    if (facts->best >= 0) {
        const char *sure = budget_sure_text(facts), *goodput = budget_goodput_text(facts);
        if (goodput) {
            put_note(out, arena_printf(facts->arena, "Goodput of %s: %s.",
                                       facts->points[facts->best].row->size, goodput));
        }
        if (sure) put_note(out, sure);
        put_note(out, budget_optimum_text(facts));
    }
    if (report->planned) put_note(out, report->planned);
    for (int i = 0; i < report->n_warnings; i++) put_note(out, report->warnings[i]);
    html_close_section(out);
}

void show_budget_html(StrBuf *out, const BudgetReport *report) {
    Arena *arena = arena_create();
    const BudgetFacts *facts = budget_facts_create(arena, report);
    char law[LAW_TEXT];
    html_open_page(out, report->model, "budget", 1, POINTS_STYLE);
    strbuf_put(out, "<header><h1>");
    html_put(out, report->model);
    strbuf_printf(out, " on %d rank%s of ", report->n_ranks, report->n_ranks == 1 ? "" : "s");
    html_put(out, report->cluster->name ? report->cluster->name : "?");
    strbuf_put(out, "</h1><p class=\"sub\">");
    html_put(out, budget_text(facts));
    strbuf_printf(out, " · batches of %d sequences</p><p class=\"sub\">", report->global_batch);
    if (facts->best >= 0) html_put(out, budget_best_text(facts));
    strbuf_put(out, "</p></header>\n<div class=\"grids\">\n");
    put_plots(out, facts);
    strbuf_put(out, "</div>\n");
    put_table(out, facts);
    strbuf_put(out, "<footer>Law: ");
    html_put(out, report->law_name);
    strbuf_printf(out, ", %s; ", law_text(&report->law->terms, law));
    html_put(out, report->law->source);
    strbuf_put(out, ". Times are predicted, from the cluster's description.</footer></main>\n"
                    "</body></html>\n");
    arena_destroy(arena);
}
