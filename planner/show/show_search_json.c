/* A search's result as one JSON object. Bytes and FLOPs are of one device, times in seconds.
 *
 *   format             1; grows when a key changes its meaning
 *   fits               true; false: nothing fits, and the keys are format, fits, cluster, ranks,
 *                      memory_limit_bytes, missing_bytes (the least), closest (a layout, with
 *                      its memory_bytes),
 *                      least_ranks (how many would do; null: none found), remedy (options with
 *                      which something would fit; null: none found), candidates_total
 *   model              name, parameters, active_parameters (that a token meets), seq, vocab,
 *                      flops_per_step
 *   cluster            name, title, source;  software  name;  ranks, nodes
 *   global_batch, tokens_per_step, precision, optimizer_state,
 *   frozen_bits (0: frozen weights are as the others)
 *   a layout (the best, and each of runners_up, pareto, refused, closest):
 *     mesh             t, d, p
 *     schedule, chunks, micro_batch, micro_batches, zero (stage), sequence_parallel
 *     recompute        none, selective or full
 *   its figures (the best, runners_up and pareto):
 *     step_seconds, tokens_per_second, bubble_fraction, simulated (else by arithmetic)
 *     model_tflops_per_device     without recomputation;  mfu  its share of the peak
 *     hardware_tflops_per_device  with what is computed again;  hfu  its share; both null if no
 *                      peak is stated
 *     parts            seconds of the step that go to compute, tensor, pipeline, bubble, data and
 *                      update; they add up to step_seconds
 *     memory_bytes     parameters, gradients, optimizer, activations, messages, scratch, runtime
 *                      (CUDA's context and captured graphs), total (of the stage that needs most,
 *                      worst_stage), limit
 *     host_bytes       of the rank that has most, in its node's memory
 *     days, price      null if no tokens were given, or the cluster states no price; no failures
 *     goodput          days with failures, and checkpoints: see show_goodput.h
 *     slowdown, why    of runners_up and pareto: step time against the best's (0.02: 2 % more)
 *     unusual          null, or what lies outside the range in which predictions were validated
 *   split              blocks per chunk in pipeline order, of the best
 *   masters            whole, or split: weights' copies in bf16 are halves of them
 *   ema_decay, skips_spikes, qk_clip   as asked for; 0, false, 0: not
 *   offload            percent of states and masters that are in the nodes' memory
 *   offload_activations  percent of what blocks keep for their backward that is there
 *   expert_parts       with e: runs that experts' slots are cut into, of all layouts here
 *   loss_parts         if more than 1: of positions, whose logits are computed in turn
 *   exact_bytes        of the best's plan with what lies beyond its arena; null: not planned
 *   currency, price_per_device_hour, days_tokens
 *   bottleneck         a sentence
 *   refused[]          layouts, with exact_bytes: faster, but their plans do not fit; or null and
 *                      reason: cannot be planned
 *   candidates_total, candidates_fit, search_seconds, candidates_per_second
 *   candidates_open    could be faster than the best by their estimates, but were not simulated
 *   runners_up[], pareto[] (the best, then what needs less memory than all that is faster)
 *   alternatives[]     axis, value, fits, slowdown (null), missing_bytes (null), reason
 *   remark             null, or a sentence on the number of ranks;  warnings[]  texts
 *   islands            null, or of such runs apart: n, every, bytes (each sends, and gets), seconds
 *                      of an exchange, parts, overlap (steps), hidden_seconds (behind training) and
 *                      wait_seconds of those, share (of waiting), tokens_per_second of all;
 *                      one_run_seconds and _share: of one run that adds up gradients over the same
 *                      links
 *   hint               null, or an option that may find
 * something faster, and why
 */
#include "planner/show/show_goodput.h"
#include "planner/show/show_json_put.h"

#include <math.h>
#include <stdlib.h>

static void put_memory(json_t *json, const StepCost *cost, double limit_bytes) {
    json_t *memory = json_put_new(json, "memory_bytes", json_object());
    for (int part = 0; part < N_MEMORY_PARTS; part++) {
        json_put_int(memory, MEMORY_PARTS[part].key, memory_part_bytes(cost, part));
    }
    json_put_int(memory, "total", cost->memory_bytes);
    json_put_int(memory, "limit", (int64_t)limit_bytes);
    json_put_int(json, "worst_stage", cost->worst_stage);
    json_put_int(json, "host_bytes", cost->host_bytes);
}

