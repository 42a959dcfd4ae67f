#include "planner/show/budget_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_lines.h"

#include <inttypes.h>

enum { SIZE_COLUMNS = 13 };

static bool reaches(const BudgetReport *report) {
    return report->days <= 0;
}

static void put_head(StrBuf *out, const BudgetFacts *facts) {
    const BudgetReport *report = facts->report;
    char text[LAW_TEXT];
    StrBuf line = strbuf_create();
    lines_put_name(&line, report->model, 40);
    strbuf_printf(&line, ": %d size%s on %d rank%s of ", report->n_rows,
                  report->n_rows == 1 ? "" : "s", report->n_ranks, report->n_ranks == 1 ? "" : "s");
    lines_put_name(&line, report->cluster->name, 40);
    strbuf_printf(&line, "; batches of %d sequences; software: ", report->global_batch);
    lines_put_name(&line, report->cluster->software.name, 24);
    lines_put_wrapped(out, "", 0, line.text);
    strbuf_destroy(&line);
    lines_put_wrapped(out, "budget", 11, budget_text(facts));
    line = strbuf_create();
    lines_put_name(&line, report->law_name, 60);
    strbuf_printf(&line, ": %s; ", law_text(&report->law->terms, text));
    lines_put_name(&line, report->law->source, 200);
    lines_put_wrapped(out, "law", 11, line.text);
    strbuf_destroy(&line);
}

static void put_titles(StrBuf *out, const BudgetFacts *facts) {
    strbuf_printf(out, "\n%-*s %6s %7s %5s %8s", SIZE_COLUMNS, "size", "N", "token/s", "MFU",
                  "memory");
    if (facts->counts_failures) strbuf_printf(out, " %5s", "good");
    strbuf_printf(out, " %6s %6s", "tokens", "D/N");
    if (facts->report->tokens_limit > 0) strbuf_printf(out, " %6s", "epochs");
    if (reaches(facts->report)) {
        strbuf_printf(out, " %6s %7s %6s %7s\n", "days", "dev.-h", "price", "more");
    } else {
        strbuf_printf(out, " %9s %8s\n", "loss", "more");
    }
}

static void put_point(StrBuf *out, const BudgetFacts *facts, const BudgetPoint *point) {
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT];
    StrBuf head = strbuf_create();
    lines_put_column(&head, point->row->size, SIZE_COLUMNS);
    strbuf_printf(&head, " %6s", point->parameters > 0 ? unit_count(point->parameters, a) : "-");
    if (!point->found) {
        lines_put_wrapped(out, head.text, SIZE_COLUMNS + 10, point->trouble);
        strbuf_destroy(&head);
        return;
    }
    strbuf_printf(&head, " %7s %4.1f%s %8s", unit_count(point->facts.tokens_per_second, a),
                  100 * point->facts.mfu, point->found->unusual ? "*" : " ",
                  unit_bytes((double)point->found->cost.memory_bytes, b));
    if (point->trouble) {
        lines_put_wrapped(out, head.text, SIZE_COLUMNS + 33, point->trouble);
        strbuf_destroy(&head);
        return;
    }
    strbuf_put(out, head.text);
    strbuf_destroy(&head);
    if (facts->counts_failures) {
        const RunGoodput *goodput = &point->facts.goodput;
        strbuf_printf(out, " %5s",
                      goodput_is_counted(goodput) ? goodput_percent(goodput->share, a) : "-");
    }
    strbuf_printf(out, " %6s %6s", unit_count(point->tokens, a),
                  per_parameter_text(point->per_parameter, b));
    if (facts->report->tokens_limit > 0) strbuf_printf(out, " %6.3g", point->epochs);
    double worse = budget_worse(facts, point);
    if (reaches(facts->report)) {
        strbuf_printf(out, " %6s %6s%s %6s", days_text(point->days, a),
                      small_text(point->device_hours, b), point->beyond ? "~" : " ",
                      point->price > 0 ? small_text(point->price, c) : "-");
        snprintf(d, sizeof(d), worse < 0.9995 ? "%+.1f %%" : "x%.3g",
                 worse < 0.9995 ? 100 * worse : 1 + worse);
        strbuf_printf(out, " %7s\n", worse > 0 ? d : "best");
    } else {
        snprintf(d, sizeof(d), "%+.4f", worse);
        strbuf_printf(out, " %8.4f%s %8s\n", point->loss, point->beyond ? "~" : " ",
                      worse > 0 ? d : "best");
    }
}

static void put_marks(StrBuf *out, const BudgetFacts *facts) {
    bool unusual = false, beyond = false;
    for (int i = 0; i < facts->n_points; i++) {
        unusual |= facts->points[i].found && facts->points[i].found->unusual;
        beyond |= !facts->points[i].trouble && facts->points[i].beyond;
    }
    if (unusual) {
        strbuf_put(out,
                   "* beyond the range in which predictions were compared with measurements.\n");
    }
    if (beyond) strbuf_put(out, "~ beyond the runs that the law was fitted on.\n");
}

static void put_layouts(StrBuf *out, const BudgetFacts *facts) {
    strbuf_printf(out, "\n%-*s ", SIZE_COLUMNS, "size");
    layout_put_heads(out);
    strbuf_printf(out, " %8s\n", "steps");
    for (int i = 0; i < facts->n_points; i++) {
        const BudgetPoint *point = &facts->points[i];
        char step[UNIT_TEXT], steps[UNIT_TEXT];
        if (!point->found) continue;
        lines_put_column(out, point->row->size, SIZE_COLUMNS);
        strbuf_put(out, " ");
        layout_put_columns(out, &point->found->candidate,
                           unit_us(point->found->cost.step_us, step));
        strbuf_printf(out, " %8s\n", point->trouble ? "-" : unit_count(point->steps, steps));
    }
    for (int i = 0; i < facts->n_points; i++) {
        const BudgetPoint *point = &facts->points[i];
        SearchRemark remarks[SEARCH_REMARKS];
        if (!point->found) continue;
        int n = search_remarks(facts->arena, &point->row->options, point->found, remarks);
        for (int r = 0; r < n; r++) {
            lines_put_wrapped(
                out, remarks[r].label, 11,
                arena_printf(facts->arena, "%s: %s", point->row->size, remarks[r].text));
        }
    }
}

void show_budget_text(StrBuf *out, const BudgetReport *report) {
    Arena *arena = arena_create();
    const BudgetFacts *facts = budget_facts_create(arena, report);
    put_head(out, facts);
    put_titles(out, facts);
    for (int i = 0; i < facts->n_points; i++) put_point(out, facts, &facts->points[i]);
    put_marks(out, facts);
    if (facts->best >= 0) {
        const char *sure = budget_sure_text(facts), *goodput = budget_goodput_text(facts);
        strbuf_put(out, "\n");
        lines_put_wrapped(out, "best", 11, budget_best_text(facts));
        if (goodput) lines_put_wrapped(out, "goodput", 11, goodput);
        if (sure) lines_put_wrapped(out, "sure", 11, sure);
        lines_put_wrapped(out, "optimum", 11, budget_optimum_text(facts));
    }
    put_layouts(out, facts);
    if (report->planned) lines_put_wrapped(out, "planned", 11, report->planned);
    for (int i = 0; i < report->n_warnings; i++) {
        lines_put_wrapped(out, "warning", 11, report->warnings[i]);
    }
    arena_destroy(arena);
}
