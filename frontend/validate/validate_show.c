/* Predicted beside measured, as text and as JSON:
 *
 *   format           1; grows when a key changes its meaning
 *   path             the table
 *   seconds          that the predictions took
 *   families.NAME    of each family and, if it has both, of NAME_single and NAME_multi (num_gpus
 *                    within a node or not): rows, skipped, mean_abs_error, max_abs_error, bias
 *                    (mean of error), worst (its id); groups, regret (null without groups)
 *   options          cluster, software: where given, {name, rows (that used it)}
 *   rows[]           id, family, line, cluster, software, measured_seconds, assumed[] (columns
 *                    not stated), overridden[] (stated, but taken otherwise), searched; then either
 * skipped (why) or predicted_seconds, error (predicted / measured - 1), layout {t, c, e, p, d,
 * chunks, micro_batch, micro_batches, recompute, sequence_parallel, zero_stage}, parts {compute,
 * tensor, pipeline, bubble, data, update: seconds}, memory_bytes (of the fullest rank),
 * hardware_flops (of one rank, as run)
 */
#include "frontend/validate/validate.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const RECOMPUTES[N_RECOMPUTES] = {"none", "selective", "full"};

const char *run_choices(const Run *run, char text[CHOICES_TEXT]) {
    const Candidate *candidate = &run->candidate;
    char zero[8] = "", context[16] = "", experts[16] = "";
    if (candidate->zero) snprintf(zero, sizeof(zero), " z%d", candidate->zero);
    if (run->cp > 1) snprintf(context, sizeof(context), " c%d", (int)run->cp);
    if (candidate->e > 1) snprintf(experts, sizeof(experts), " e%d", candidate->e);
    snprintf(text, CHOICES_TEXT, "%s%s%s%s%s", RECOMPUTES[candidate->recompute],
             candidate->sequence_parallel ? " sp" : "", zero, context, experts);
    return text;
}

static const char *column_names(Arena *arena, const char *before, uint64_t columns) {
    const char *text = "", *between = before;
    for (int c = 0; c < N_RUN_COLUMNS; c++) {
        if (!(columns >> c & 1)) continue;
        text = arena_printf(arena, "%s%s%s", text, between, run_column_name((RunColumn)c));
        between = ", ";
    }
    return text;
}

const char *run_assumed(Arena *arena, const Run *run) {
    const char *assumed = column_names(arena, "not stated: ", run->assumed);
    const char *otherwise = column_names(arena, "not taken as stated: ", run->overridden);
    return arena_printf(arena, "%s%s%s", assumed, *assumed && *otherwise ? "; " : "", otherwise);
}

static void put_users(StrBuf *out, const char *option, int n_users, int n_rows, const char *end) {
    strbuf_printf(out, "--%s is used by %d of %d rows%s%s", option, n_users, n_rows,
                  n_users < n_rows ? "; the others' own columns, family or gpu come first" : "",
                  end);
}

void validate_put_users(StrBuf *out, const Validation *result, const char *end) {
    const RunTable *table = result->table;
    if (result->cluster) {
        int n = validate_count_users(table, result->cluster, NULL);
        put_users(out, "cluster", n, table->n_runs, end);
    }
    if (result->software) {
        int n = validate_count_users(table, NULL, result->software);
        put_users(out, "software", n, table->n_runs, end);
    }
}

/* What a family's rows leave open; each kind gets a letter. */
enum { MAX_NOTES = 26 };
typedef struct Notes {
    int count;
    const Run *runs[MAX_NOTES];
} Notes;

static char note_letter(Notes *notes, const Run *run) {
    if (!run->assumed && !run->overridden) return ' ';
    for (int i = 0; i < notes->count; i++) {
        const Run *other = notes->runs[i];
        if (other->assumed == run->assumed && other->overridden == run->overridden) {
            return (char)('a' + i);
        }
    }
    if (notes->count == MAX_NOTES) return '*';
    notes->runs[notes->count] = run;
    return (char)('a' + notes->count++);
}