static void put_figures(json_t *json, const SearchFacts *facts, const LayoutFacts *of) {
    const StepCost *cost = &of->found->cost;
    json_put_real(json, "step_seconds", of->step_seconds);
    json_put_real(json, "tokens_per_second", of->tokens_per_second);
    json_put_real(json, "bubble_fraction", cost->bubble_fraction);
    json_object_set_new(json, "simulated", json_boolean(of->found->simulated));
    json_put_real(json, "model_tflops_per_device", of->model_tflops);
    json_put_real(json, "hardware_tflops_per_device", of->hardware_tflops);
    json_put_known(json, "mfu", of->mfu);
    json_put_known(json, "hfu", of->hfu);
    json_t *parts = json_put_new(json, "parts", json_object());
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        json_put_real(parts, STEP_PARTS[part].key, step_part_us(cost, part) * 1e-6);
    }
    put_memory(json, cost, facts->limit_bytes);
    json_put_known(json, "days", of->days);
    json_put_known(json, "price", of->price);
    json_put_goodput(json, of);
    const char *unusual = of->found->unusual ? of->found->why : NULL;
    json_object_set_new(json, "unusual", unusual ? json_name(unusual) : json_null());
}

static json_t *islands_json(const SearchFacts *facts) {
    const IslandExchange *of = &facts->islands;
    if (!facts->islands_text) return json_null();
    json_t *json = json_object();
    json_object_set_new(json, "n", json_integer(facts->report->islands->n_islands));
    json_object_set_new(json, "every", json_integer(facts->report->islands->every));
    json_object_set_new(json, "bytes", json_real(of->bytes));
    json_object_set_new(json, "seconds", json_real(of->seconds));
    json_object_set_new(json, "parts", json_integer(facts->report->islands->n_parts));
    json_object_set_new(json, "overlap", json_integer(facts->report->islands->overlap));
    json_object_set_new(json, "hidden_seconds", json_real(of->hidden_seconds));
    json_object_set_new(json, "wait_seconds", json_real(of->wait_seconds));
    json_object_set_new(json, "share", json_real(of->share));
    json_object_set_new(json, "tokens_per_second", json_real(of->tokens_per_second));
    json_object_set_new(json, "one_run_seconds", json_real(of->one_run_seconds));
    json_object_set_new(json, "one_run_share", json_real(of->one_run_share));
    return json;
}

static void put_list(json_t *root, const char *key, const SearchFacts *facts,
                     const LayoutFacts *rows, int n) {
    json_t *list = json_put_new(root, key, json_array());
    for (int i = 0; i < n; i++) {
        json_t *json = json_object();
        json_array_append_new(list, json);
        json_put_candidate(json, &rows[i].found->candidate);
        put_figures(json, facts, &rows[i]);
        json_put_real(json, "slowdown", rows[i].slowdown);
        json_put_name(json, "why", rows[i].why);
    }
}

static void put_head(json_t *root, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const ModelCosts *costs = report->costs;
    json_t *model = json_put_new(root, "model", json_object());
    json_put_name(model, "name", costs->model);
    json_put_int(model, "parameters", costs->n_parameters);
    json_put_int(model, "trained_parameters", costs->n_trained);
    json_put_int(model, "active_parameters", (int64_t)costs->n_active_parameters);
    json_put_int(model, "seq", costs->seq);
    json_put_int(model, "vocab", costs->vocab);
    json_put_real(model, "flops_per_step", costs->model_flops * report->request->global_batch);
    json_t *cluster = json_put_new(root, "cluster", json_object());
    json_put_name(cluster, "name", facts->cluster->name);
    json_put_name(cluster, "title", facts->cluster->title);
    json_put_name(cluster, "source", facts->cluster->source);
    json_put_name(root, "software", facts->cluster->software.name);
    json_put_int(root, "ranks", report->request->n_ranks);
    json_put_int(root, "nodes", facts->n_nodes);
    json_put_int(root, "global_batch", report->request->global_batch);
    json_put_int(root, "tokens_per_step", (int64_t)facts->n_tokens);
    json_put_name(root, "precision", dtype_name(report->options.precision));
    json_put_name(root, "optimizer_state", dtype_name(report->options.state_dtype));
    json_put_name(root, "gradients", dtype_name(report->options.gradient_dtype));
    json_put_name(root, "masters", report->options.split_masters ? "split" : "whole");
    json_put_real(root, "ema_decay", report->options.ema_decay);
    json_object_set_new(root, "skips_spikes", json_boolean(report->options.skips_spikes));
    json_put_real(root, "qk_clip", report->options.qk_clip);
    json_put_int(root, "offload", report->options.offload);
    json_put_int(root, "offload_activations", report->options.offload_activations);
    json_put_int(root, "frozen_bits", report->options.frozen_bits);
}

