/* A budget's report as JSON:
 *
 *   format       1;  model, cluster, software  names;  ranks, global_batch;  limit_bytes a device
 *   currency, price_per_device_hour (null: not stated)
 *   days (null: a loss is to be reached), target_loss (null: days are spent), tokens_limit (null)
 *   law {name, source, E, A, alpha, B, beta, draws}
 *   best         a size, or null;  best_share  of the law's draws by which it is; null: no draws
 *   optimum {flops, parameters, tokens, loss}: the law's best use of the best one's FLOPs; null
 *   sizes[]      size, parameters, active_parameters (the law's N), vocab, seq; trouble (null, or
 * why there is no loss); of what fits also mesh {t, d, p}, schedule, chunks, micro_batch,
 *                micro_batches, recompute, zero, sequence_parallel, step_seconds,
 *                tokens_per_second, mfu, memory_bytes, masters, offload, offload_activations,
 *                loss_parts, unusual, goodput (of the steps: see show_goodput.h); and without
 *                trouble steps, tokens, tokens_per_parameter, epochs (null), worth_tokens, loss,
 *                days, device_hours, price (null), beyond_law
 *   planned      null, or a sentence;  search_seconds;  warnings[]
 */
#include "planner/show/budget_facts.h"
#include "planner/show/show_goodput.h"

static void put_law(json_t *root, const BudgetReport *report) {
    const LawTerms *terms = &report->law->terms;
    json_t *law = json_put_new(root, "law", json_object());
    json_put_name(law, "name", report->law_name);
    json_put_name(law, "source", report->law->source);
    json_put_real(law, "E", terms->e);
    json_put_real(law, "A", terms->a);
    json_put_real(law, "alpha", terms->alpha);
    json_put_real(law, "B", terms->b);
    json_put_real(law, "beta", terms->beta);
    json_put_int(law, "draws", report->law->n_draws);
}

static void put_best(json_t *root, const BudgetFacts *facts) {
    int n_draws = facts->report->law->n_draws;
    if (facts->best < 0) {
        json_object_set_new(root, "best", json_null());
        json_object_set_new(root, "best_share", json_null());
        json_object_set_new(root, "optimum", json_null());
        return;
    }
    const BudgetPoint *best = &facts->points[facts->best];
    json_put_name(root, "best", best->row->size);
    if (n_draws > 0) {
        json_put_real(root, "best_share", (double)best->n_best / n_draws);
    } else {
        json_object_set_new(root, "best_share", json_null());
    }
    json_t *optimum = json_put_new(root, "optimum", json_object());
    json_put_real(optimum, "flops", facts->best_flops);
    json_put_real(optimum, "parameters", facts->optimum.parameters);
    json_put_real(optimum, "tokens", facts->optimum.tokens);
    json_put_real(optimum, "loss", facts->optimum.loss);
}

static void put_layout(json_t *json, const BudgetPoint *point) {
    const PlanOptions *options = &point->row->options;
    json_put_candidate(json, &point->found->candidate);
    json_put_real(json, "step_seconds", point->facts.step_seconds);
    json_put_real(json, "tokens_per_second", point->facts.tokens_per_second);
    json_put_known(json, "mfu", point->facts.mfu);
    json_put_int(json, "memory_bytes", point->found->cost.memory_bytes);
    json_put_name(json, "masters", options->split_masters ? "split" : "whole");
    json_put_int(json, "offload", options->offload);
    json_put_int(json, "offload_activations", options->offload_activations);
    json_put_int(json, "loss_parts", options->loss_parts);
    const char *unusual = point->found->unusual ? point->found->why : NULL;
    json_object_set_new(json, "unusual", unusual ? json_name(unusual) : json_null());
    json_put_goodput(json, &point->facts);
}

static void put_spent(json_t *json, const BudgetPoint *point) {
    json_put_real(json, "steps", point->steps);
    json_put_real(json, "tokens", point->tokens);
    json_put_real(json, "tokens_per_parameter", point->per_parameter);
    json_put_known(json, "epochs", point->epochs);
    json_put_real(json, "worth_tokens", point->worth);
    json_put_real(json, "loss", point->loss);
    json_put_real(json, "days", point->days);
    json_put_real(json, "device_hours", point->device_hours);
    json_put_known(json, "price", point->price);
    json_object_set_new(json, "beyond_law", json_boolean(point->beyond));
}

static void put_point(json_t *sizes, const BudgetPoint *point) {
    const ModelCosts *costs = point->row->costs;
    json_t *json = json_object();
    json_array_append_new(sizes, json);
    json_put_name(json, "size", point->row->size);
    if (costs) {
        json_put_int(json, "parameters", costs->n_parameters);
        json_put_int(json, "active_parameters", (int64_t)costs->n_active_parameters);
        json_put_int(json, "vocab", costs->vocab);
        json_put_int(json, "seq", costs->seq);
    }
    json_object_set_new(json, "trouble", point->trouble ? json_name(point->trouble) : json_null());
    if (point->found) put_layout(json, point);
    if (!point->trouble) put_spent(json, point);
}

void show_budget_json(StrBuf *out, const BudgetReport *report) {
    Arena *arena = arena_create();
    const BudgetFacts *facts = budget_facts_create(arena, report);
    json_t *root = json_object();
    json_put_int(root, "format", 1);
    json_put_name(root, "model", report->model);
    json_put_name(root, "cluster", report->cluster->name);
    json_put_name(root, "software", report->cluster->software.name);
    json_put_int(root, "ranks", report->n_ranks);
    json_put_int(root, "global_batch", report->global_batch);
    json_put_int(root, "limit_bytes", (int64_t)facts->limit_bytes);
    json_put_name(root, "currency", report->cluster->currency);
    json_put_known(root, "price_per_device_hour", report->cluster->price_per_device_hour);
    json_put_known(root, "days", report->days);
    json_put_known(root, "target_loss", report->target_loss);
    json_put_known(root, "tokens_limit", report->tokens_limit);
    put_law(root, report);
    put_best(root, facts);
    json_t *sizes = json_put_new(root, "sizes", json_array());
    for (int i = 0; i < facts->n_points; i++) put_point(sizes, &facts->points[i]);
    json_object_set_new(root, "planned",
                        report->planned ? json_name(report->planned) : json_null());
    json_put_real(root, "search_seconds", report->seconds);
    json_t *warnings = json_put_new(root, "warnings", json_array());
    for (int i = 0; i < report->n_warnings; i++) {
        json_array_append_new(warnings, json_name(report->warnings[i]));
    }
    json_put_document(out, root);
    arena_destroy(arena);
}