static void put_row(StrBuf *out, const Run *run, int id_width, Notes *notes) {
    char choices[CHOICES_TEXT];
    strbuf_printf(out, "%-*s %6" PRId64, id_width, run->id, run->num_gpus);
    if (run->skipped) {
        strbuf_printf(out, "  no prediction: %s\n", run->skipped);
        return;
    }
    const Candidate *c = &run->candidate;
    strbuf_printf(out, " %3d %3d %2d %4d %3d %4d %-15s %9.4g %9.4g %+7.1f %% %c\n", c->t, c->p,
                  c->n_chunks, c->d, c->micro_batch, c->n_micro, run_choices(run, choices),
                  run->measured_seconds, run->predicted_seconds, 100 * run->error,
                  note_letter(notes, run));
}

static void put_family_rows(StrBuf *out, const Validation *result, const char *family) {
    Notes notes = {0};
    const RunTable *table = result->table;
    int id_width = 3;
    for (int r = 0; r < table->n_runs; r++) {
        int length = (int)strlen(table->runs[r].id);
        if (run_in_family(&table->runs[r], family) && length > id_width) id_width = length;
    }
    if (id_width > 26) id_width = 26;
    strbuf_printf(out, "%-*s %6s %3s %3s %2s %4s %3s %4s %-15s %9s %9s %9s\n", id_width, "run",
                  "ranks", "t", "p", "v", "d", "b", "m", "recompute", "measured", "predicted",
                  "error");
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        if (run_in_family(run, family)) put_row(out, run, id_width, &notes);
    }
    for (int i = 0; i < notes.count; i++) {
        strbuf_printf(out, "%c: %s\n", 'a' + i, run_assumed(result->arena, notes.runs[i]));
    }
    strbuf_put(out, "\n");
}

static void put_stats(StrBuf *out, const FamilyStats *stats) {
    strbuf_printf(out, "%s%-*s %5d", stats->is_part ? "  " : "", stats->is_part ? 22 : 24,
                  stats->name, stats->n_rows);
    if (stats->n_rows > 0) {
        strbuf_printf(out, " %8.1f %% %8.1f %% %+8.1f %%", 100 * stats->mean_abs_error,
                      100 * stats->max_abs_error, 100 * stats->bias);
    } else {
        strbuf_printf(out, " %10s %10s %10s", "-", "-", "-");
    }
    if (stats->n_groups > 0) {
        strbuf_printf(out, " %8.2f %% %6d", 100 * stats->regret, stats->n_groups);
    } else {
        strbuf_printf(out, " %10s %6s", "-", "-");
    }
    if (stats->n_skipped > 0) strbuf_printf(out, "  (%d not predicted)", stats->n_skipped);
    strbuf_put(out, "\n");
}

void validate_show_text(StrBuf *out, const Validation *result) {
    for (int i = 0; i < result->n_stats; i++) {
        if (!result->stats[i].is_part) put_family_rows(out, result, result->stats[i].name);
    }
    strbuf_printf(out, "%-24s %5s %10s %10s %10s %10s %6s\n", "family", "rows", "mean", "most",
                  "bias", "regret", "groups");
    for (int i = 0; i < result->n_stats; i++) put_stats(out, &result->stats[i]);
    strbuf_put(out,
               "Seconds of a step; error is predicted / measured - 1, mean and most without its "
               "sign. Regret: how\nmuch slower, measured, the layout predicted best is than "
               "the best, where only layouts differ.\n");
    validate_put_users(out, result, ".\n");
}

static json_t *stats_json(const FamilyStats *stats) {
    json_t *json = json_pack("{s:i, s:i}", "rows", stats->n_rows, "skipped", stats->n_skipped);
    if (stats->n_rows > 0) {
        json_object_set_new(json, "mean_abs_error", json_real(stats->mean_abs_error));
        json_object_set_new(json, "max_abs_error", json_real(stats->max_abs_error));
        json_object_set_new(json, "bias", json_real(stats->bias));
        json_object_set_new(json, "worst", json_string(stats->worst->id));
    }
    json_object_set_new(json, "groups", json_integer(stats->n_groups));
    json_object_set_new(json, "regret",
                        stats->n_groups > 0 ? json_real(stats->regret) : json_null());
    return json;
}

