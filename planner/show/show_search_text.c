/* A search's result on one screen: lines of at most 100 columns. */
#include "planner/show/search_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_lines.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { NAME_COLUMNS = 40, LABEL_COLUMNS = 11, MOST_PARETO = 5, AXIS_COLUMNS = 19 };

static void put_label(StrBuf *out, const char *label) {
    strbuf_printf(out, "%-*s", LABEL_COLUMNS, label);
}

static void put_wrapped(StrBuf *out, const char *label, const char *text) {
    lines_put_wrapped(out, label, LABEL_COLUMNS, text);
}

static void put_head(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const Cluster *cluster = facts->cluster;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    put_label(out, "model");
    lines_put_name(out, report->costs->model, NAME_COLUMNS);
    const ModelCosts *costs = report->costs;
    char active[2 * UNIT_TEXT], text[4 * UNIT_TEXT];
    strbuf_printf(out, ": %s parameters%s, ", unit_count((double)costs->n_parameters, a),
                  active_parameters_text(costs->n_active_parameters, costs->n_parameters, active));
    if (costs->source) strbuf_printf(out, "source %" PRId64 ", ", costs->source);
    strbuf_printf(out, "seq %" PRId64 ", vocab %" PRId64 "\n", costs->seq, costs->vocab);
    const char *trained = trained_parameters_text(costs->n_trained, costs->n_parameters, text);
    if (trained) {
        put_label(out, "trained");
        strbuf_put(out, trained);
    }
    put_label(out, "cluster");
    lines_put_name(out, cluster->name, 20);
    strbuf_printf(out, ": %d node%s of %d x ", facts->n_nodes, facts->n_nodes == 1 ? "" : "s",
                  cluster->node.n_devices);
    lines_put_name(out, cluster->device.name, 20);
    strbuf_printf(out, ", %d rank%s; software: ", report->request->n_ranks,
                  report->request->n_ranks == 1 ? "" : "s");
    lines_put_name(out, cluster->software.name, 24);
    strbuf_put(out, "\n");
    put_label(out, "batch");
    const char *how = search_fp8_text(&report->options, cluster);
    const char *kept = report->options.frozen_bits == 4   ? ", frozen weights in 4 bits"
                       : report->options.frozen_bits == 8 ? ", frozen weights in 8 bits"
                                                          : "";
    char room[2 * UNIT_TEXT];
    const char *states = states_text(report->options.state_dtype, ", optimizer's state ", room);
    bool low = report->options.gradient_dtype == DTYPE_BF16;
    const char *gradients = low ? search_gradients_text(&facts->best.found->candidate) : "";
    strbuf_printf(out, "%d sequences, %s tokens, %sFLOP of model a step, in %s%s%s%s%s%s\n",
                  report->request->global_batch, unit_count(facts->n_tokens, a),
                  unit_count(report->costs->model_flops * report->request->global_batch, b),
                  dtype_name(report->options.precision), how, low ? ", weights' gradients " : "",
                  gradients, states, kept);
}

static void put_layout(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const Candidate *of = &facts->best.found->candidate;
    put_label(out, "mesh");
    strbuf_printf(out, "t=%d tensor x ", of->t);
    if (of->c > 1) strbuf_printf(out, "c=%d context x ", of->c);
    if (of->e > 1) strbuf_printf(out, "e=%d expert x ", of->e);
    strbuf_printf(out, "d=%d data x ", of->d);
    if (of->r > 1) strbuf_printf(out, "r=%d replica x ", of->r);
    strbuf_printf(out, "p=%d pipeline%s\n", of->p,
                  of->sequence_parallel ? ", sequence-parallel" : "");
    put_label(out, "schedule");
    strbuf_printf(out, "%s, %d chunk%s a stage, %d micro-batch%s of %d sequence%s",
                  schedule_name(of->schedule), of->n_chunks, of->n_chunks == 1 ? "" : "s",
                  of->n_micro, of->n_micro == 1 ? "" : "es", of->micro_batch,
                  of->micro_batch == 1 ? "" : "s");
    if (of->lanes > 1) strbuf_printf(out, " in %d lanes", of->lanes);
    strbuf_put(out, "\n");
    put_label(out, "recompute");
    strbuf_printf(out, "%s\n", recompute_mode_name(of->recompute));
    SearchRemark remarks[SEARCH_REMARKS];
    int n = search_remarks(facts->arena, &report->options, facts->best.found, remarks);
    for (int i = 0; i < n; i++) {
        lines_put_wrapped(out, remarks[i].label, 11, remarks[i].text);
    }
    SearchRemark updates[UPDATE_REMARKS];
    n = search_update_remarks(facts->arena, &report->options, updates);
    for (int i = 0; i < n; i++) {
        put_label(out, updates[i].label);
        strbuf_printf(out, "%s\n", updates[i].text);
    }
    if (!of->zero) return;
    put_label(out, "zero");
    strbuf_printf(out, "%d: %s divided over d%s%s\n", of->zero, zero_stage_text(of->zero),
                  zero_replicas_text(of->c > 1, of->e > 1), of->joins_messages ? "; by block" : "");
}

