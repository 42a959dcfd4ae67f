/* Errors and regret, by family. */
#include "frontend/validate/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_int(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

static int compare_text(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "");
}

/* 0: the two differ in their layout alone. */
static int compare_jobs(const Run *a, const Run *b) {
    const int64_t pairs[][2] = {
        {a->layers, b->layers},
        {a->hidden, b->hidden},
        {a->heads, b->heads},
        {a->kv_heads, b->kv_heads},
        {a->ffn, b->ffn},
        {a->seq, b->seq},
        {a->vocab, b->vocab},
        {a->num_gpus, b->num_gpus},
        {a->gpus_per_node, b->gpus_per_node},
        {a->global_batch, b->global_batch},
        {a->cp, b->cp},
        {a->math, b->math},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        int order = compare_int(pairs[i][0], pairs[i][1]);
        if (order) return order;
    }
    int order = memcmp(&a->more, &b->more, sizeof(a->more));
    if (!order) order = compare_text(a->family, b->family);
    if (!order) order = compare_text(a->gpu, b->gpu);
    if (!order) order = compare_text(a->cluster, b->cluster);
    return order ? order : compare_text(a->software, b->software);
}

static int compare_layouts(const Run *a, const Run *b) {
    const int64_t pairs[][2] = {
        {a->t, b->t},
        {a->ep, b->ep},
        {a->etp, b->etp},
        {a->p, b->p},
        {a->d, b->d},
        {a->v, b->v},
        {a->micro_batch, b->micro_batch},
        {a->recompute, b->recompute},
        {a->sequence_parallel, b->sequence_parallel},
        {a->zero, b->zero},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        int order = compare_int(pairs[i][0], pairs[i][1]);
        if (order) return order;
    }
    return compare_text(a->schedule, b->schedule);
}

/* By job, then layout, then line. */
static int compare_rows(const void *a, const void *b) {
    const Run *left = *(const Run *const *)a, *right = *(const Run *const *)b;
    int order = compare_jobs(left, right);
    if (!order) order = compare_layouts(left, right);
    return order ? order : compare_int(left->line, right->line);
}

/* Of one job's rows: measured time of the layout predicted best over the best measured, minus 1.
 * Rows that repeat a layout count with their mean. */
static double regret_of(const Run *const *rows, int n_rows) {
    double best_measured = INFINITY, best_predicted = INFINITY, picked = INFINITY;
    for (int first = 0, next; first < n_rows; first = next) {
        double measured = 0;
        for (next = first; next < n_rows && compare_layouts(rows[first], rows[next]) == 0; next++) {
            measured += rows[next]->measured_seconds;
        }
        measured /= next - first;
        best_measured = fmin(best_measured, measured);
        if (rows[first]->predicted_seconds >= best_predicted) continue;
        best_predicted = rows[first]->predicted_seconds;
        picked = measured;
    }
    return picked / best_measured - 1;
}

static void add_regret(Arena *arena, const RunTable *table, FamilyStats *stats) {
    const Run **rows = ARENA_ARRAY(arena, const Run *, stats->n_rows + 1);
    int n_rows = 0;
    double sum = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        bool counts = !run->skipped && !run->searched && run_in_family(run, stats->name);
        if (counts) rows[n_rows++] = run;
    }
    if (n_rows > 1) qsort(rows, (size_t)n_rows, sizeof(rows[0]), compare_rows);
    for (int first = 0, next; first < n_rows; first = next) {
        bool differ = false;
        for (next = first; next < n_rows && compare_jobs(rows[first], rows[next]) == 0; next++) {
            differ |= compare_layouts(rows[first], rows[next]) != 0;
        }
        if (!differ) continue;
        sum += regret_of(rows + first, next - first);
        stats->n_groups++;
    }
    if (stats->n_groups > 0) stats->regret = sum / stats->n_groups;
}

static FamilyStats family_stats(Arena *arena, const RunTable *table, const char *name) {
    FamilyStats stats = {.name = name};
    double sum = 0, sum_abs = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        if (!run_in_family(run, name)) continue;
        if (run->skipped) {
            stats.n_skipped++;
            continue;
        }
        stats.n_rows++;
        sum += run->error;
        sum_abs += fabs(run->error);
        if (stats.worst && fabs(run->error) <= fabs(stats.worst->error)) continue;
        stats.worst = run;
    }
    if (stats.n_rows > 0) {
        stats.mean_abs_error = sum_abs / stats.n_rows;
        stats.bias = sum / stats.n_rows;
        stats.max_abs_error = fabs(stats.worst->error);
    }
    add_regret(arena, table, &stats);
    return stats;
}

FamilyStats *validate_stats(Arena *arena, const RunTable *table, int *out_count) {
    FamilyStats *all = NULL;
    int count = 0, capacity = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const char *family = table->runs[r].family;
        bool seen = false;
        for (int i = 0; i < count && !seen; i++) seen = strcmp(all[i].name, family) == 0;
        if (seen) continue;
        FamilyStats whole = family_stats(arena, table, family), parts[2];
        ARENA_PUSH(arena, all, count, capacity, whole);
        int total[2];
        for (int i = 0; i < 2; i++) {
            const char *name = arena_printf(arena, "%s_%s", family, i == 0 ? "single" : "multi");
            parts[i] = family_stats(arena, table, name);
            parts[i].is_part = true;
            total[i] = parts[i].n_rows + parts[i].n_skipped;
        }
        for (int i = 0; i < 2 && total[0] > 0 && total[1] > 0; i++) {
            ARENA_PUSH(arena, all, count, capacity, parts[i]);
        }
    }
    *out_count = count;
    return all;
}