static void put_alternatives(json_t *root, const SearchResult *result) {
    json_t *list = json_put_new(root, "alternatives", json_array());
    for (int i = 0; i < result->n_alternatives; i++) {
        const Alternative *of = &result->alternatives[i];
        json_t *json = json_object();
        json_array_append_new(list, json);
        json_put_name(json, "axis", of->axis);
        json_put_name(json, "value", of->value);
        json_object_set_new(json, "fits", json_boolean(of->fits));
        json_put_real(json, "slowdown", of->fits ? of->slowdown - 1 : NAN);
        json_object_set_new(json, "missing_bytes",
                            of->fits ? json_null() : json_integer(of->missing_bytes));
        json_put_name(json, "reason", of->reason);
    }
}

static void put_search(json_t *root, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const SearchResult *result = report->result;
    json_t *refused = json_put_new(root, "refused", json_array());
    for (int i = 0; i < report->n_refused; i++) {
        json_t *json = json_object();
        json_array_append_new(refused, json);
        json_put_candidate(json, &result->found[report->refused[i].found].candidate);
        const char *reason = report->refused[i].reason;
        json_object_set_new(json, "exact_bytes",
                            reason ? json_null() : json_integer(report->refused[i].exact_bytes));
        json_put_name(json, "reason", reason);
    }
    json_put_int(root, "candidates_total", result->n_candidates);
    json_put_int(root, "candidates_fit", result->n_fit);
    json_put_int(root, "candidates_open", result->n_open);
    json_put_real(root, "search_seconds", result->seconds);
    json_put_known(root, "candidates_per_second",
                   result->seconds > 0 ? (double)result->n_candidates / result->seconds : 0);
    put_list(root, "runners_up", facts, facts->others, facts->n_others);
    put_list(root, "pareto", facts, facts->pareto, facts->n_pareto);
    put_alternatives(root, result);
    json_object_set_new(root, "remark", result->remark ? json_name(result->remark) : json_null());
    json_object_set_new(root, "hint", report->hint ? json_name(report->hint) : json_null());
    json_t *warnings = json_put_new(root, "warnings", json_array());
    for (int i = 0; i < report->n_warnings; i++) {
        json_array_append_new(warnings, json_name(report->warnings[i]));
    }
}

void show_search_json(StrBuf *out, const SearchReport *report) {
    Arena *arena = arena_create();
    const SearchFacts *facts = search_facts_create(arena, report);
    const Candidate *best = &facts->best.found->candidate;
    json_t *root = json_object();
    json_put_int(root, "format", 1);
    json_object_set_new(root, "fits", json_true());
    put_head(root, facts);
    json_put_candidate(root, best);
    put_figures(root, facts, &facts->best);
    if (best->e > 1) json_put_int(root, "expert_parts", report->options.expert_parts);
    if (report->options.loss_parts > 1)
        json_put_int(root, "loss_parts", report->options.loss_parts);
    json_t *split = json_put_new(root, "split", json_array());
    for (int i = 0; facts->best.found->split && i < best->p * best->n_chunks; i++) {
        json_array_append_new(split, json_integer(facts->best.found->split[i]));
    }
    json_object_set_new(root, "exact_bytes",
                        report->exact_bytes > 0 ? json_integer(report->exact_bytes) : json_null());
    json_put_name(root, "currency", facts->cluster->currency);
    json_put_known(root, "price_per_device_hour", facts->cluster->price_per_device_hour);
    json_put_known(root, "days_tokens", report->days_tokens);
    json_put_name(root, "bottleneck", facts->bottleneck);
    json_object_set_new(root, "islands", islands_json(facts));
    put_search(root, facts);
    json_put_document(out, root);
    arena_destroy(arena);
}

void show_search_nothing_json(StrBuf *out, const SearchRequest *request, const SearchResult *result,
                              const Cluster *cluster) {
    json_t *root = json_object();
    json_put_int(root, "format", 1);
    json_object_set_new(root, "fits", json_false());
    json_put_name(root, "cluster", cluster->name);
    json_put_int(root, "ranks", request->n_ranks);
    json_put_int(root, "memory_limit_bytes", (int64_t)search_memory_limit(request, cluster));
    json_put_int(root, "missing_bytes", result->least_missing_bytes);
    json_t *closest = json_put_new(root, "closest", json_object());
    json_put_candidate(closest, &result->least_missing);
    put_memory(closest, &result->least_memory, search_memory_limit(request, cluster));
    json_object_set_new(root, "least_ranks",
                        result->least_ranks > 0 ? json_integer(result->least_ranks) : json_null());
    if (result->remedy) {
        json_put_name(root, "remedy", result->remedy);
    } else {
        json_object_set_new(root, "remedy", json_null());
    }
    json_put_int(root, "candidates_total", result->n_candidates);
    json_put_document(out, root);
}