/* Days, device-hours and price with failures, where they are counted, and days without. */
static void put_training(StrBuf *out, const SearchFacts *facts) {
    const LayoutFacts *best = &facts->best;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    StrBuf line = strbuf_create();
    strbuf_printf(&line, "%s tokens take ", unit_count(facts->report->days_tokens, a));
    if (!goodput_is_counted(&best->goodput)) {
        strbuf_printf(&line, "%s days", days_text(best->days, a));
    } else if (best->real_days > 0) {
        bool same = strcmp(days_text(best->real_days, a), days_text(best->days, b)) == 0;
        strbuf_printf(&line, "%s days", a);
        if (!same) strbuf_printf(&line, " (%s without failures)", b);
    } else {
        strbuf_printf(&line, "%s days without failures, and have no end with them",
                      days_text(best->days, a));
    }
    if (best->real_days > 0) {
        double hours = best->real_days * 24 * facts->report->request->n_ranks;
        strbuf_printf(&line, ", %s device-hours", unit_count(hours, b));
    }
    if (best->real_price > 0) {
        strbuf_printf(&line, ", %s ", unit_count(best->real_price, a));
        lines_put_name(&line, facts->cluster->currency, 8);
        strbuf_printf(&line, " at %.2f an hour", facts->cluster->price_per_device_hour);
    }
    put_wrapped(out, "training", line.text);
    strbuf_destroy(&line);
    StrBuf goodput = strbuf_create();
    goodput_put(&goodput, &best->goodput, facts->cluster, facts->report->request->n_ranks);
    if (goodput.length) put_wrapped(out, "goodput", goodput.text);
    strbuf_destroy(&goodput);
}

static void put_predictions(StrBuf *out, const SearchFacts *facts) {
    const LayoutFacts *best = &facts->best;
    const StepCost *cost = &best->found->cost;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    put_label(out, "predicted");
    strbuf_printf(out, "%s a step, %s tokens/s, bubble %.1f %% (%s)\n", unit_us(cost->step_us, a),
                  unit_count(best->tokens_per_second, b), 100 * cost->bubble_fraction,
                  best->found->simulated ? "simulated" : "by arithmetic, not simulated");
    put_label(out, "");
    strbuf_printf(out, "per device: model %sFLOP/s", unit_count(best->model_tflops * 1e12, a));
    if (best->mfu > 0) strbuf_printf(out, ", MFU %.1f %%", 100 * best->mfu);
    strbuf_printf(out, "; hardware %sFLOP/s", unit_count(best->hardware_tflops * 1e12, a));
    if (best->hfu > 0) {
        strbuf_printf(out, ", HFU %.1f %% of %s", 100 * best->hfu,
                      unit_count(facts->peak_tflops * 1e12, a));
    }
    strbuf_put(out, "\n");
    if (best->days > 0) put_training(out, facts);
    if (facts->islands_text) put_wrapped(out, "islands", facts->islands_text);
}

static void put_memory(StrBuf *out, const SearchFacts *facts) {
    const StepCost *cost = &facts->best.found->cost;
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    put_label(out, "memory");
    strbuf_printf(out, "%s of %s a device, in stage %d", unit_bytes((double)cost->memory_bytes, a),
                  unit_bytes(facts->limit_bytes, b), cost->worst_stage);
    if (facts->report->exact_bytes > 0) {
        strbuf_printf(out, "; planned to the byte: %s",
                      unit_bytes((double)facts->report->exact_bytes, c));
    }
    strbuf_put(out, "\n");
    StrBuf parts = strbuf_create();
    memory_put_parts(&parts, cost);
    put_wrapped(out, "", parts.text);
    strbuf_destroy(&parts);
}

static void put_step(StrBuf *out, const SearchFacts *facts) {
    const StepCost *cost = &facts->best.found->cost;
    StrBuf parts = strbuf_create();
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        double us = step_part_us(cost, part);
        if (us <= 0) continue;
        strbuf_printf(&parts, "%s%s %.1f %%", parts.length ? ", " : "", STEP_PARTS[part].name,
                      100 * us / cost->step_us);
    }
    put_wrapped(out, "step", parts.text);
    strbuf_destroy(&parts);
    put_wrapped(out, "bottleneck", facts->bottleneck);
}

