/* The HTML page of a search: head, key figures, choice, what steps consist of, alternatives. */
#include "planner/show/show_goodput.h"
#include "planner/show/show_search_page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char STYLE[] =
    ".parts td.s{width:38%;min-width:190px}.parts .stack{height:18px}"
    ".s-compute{background:var(--c-parameter)}.s-tensor{background:var(--c-gradient)}"
    ".s-pipeline{background:var(--c-optimizer)}.s-bubble{background:var(--c-scratch)}"
    ".s-data{background:var(--c-message)}.s-update{background:var(--c-update)}"
    "@media(min-width:1000px){.parts td:last-child{white-space:nowrap}}"
    ".parts tr.best td{font-weight:620}.say{margin:14px 0 0;max-width:120ch}"
    ".warn{border-left:3px solid var(--c-activation);padding-left:12px}";

static void put_header(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    strbuf_put(out, "<header><h1>");
    html_put(out, report->costs->model);
    strbuf_printf(out, " on %d × ", report->request->n_ranks);
    html_put(out, facts->cluster->device.name ? facts->cluster->device.name : "device");
    strbuf_printf(out, "</h1><p class=\"sub\">Best of %s layouts on ",
                  unit_count((double)report->result->n_candidates, a));
    html_put(out, facts->cluster->name ? facts->cluster->name : "?");
    if (facts->cluster->title) {
        strbuf_put(out, " (");
        html_put(out, facts->cluster->title);
        strbuf_put(out, ")");
    }
    strbuf_printf(out,
                  " · %s parameters · batches of %d sequences of %" PRId64 " tokens</p></header>\n",
                  unit_count((double)report->costs->n_parameters, b), report->request->global_batch,
                  report->costs->seq);
}

static void put_figures(StrBuf *out, const SearchFacts *facts) {
    const LayoutFacts *best = &facts->best;
    const StepCost *cost = &best->found->cost;
    char value[UNIT_TEXT], unit[UNIT_TEXT], more[96];
    strbuf_put(out, "<dl class=\"figures\">");
    html_put_figure(out, "Predicted step", unit_us(cost->step_us, value),
                    best->found->simulated ? "simulated task by task" : "by arithmetic");
    snprintf(more, sizeof(more), "%s tokens a step", unit_count(facts->n_tokens, unit));
    html_put_figure(out, "Tokens per second", unit_count(best->tokens_per_second, value), more);
    snprintf(more, sizeof(more), "hardware FLOPs: %s",
             unit_count(best->hardware_tflops * 1e12, unit));
    html_put_figure(out, "Model FLOP/s a device", unit_count(best->model_tflops * 1e12, value),
                    more);
    snprintf(value, sizeof(value), best->mfu > 0 ? "%.1f %%" : "–", 100 * best->mfu);
    snprintf(more, sizeof(more), "HFU %.1f %% of %s", 100 * best->hfu,
             unit_count(facts->peak_tflops * 1e12, unit));
    html_put_figure(out, "MFU", value, best->mfu > 0 ? more : "no peak is stated");
    snprintf(more, sizeof(more), "of %s a device", unit_bytes(facts->limit_bytes, unit));
    html_put_figure(out, "Memory, fullest rank", unit_bytes((double)cost->memory_bytes, value),
                    more);
    if (best->days > 0) {
        bool ends = best->real_days > 0;
        snprintf(value, sizeof(value), "%s days", ends ? days_text(best->real_days, unit) : "∞");
        int n =
            snprintf(more, sizeof(more), "%s tokens", unit_count(facts->report->days_tokens, unit));
        if (best->real_price > 0) {
            n += snprintf(more + n, sizeof(more) - (size_t)n, ": %s %.8s",
                          unit_count(best->real_price, unit),
                          facts->cluster->currency ? facts->cluster->currency : "");
        }
        if (goodput_is_counted(&best->goodput)) {
            snprintf(more + n, sizeof(more) - (size_t)n, "; %s without failures",
                     days_text(best->days, unit));
        }
        html_put_figure(out, "Training", value, more);
    } else {
        snprintf(value, sizeof(value), "%.1f %%", 100 * cost->bubble_fraction);
        html_put_figure(out, "Bubble", value, "waiting for other stages");
    }
    strbuf_put(out, "</dl>\n");
}

/* Blocks per chunk in pipeline order; runs of equal ones as 3 × 2. */
static void put_split(StrBuf *out, const Found *found) {
    int n = found->candidate.p * found->candidate.n_chunks;
    for (int i = 0; i < n;) {
        int run = 1;
        while (i + run < n && found->split[i + run] == found->split[i]) run++;
        strbuf_printf(out, run > 1 ? "%s%d × %d" : "%s%d", i ? ", " : "", found->split[i], run);
        i += run;
    }
}

