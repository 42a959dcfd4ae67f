/* How a model scales, as text and as JSON:
 *
 *   format      1;  model  its name;  cluster, software  their names;  weak  does the batch grow?
 *   limit_bytes per device;  currency, price_per_device_hour (null: not stated)
 *   points[]    ranks, global_batch, fits; without fit: trouble (a phrase), remedy (options with
 *               which something would fit, or null); else
 *               mesh {t, d, p}, schedule, chunks, micro_batch, micro_batches, recompute, zero,
 *               sequence_parallel, step_seconds, tokens_per_second, mfu (null),
 *               model_tflops_per_device, bubble_fraction, memory_bytes, efficiency (tokens per
 *               second and rank against the first that fits), price_per_gigatoken (null), days,
 *               price (null: not asked for), goodput (days with failures: see show_goodput.h),
 * masters ("whole", "split"), offload (percent of states and masters in the nodes' memory),
 * offload_activations (percent of what blocks keep there),
 * host_bytes there, loss_parts (of positions, whose logits are computed in turn), expert_parts
 * (with e: runs of experts' slots), candidates_total, candidates_fit, candidates_open (could be
 * faster, not simulated), unusual (null, or what lies outside the range in which predictions were
 * validated) search_seconds, warnings[]
 */
#include "planner/show/scale_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_json_put.h"
#include "planner/show/show_lines.h"

#include <inttypes.h>

LayoutFacts scale_row_facts(const ScaleReport *report, const ScaleRow *row) {
    SearchReport one = {.costs = report->costs,
                        .request = &row->request,
                        .result = row->result,
                        .options = report->options,
                        .days_tokens = report->days_tokens,
                        .failures = report->failures};
    return layout_facts(&one, &row->result->found[0]);
}

ScaleFacts *scale_facts_create(Arena *arena, const ScaleReport *report) {
    ScaleFacts *facts = ARENA_NEW(arena, ScaleFacts);
    const Cluster *cluster = report->costs->cluster;
    *facts = (ScaleFacts){
        .arena = arena, .report = report, .cluster = cluster, .n_points = report->n_rows};
    facts->points = ARENA_ARRAY(arena, ScalePoint, report->n_rows + 1);
    double first_rate = 0;
    for (int i = 0; i < report->n_rows; i++) {
        const ScaleRow *row = &report->rows[i];
        ScalePoint *point = &facts->points[i];
        char missing[UNIT_TEXT];
        point->row = row;
        facts->limit_bytes = search_memory_limit(&row->request, cluster);
        if (!row->result) {
            point->trouble = row->refusal ? row->refusal : "could not be searched";
            continue;
        }
        if (row->result->n_found == 0) {
            const char *remedy = row->result->remedy;
            unit_bytes((double)row->result->least_missing_bytes, missing);
            point->trouble = arena_printf(arena, "nothing fits: %s missing per device%s%s%s",
                                          missing, remedy ? "; with " : "", remedy ? remedy : "",
                                          remedy ? " something would" : "");
            continue;
        }
        point->found = &row->result->found[0];
        point->facts = scale_row_facts(report, row);
        point->cut_short = search_cut_short(arena, row->result);
        double rate = point->facts.tokens_per_second / row->request.n_ranks;
        if (first_rate <= 0) first_rate = rate;
        point->efficiency = first_rate > 0 ? rate / first_rate : 0;
        if (rate > 0) point->tokens_price = 1e9 / rate / 3600 * cluster->price_per_device_hour;
        facts->n_found++;
        facts->counts_failures |= goodput_is_counted(&point->facts.goodput);
    }
    return facts;
}

static void put_point(StrBuf *out, const ScaleFacts *facts, const ScalePoint *point) {
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], price[UNIT_TEXT] = "-";
    char ranks[16];
    snprintf(ranks, sizeof(ranks), "%6d", point->row->request.n_ranks);
    if (!point->found) {
        lines_put_wrapped(out, ranks, 7, point->trouble);
        return;
    }
    strbuf_printf(out, "%s ", ranks);
    layout_put_columns(out, &point->found->candidate, unit_us(point->found->cost.step_us, a));
    const LayoutFacts *of = &point->facts;
    if (of->days <= 0 && point->tokens_price > 0) unit_count(point->tokens_price, price);
    if (of->real_price > 0) unit_count(of->real_price, price);
    const char *rate = "never"; /* there is room for one of the two */
    if (of->days <= 0) rate = unit_count(of->tokens_per_second, b);
    if (of->real_days > 0) rate = days_text(of->real_days, b);
    const char *memory = unit_bytes((double)point->found->cost.memory_bytes, c);
    const char *mark = point->found->unusual ? "*" : " ";
    if (facts->counts_failures) {
        char good[UNIT_TEXT] = "-";
        if (goodput_is_counted(&of->goodput)) goodput_percent(of->goodput.share, good);
        strbuf_printf(out, " %6s %5s %4.1f %8s %5.1f%s %6s\n", rate, good, 100 * of->mfu, memory,
                      100 * point->efficiency, mark, price);
    } else {
        strbuf_printf(out, " %7s %6.1f %8s %5.1f%s %7s\n", rate, 100 * of->mfu, memory,
                      100 * point->efficiency, mark, price);
    }
}