static void put_rows_head(StrBuf *out, const char *title) {
    strbuf_printf(out, "\n%s\n", title);
    layout_put_heads(out);
    strbuf_printf(out, " %7s %8s  %s\n", "slower", "memory", "why");
}

static void put_row(StrBuf *out, const LayoutFacts *of) {
    enum { WHY_COLUMNS = 29 };
    char a[UNIT_TEXT], b[UNIT_TEXT], slower[16];
    int n_why = (int)strlen(of->why);
    const char *comma = strchr(of->why, ',');
    if (n_why > WHY_COLUMNS && comma) n_why = (int)(comma - of->why);
    if (n_why > WHY_COLUMNS) n_why = WHY_COLUMNS;
    layout_put_columns(out, &of->found->candidate, unit_us(of->found->cost.step_us, a));
    double percent = 100 * of->slowdown;
    if (fabs(percent) < 999) {
        snprintf(slower, sizeof(slower), fabs(percent) < 99.95 ? "%+.1f %%" : "%+.0f %%", percent);
    } else {
        snprintf(slower, sizeof(slower), "x %.0f", of->slowdown + 1);
    }
    strbuf_printf(out, " %7s %8s  %.*s\n", slower,
                  unit_bytes((double)of->found->cost.memory_bytes, b), n_why, of->why);
}

static void put_others(StrBuf *out, const SearchFacts *facts) {
    if (facts->n_others == 0) return;
    put_rows_head(out, "Runners-up (b: micro-batch, rec.: recomputation, Z1 to Z3: ZeRO, sp: "
                       "sequence-parallel, l2: lanes)");
    for (int i = 0; i < facts->n_others; i++) put_row(out, &facts->others[i]);
}

/* Evenly spaced ones when they are many. The first is the best above. */
static void put_pareto(StrBuf *out, const SearchFacts *facts) {
    const LayoutFacts *rows = facts->pareto + 1;
    int n = facts->n_pareto - 1;
    if (n <= 0) return;
    int n_shown = n < MOST_PARETO ? n : MOST_PARETO;
    put_rows_head(out, "Less memory for more time (nothing simulated has less of both)");
    for (int i = 0; i < n_shown; i++) {
        put_row(out, &rows[n_shown > 1 ? i * (n - 1) / (n_shown - 1) : 0]);
    }
    if (n_shown < n) strbuf_printf(out, "%d of %d are shown.\n", n_shown, n);
}

/* What is said of a value after its name. */
static const char *said(const Alternative *of) {
    const char *colon = of->reason ? strchr(of->reason, ':') : NULL;
    return colon ? colon : "";
}

/* Alternatives from `first` on that have the same axis and do not fit either, or for which the very
 * same is said. */
static int count_alike(const SearchResult *result, int first) {
    const Alternative *of = &result->alternatives[first];
    int n = 1;
    for (int i = first + 1; i < result->n_alternatives; i++, n++) {
        const Alternative *next = &result->alternatives[i];
        if (next->fits != of->fits || strcmp(next->axis, of->axis) != 0) break;
        if (of->fits ? strcmp(said(of), said(next)) != 0 : next->missing_bytes <= 0) break;
    }
    return of->fits || of->missing_bytes > 0 ? n : 1;
}

static void put_alternatives(StrBuf *out, const SearchFacts *facts) {
    const SearchResult *result = facts->report->result;
    const char *axis = "";
    if (!facts->report->explain || result->n_alternatives == 0) return;
    strbuf_put(out, "\nAlternatives: what else one choice could be, everything else left free\n");
    for (int i = 0, n; i < result->n_alternatives; i += n) {
        const Alternative *of = &result->alternatives[i];
        char missing[UNIT_TEXT];
        n = count_alike(result, i);
        const char *text = of->reason ? of->reason : "";
        if (n > 2) {
            const Alternative *last = &result->alternatives[i + n - 1];
            text = of->fits ? arena_printf(facts->arena, "%s=%s to %s%s", of->axis, of->value,
                                           last->value, said(of))
                            : arena_printf(facts->arena, "%s; and so on to %s=%s: %s", text,
                                           last->axis, last->value,
                                           unit_bytes((double)last->missing_bytes, missing));
        } else {
            n = 1;
        }
        lines_put_wrapped(out, strcmp(axis, of->axis) == 0 ? "" : of->axis, AXIS_COLUMNS, text);
        axis = of->axis;
    }
}