static void put_choice(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const Candidate *of = &facts->best.found->candidate;
    char text[200], a[UNIT_TEXT];
    Mesh mesh = {.size = {0}};
    mesh.size[MESH_T] = of->t;
    mesh.size[MESH_C] = candidate_c(of);
    mesh.size[MESH_E] = candidate_e(of);
    mesh.size[MESH_D] = of->d;
    mesh.size[MESH_R] = candidate_r(of);
    mesh.size[MESH_P] = of->p;
    strbuf_put(out, "<div class=\"pair\">\n");
    html_put_mesh(out, &mesh);
    html_open_section(out, "choice", "Choice", "What was found best, and what limits it.");
    strbuf_put(out, "<dl class=\"facts\">");
    snprintf(text, sizeof(text), "%s, %d chunk%s per stage", schedule_name(of->schedule),
             of->n_chunks, of->n_chunks == 1 ? "" : "s");
    html_put_fact(out, "Schedule", text);
    snprintf(text, sizeof(text), "%d of %d sequence%s, times %s=%d", of->n_micro, of->micro_batch,
             of->micro_batch == 1 ? "" : "s", mesh_batch_name(&mesh), candidate_data(of));
    html_put_fact(out, "Micro-batches", text);
    snprintf(text, sizeof(text), "%d", of->lanes);
    if (of->lanes > 1) html_put_fact(out, "Lanes of a micro-batch", text);
    html_put_fact(out, "Recomputation", recompute_mode_name(of->recompute));
    snprintf(text, sizeof(text), "%d: %s divided over d%s", of->zero, zero_stage_text(of->zero),
             zero_replicas_text(of->c > 1, of->e > 1));
    html_put_fact(out, "ZeRO", text);
    html_put_fact(out, "Sequence parallel", of->sequence_parallel ? "yes" : "no");
    html_put_fact(out, "Precision", dtype_name(report->options.precision));
    if (report->options.gradient_dtype == DTYPE_BF16) {
        html_put_fact(out, "Weights' gradients", search_gradients_text(of));
    }
    const DType states = report->options.state_dtype;
    if (states != DTYPE_F32) html_put_fact(out, "Optimizer's state", dtype_name(states));
    SearchRemark remarks[SEARCH_REMARKS];
    int n = search_remarks(facts->arena, &report->options, facts->best.found, remarks);
    for (int i = 0; i < n; i++) html_put_fact(out, remarks[i].label, remarks[i].text);
    SearchRemark updates[UPDATE_REMARKS];
    n = search_update_remarks(facts->arena, &report->options, updates);
    for (int i = 0; i < n; i++) html_put_fact(out, updates[i].label, updates[i].text);
    if (facts->best.found->split) {
        StrBuf split = strbuf_create();
        put_split(&split, facts->best.found);
        html_put_fact(out, "Blocks by chunk", split.text);
        strbuf_destroy(&split);
    }
    StrBuf memory = strbuf_create();
    memory_put_parts(&memory, &facts->best.found->cost);
    html_put_fact(out, "Memory", memory.text);
    strbuf_destroy(&memory);
    if (report->exact_bytes > 0) {
        snprintf(text, sizeof(text), "%s a device, planned to the byte",
                 unit_bytes((double)report->exact_bytes, a));
        html_put_fact(out, "Plan", text);
    }
    snprintf(text, sizeof(text), "%d in %d node%s, as %.40s", report->request->n_ranks,
             facts->n_nodes, facts->n_nodes == 1 ? "" : "s",
             facts->cluster->software.name ? facts->cluster->software.name : "?");
    html_put_fact(out, "Devices", text);
    strbuf_put(out, "</dl><p class=\"say\">");
    html_put(out, facts->bottleneck);
    strbuf_put(out, ".</p>");
    if (facts->islands_text) {
        strbuf_put(out, "<p class=\"say\">Islands: ");
        html_put(out, facts->islands_text);
        strbuf_put(out, ".</p>");
    }
    StrBuf goodput = strbuf_create();
    if (facts->best.days > 0) {
        goodput_put(&goodput, &facts->best.goodput, facts->cluster, report->request->n_ranks);
    }
    if (goodput.length) {
        strbuf_put(out, "<p class=\"say\">Goodput: ");
        html_put(out, goodput.text);
        strbuf_put(out, ".</p>");
    }
    strbuf_destroy(&goodput);
    if (facts->best.found->unusual && facts->best.found->why) {
        strbuf_put(out, "<p class=\"say warn\">Not within what predictions were compared with: ");
        html_put(out, facts->best.found->why);
        strbuf_put(out, "</p>");
    }
    for (int i = 0; i < report->n_warnings; i++) {
        strbuf_put(out, "<p class=\"say warn\">");
        html_put(out, report->warnings[i]);
        strbuf_put(out, "</p>");
    }
    html_close_section(out);
    strbuf_put(out, "</div>\n");
}