static const char *ranks_text(Arena *arena, int n) {
    return arena_printf(arena, "%d rank%s", n, n == 1 ? "" : "s");
}

void scale_put_parts(StrBuf *out, Arena *arena, const char *where, const ScalePoint *point) {
    if (!point->found) return;
    SearchRemark remarks[SEARCH_REMARKS];
    int n = search_remarks(arena, &point->row->options, point->found, remarks);
    for (int i = 0; i < n; i++) {
        lines_put_wrapped(out, remarks[i].label, 11,
                          arena_printf(arena, "%s: %s", where, remarks[i].text));
    }
}

/* Of the largest number of ranks, which failures are worst for. */
static void put_failures(StrBuf *out, const ScaleFacts *facts) {
    const ScalePoint *last = NULL;
    StrBuf line = strbuf_create();
    for (int i = 0; i < facts->n_points; i++) {
        if (facts->points[i].found) last = &facts->points[i];
    }
    if (last) {
        goodput_put(&line, &last->facts.goodput, facts->cluster, last->row->request.n_ranks);
    }
    if (line.length) lines_put_wrapped(out, "goodput", 11, line.text);
    strbuf_destroy(&line);
}

static void put_notes(StrBuf *out, const ScaleFacts *facts) {
    const ScaleReport *report = facts->report;
    bool unusual = false;
    char text[UNIT_TEXT];
    for (int i = 0; i < facts->n_points; i++) {
        unusual |= facts->points[i].found && facts->points[i].found->unusual;
    }
    StrBuf line = strbuf_create();
    strbuf_put(&line, "MFU and effic. (tokens/s a rank against the first row) in %; ");
    if (report->days_tokens > 0) {
        strbuf_printf(&line, "days: for %s tokens%s; ", unit_count(report->days_tokens, text),
                      facts->counts_failures ? ", with failures; good: % of them that train" : "");
    }
    strbuf_put(&line, "price: ");
    if (facts->cluster->price_per_device_hour <= 0) {
        strbuf_put(&line, "none is stated");
    } else {
        lines_put_name(&line, facts->cluster->currency, 8);
        strbuf_printf(&line, " for %s tokens",
                      unit_count(report->days_tokens > 0 ? report->days_tokens : 1e9, text));
    }
    strbuf_put(&line, ".");
    strbuf_put(out, "\n");
    lines_put_wrapped(out, "", 0, line.text);
    strbuf_destroy(&line);
    if (report->days_tokens > 0) put_failures(out, facts);
    if (unusual) {
        strbuf_put(out,
                   "* beyond the range in which predictions were compared with measurements.\n");
    }
    for (int i = 0; i < facts->n_points; i++) {
        const ScalePoint *point = &facts->points[i];
        scale_put_parts(out, facts->arena, ranks_text(facts->arena, point->row->request.n_ranks),
                        point);
    }
    for (int i = 0; i < facts->n_points; i++) {
        const ScalePoint *point = &facts->points[i];
        if (!point->cut_short) continue;
        lines_put_wrapped(out, "cut short", 11,
                          arena_printf(facts->arena, "%s: %s",
                                       ranks_text(facts->arena, point->row->request.n_ranks),
                                       point->cut_short));
    }
    for (int i = 0; i < report->n_warnings; i++) {
        lines_put_wrapped(out, "warning", 11, report->warnings[i]);
    }
}