static void put_foot(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const SearchResult *result = report->result;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    strbuf_put(out, "\n");
    put_label(out, "searched");
    strbuf_printf(
        out, "%" PRId64 " layouts, of which %" PRId64 " fit, in %s: %s a second\n",
        result->n_candidates, result->n_fit, unit_us(result->seconds * 1e6, a),
        unit_count(result->seconds > 0 ? (double)result->n_candidates / result->seconds : 0, b));
    for (int i = 0; i < report->n_refused; i++) {
        StrBuf line = strbuf_create();
        refused_put(&line, report, i, facts->limit_bytes);
        put_wrapped(out, "refused", line.text);
        strbuf_destroy(&line);
    }
    if (facts->best.found->unusual && facts->best.found->why) {
        put_wrapped(out, "unusual",
                    arena_printf(facts->arena, "not within what predictions were compared with: %s",
                                 facts->best.found->why));
    }
    if (result->remark) put_wrapped(out, "ranks", result->remark);
    if (report->hint) put_wrapped(out, "hint", report->hint);
    if (facts->cut_short) put_wrapped(out, "cut short", facts->cut_short);
    for (int i = 0; i < report->n_warnings; i++) put_wrapped(out, "warning", report->warnings[i]);
}

void show_search_text(StrBuf *out, const SearchReport *report) {
    Arena *arena = arena_create();
    const SearchFacts *facts = search_facts_create(arena, report);
    put_head(out, facts);
    put_layout(out, facts);
    put_predictions(out, facts);
    put_memory(out, facts);
    put_step(out, facts);
    put_others(out, facts);
    put_pareto(out, facts);
    put_alternatives(out, facts);
    put_foot(out, facts);
    arena_destroy(arena);
}

/* Where captured graphs are at least half of what is missing: they grow with the micro-batches. */
static void put_graphs(StrBuf *out, const SearchRequest *request, const SearchResult *result) {
    int64_t bytes = step_graph_bytes(&result->least_memory);
    int n = result->least_missing.n_micro;
    char text[UNIT_TEXT];
    if (bytes < result->least_missing_bytes / 2 || bytes == 0) return;
    strbuf_printf(out,
                  "captured graphs of %d micro-batch%s take %s, less with %sa smaller "
                  "--global-batch; ",
                  n, n == 1 ? "" : "es", unit_bytes((double)bytes, text),
                  request->micro_batch != ANY ? "a larger --micro-batch or " : "");
}

static void put_no_ranks(StrBuf *out, const SearchRequest *request, const Cluster *cluster) {
    if (cluster->max_devices <= 0) {
        strbuf_put(out, "more ranks alone would not do, as far as was looked");
    } else if (request->n_ranks >= cluster->max_devices) {
        strbuf_printf(out, "the cluster has no more than %" PRId64 " device%s",
                      cluster->max_devices, cluster->max_devices == 1 ? "" : "s");
    } else {
        strbuf_printf(out,
                      "nor would more of the cluster's %" PRId64 " devices do, as far as was "
                      "looked",
                      cluster->max_devices);
    }
}

void show_search_nothing(StrBuf *out, const SearchRequest *request, const SearchResult *result,
                         const Cluster *cluster) {
    char missing[UNIT_TEXT], limit[UNIT_TEXT], text[LAYOUT_TEXT];
    strbuf_put(out, "nothing fits ");
    strbuf_printf(out, "%d device%s of ", request->n_ranks, request->n_ranks == 1 ? "" : "s");
    lines_put_name(out, cluster->name, NAME_COLUMNS);
    strbuf_printf(out, ": the least, %s, lacks %s of memory per device (limit %s)",
                  layout_text(&result->least_missing, text),
                  unit_bytes((double)result->least_missing_bytes, missing),
                  unit_bytes(search_memory_limit(request, cluster), limit));
    int64_t of_node = step_missing_host_bytes(cluster, &result->least_memory);
    if (of_node > 0) {
        strbuf_printf(out, ", as its node has no room for %s of what is offloaded",
                      unit_bytes((double)of_node, missing));
    }
    strbuf_put(out, "; ");
    put_graphs(out, request, result);
    if (result->least_ranks > 0) {
        strbuf_printf(out, "--ranks %d would do", result->least_ranks);
    } else {
        put_no_ranks(out, request, cluster);
    }
    if (!result->remedy) return;
    strbuf_printf(out, "%s %s%s", result->least_ranks > 0 ? ", or" : "; but with", result->remedy,
                  result->least_ranks > 0 ? "" : " it would");
}