static void put_parts_row(StrBuf *out, const LayoutFacts *of, int rank, double most_us) {
    char text[LAYOUT_TEXT], us[UNIT_TEXT];
    const StepCost *cost = &of->found->cost;
    strbuf_printf(out,
                  "<tr%s><td>%d</td><td class=\"l\">%s</td><td class=\"s\">"
                  "<div class=\"stack\">",
                  rank == 1 ? " class=\"best\"" : "", rank,
                  layout_text(&of->found->candidate, text));
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        double part_us = step_part_us(cost, part);
        if (part_us <= 0) continue;
        strbuf_printf(out,
                      "<i class=\"s-%s\" style=\"width:%.3f%%\" title=\"%s: %s, %.1f %%\"></i>",
                      STEP_PARTS[part].key, 100 * part_us / most_us, STEP_PARTS[part].name,
                      unit_us(part_us, us), 100 * part_us / cost->step_us);
    }
    strbuf_printf(out, "</div></td><td>%s</td>", unit_us(cost->step_us, us));
    if (rank == 1) {
        strbuf_put(out, "<td class=\"zero\">–</td>");
    } else {
        strbuf_printf(out, "<td>%+.1f %%</td>", 100 * of->slowdown);
    }
    strbuf_printf(out, "<td>%s</td><td class=\"l\">%s</td></tr>\n",
                  unit_bytes((double)cost->memory_bytes, us), of->why);
}

static void put_parts(StrBuf *out, const SearchFacts *facts) {
    double most_us = facts->best.found->cost.step_us;
    for (int i = 0; i < facts->n_others; i++) {
        most_us = fmax(most_us, facts->others[i].found->cost.step_us);
    }
    html_open_section(out, "parts", "What a step consists of",
                      "The best layout and its runners-up: the mean over stages.");
    strbuf_put(out, "<div class=\"legend\">");
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        strbuf_printf(out, "<span><i class=\"s-%s\"></i>%s</span>", STEP_PARTS[part].key,
                      STEP_PARTS[part].name);
    }
    strbuf_put(out, "</div><table class=\"parts\"><tr><th></th><th class=\"l\">Layout</th><th></th>"
                    "<th>Step</th><th>Slower</th><th>Memory</th><th class=\"l\">Why</th></tr>\n");
    put_parts_row(out, &facts->best, 1, most_us);
    for (int i = 0; i < facts->n_others; i++) put_parts_row(out, &facts->others[i], i + 2, most_us);
    strbuf_put(out, "</table>");
    html_close_section(out);
}

static void put_alternatives(StrBuf *out, const SearchFacts *facts) {
    const SearchResult *result = facts->report->result;
    if (result->n_alternatives == 0) return;
    html_open_section(out, "alternatives", "Alternatives",
                      "What else one choice could be, everything else left free.");
    strbuf_put(out, "<table><tr><th>Choice</th><th>Value</th><th>Slower</th><th class=\"l\">Why"
                    "</th></tr>\n");
    for (int i = 0; i < result->n_alternatives; i++) {
        const Alternative *of = &result->alternatives[i];
        strbuf_put(out, "<tr><td>");
        html_put(out, of->axis);
        strbuf_put(out, "</td><td>");
        html_put(out, of->value);
        if (of->fits) {
            strbuf_printf(out, "</td><td>%+.1f %%</td><td class=\"l\">", 100 * (of->slowdown - 1));
        } else {
            strbuf_put(out, "</td><td class=\"zero\">no room</td><td class=\"l\">");
        }
        html_put(out, of->reason ? of->reason : "");
        strbuf_put(out, "</td></tr>\n");
    }
    strbuf_put(out, "</table>");
    html_close_section(out);
}

void show_search_html(StrBuf *out, const SearchReport *report) {
    Arena *arena = arena_create();
    const SearchFacts *facts = search_facts_create(arena, report);
    char us[UNIT_TEXT], rate[UNIT_TEXT];
    StrBuf style = strbuf_create();
    strbuf_put(&style, STYLE);
    strbuf_put(&style, CANDIDATES_STYLE);
    html_open_page(out, report->costs->model, "search", facts->best.found->candidate.n_chunks,
                   style.text);
    strbuf_destroy(&style);
    put_header(out, facts);
    put_figures(out, facts);
    put_choice(out, facts);
    put_parts(out, facts);
    html_put_candidates(out, facts);
    html_put_step(out, facts);
    put_alternatives(out, facts);
    double seconds = report->result->seconds;
    const char *remark = report->result->remark;
    if (remark) strbuf_printf(out, "<p class=\"note\">Ranks: %s.</p>", remark);
    if (report->hint) strbuf_printf(out, "<p class=\"note\">Hint: %s.</p>", report->hint);
    if (facts->cut_short) strbuf_printf(out, "<p class=\"note\">%s.</p>", facts->cut_short);
    strbuf_printf(
        out,
        "<footer>%" PRId64 " layouts, of which %" PRId64 " fit, in %s: %s a second. "
        "Times are predicted, from the cluster's description.</footer></main>\n",
        report->result->n_candidates, report->result->n_fit, unit_us(seconds * 1e6, us),
        unit_count(seconds > 0 ? (double)report->result->n_candidates / seconds : 0, rate));
    html_put_script(out);
    strbuf_put(out, "<script>");
    strbuf_put(out, CANDIDATES_SCRIPT);
    strbuf_put(out, "</script>\n</body></html>\n");
    arena_destroy(arena);
}