void show_scale_text(StrBuf *out, const ScaleReport *report) {
    Arena *arena = arena_create();
    const ScaleFacts *facts = scale_facts_create(arena, report);
    char text[UNIT_TEXT];
    const SearchRequest *first = &report->rows[0].request;
    StrBuf head = strbuf_create();
    lines_put_name(&head, report->costs->model, 40);
    strbuf_printf(&head, ": %s parameters, on ",
                  unit_count((double)report->costs->n_parameters, text));
    lines_put_name(&head, facts->cluster->name, 40);
    if (report->weak) {
        strbuf_printf(&head, "; %.3g sequences a rank",
                      (double)first->global_batch / first->n_ranks);
    } else {
        strbuf_printf(&head, "; batches of %d sequences", first->global_batch);
    }
    strbuf_printf(&head, " of %" PRId64 " tokens; software: ", report->costs->seq);
    lines_put_name(&head, facts->cluster->software.name, 24);
    lines_put_wrapped(out, "", 0, head.text);
    strbuf_destroy(&head);
    strbuf_printf(out, "\n%6s ", "ranks");
    layout_put_heads(out);
    if (facts->counts_failures) {
        strbuf_printf(out, " %6s %5s %4s %8s %6s %6s\n", "days", "good", "MFU", "memory", "effic.",
                      "price");
    } else {
        strbuf_printf(out, " %7s %6s %8s %6s %7s\n", report->days_tokens > 0 ? "days" : "token/s",
                      "MFU", "memory", "effic.", "price");
    }
    for (int i = 0; i < facts->n_points; i++) put_point(out, facts, &facts->points[i]);
    put_notes(out, facts);
    arena_destroy(arena);
}

void scale_point_json(json_t *json, const ScalePoint *point) {
    json_put_candidate(json, &point->found->candidate);
    json_put_real(json, "step_seconds", point->facts.step_seconds);
    json_put_real(json, "tokens_per_second", point->facts.tokens_per_second);
    json_put_known(json, "mfu", point->facts.mfu);
    json_put_real(json, "model_tflops_per_device", point->facts.model_tflops);
    json_put_real(json, "bubble_fraction", point->found->cost.bubble_fraction);
    json_put_int(json, "memory_bytes", point->found->cost.memory_bytes);
    json_put_real(json, "efficiency", point->efficiency);
    json_put_known(json, "price_per_gigatoken", point->tokens_price);
    json_put_known(json, "days", point->facts.days);
    json_put_known(json, "price", point->facts.price);
    json_put_goodput(json, &point->facts);
    json_put_name(json, "masters", point->row->options.split_masters ? "split" : "whole");
    json_put_int(json, "offload", point->row->options.offload);
    json_put_int(json, "offload_activations", point->row->options.offload_activations);
    json_put_int(json, "host_bytes", point->found->cost.host_bytes);
    json_put_int(json, "loss_parts", point->row->options.loss_parts);
    if (candidate_e(&point->found->candidate) > 1)
        json_put_int(json, "expert_parts", point->row->options.expert_parts);
    json_put_int(json, "candidates_total", point->row->result->n_candidates);
    json_put_int(json, "candidates_fit", point->row->result->n_fit);
    json_put_int(json, "candidates_open", point->row->result->n_open);
    const char *unusual = point->found->unusual ? point->found->why : NULL;
    json_object_set_new(json, "unusual", unusual ? json_name(unusual) : json_null());
}

void show_scale_json(StrBuf *out, const ScaleReport *report) {
    Arena *arena = arena_create();
    const ScaleFacts *facts = scale_facts_create(arena, report);
    json_t *root = json_object();
    json_put_int(root, "format", 1);
    json_put_name(root, "model", report->costs->model);
    json_put_name(root, "cluster", facts->cluster->name);
    json_put_name(root, "software", facts->cluster->software.name);
    json_object_set_new(root, "weak", json_boolean(report->weak));
    json_put_int(root, "limit_bytes", (int64_t)facts->limit_bytes);
    json_put_name(root, "currency", facts->cluster->currency);
    json_put_known(root, "price_per_device_hour", facts->cluster->price_per_device_hour);
    json_t *points = json_put_new(root, "points", json_array());
    for (int i = 0; i < facts->n_points; i++) {
        const ScalePoint *point = &facts->points[i];
        json_t *json = json_object();
        json_array_append_new(points, json);
        json_put_int(json, "ranks", point->row->request.n_ranks);
        json_put_int(json, "global_batch", point->row->request.global_batch);
        json_object_set_new(json, "fits", json_boolean(point->found));
        if (point->found) {
            scale_point_json(json, point);
        } else {
            const SearchResult *result = point->row->result;
            json_put_name(json, "trouble", point->trouble);
            json_object_set_new(json, "remedy",
                                result && result->remedy ? json_name(result->remedy) : json_null());
        }
    }
    json_put_real(root, "search_seconds", report->seconds);
    json_t *warnings = json_put_new(root, "warnings", json_array());
    for (int i = 0; i < report->n_warnings; i++) {
        json_array_append_new(warnings, json_name(report->warnings[i]));
    }
    json_put_document(out, root);
    arena_destroy(arena);
}