static void put_prediction_json(json_t *json, const Run *run) {
    const Candidate *c = &run->candidate;
    const StepCost *cost = &run->cost;
    json_object_set_new(json, "predicted_seconds", json_real(run->predicted_seconds));
    json_object_set_new(json, "error", json_real(run->error));
    json_object_set_new(json, "layout",
                        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:i}", "t",
                                  c->t, "c", (int)run->cp, "e", candidate_e(c), "p", c->p, "d",
                                  c->d, "chunks", c->n_chunks, "micro_batch", c->micro_batch,
                                  "micro_batches", c->n_micro, "recompute",
                                  RECOMPUTES[c->recompute], "sequence_parallel",
                                  c->sequence_parallel, "zero_stage", c->zero));
    json_object_set_new(json, "parts",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "compute",
                                  1e-6 * cost->compute_us, "tensor", 1e-6 * cost->tensor_us,
                                  "pipeline", 1e-6 * cost->pipeline_us, "bubble",
                                  1e-6 * cost->bubble_us, "data", 1e-6 * cost->data_us, "update",
                                  1e-6 * cost->update_us));
    json_object_set_new(json, "memory_bytes", json_integer(cost->memory_bytes));
    json_object_set_new(json, "hardware_flops", json_real(cost->hardware_flops));
}

static json_t *columns_json(uint64_t columns) {
    json_t *names = json_array();
    for (int c = 0; c < N_RUN_COLUMNS; c++) {
        if (!(columns >> c & 1)) continue;
        json_array_append_new(names, json_string(run_column_name((RunColumn)c)));
    }
    return names;
}

static json_t *row_json(const Run *run) {
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:s?, s:s?, s:f, s:b}", "id", run->id, "family", run->family,
                  "line", run->line, "cluster", run->used_cluster, "software", run->used_software,
                  "measured_seconds", run->measured_seconds, "searched", run->searched);
    json_object_set_new(json, "assumed", columns_json(run->assumed));
    json_object_set_new(json, "overridden", columns_json(run->overridden));
    if (run->skipped) {
        json_object_set_new(json, "skipped", json_string(run->skipped));
    } else {
        put_prediction_json(json, run);
    }
    return json;
}

static json_t *options_json(const Validation *result) {
    json_t *json = json_object();
    const RunTable *table = result->table;
    if (result->cluster) {
        int n = validate_count_users(table, result->cluster, NULL);
        json_object_set_new(json, "cluster",
                            json_pack("{s:s, s:i}", "name", result->cluster, "rows", n));
    }
    if (result->software) {
        int n = validate_count_users(table, NULL, result->software);
        json_object_set_new(json, "software",
                            json_pack("{s:s, s:i}", "name", result->software, "rows", n));
    }
    return json;
}

bool validate_show_json(StrBuf *out, const Validation *result, Diag *diag) {
    json_t *families = json_object(), *rows = json_array();
    for (int i = 0; i < result->n_stats; i++) {
        json_object_set_new(families, result->stats[i].name, stats_json(&result->stats[i]));
    }
    for (int r = 0; r < result->table->n_runs; r++) {
        json_array_append_new(rows, row_json(&result->table->runs[r]));
    }
    json_t *json = json_pack("{s:i, s:s, s:f, s:o, s:o, s:o}", "format", 1, "path",
                             result->table->path, "seconds", result->elapsed_seconds, "options",
                             options_json(result), "families", families, "rows", rows);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    if (text) strbuf_printf(out, "%s\n", text);
    if (!text) diag_error(diag, NO_LOC, "%s: cannot be written as JSON", result->table->path);
    free(text);
    json_decref(json);
    return text != NULL;
}
