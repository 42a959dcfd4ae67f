/* Why each other value of each axis is not the choice, in words and numbers, and which choices lie
 * outside of what predictions were compared with. */
#include "planner/search_records.h"

#include <string.h>

/* The faster first; of what does not fit, what lacks less; then the order of the axes. */
static bool is_better(const SearchRecord *a, const SearchRecord *b) {
    if (a->step_us != b->step_us) return a->step_us < b->step_us;
    if (a->memory_bytes != b->memory_bytes) return a->memory_bytes < b->memory_bytes;
    return a < b;
}

int search_choices(Arena *arena, const SearchRecords *records, SearchChoice **out) {
    SearchChoice *choices = NULL;
    int n = 0, capacity = 0;
    for (int row = 0; row < N_SEARCH_AXES; row++) {
        int first = n, last = n; /* neighbours have the same value more often than not */
        for (int i = 0; i < records->n; i++) {
            const SearchRecord *record = &records->items[i];
            int value = SEARCH_AXES[row].get(&record->candidate);
            if (last >= n || choices[last].value != value) {
                for (last = first; last < n && choices[last].value != value;) last++;
            }
            if (last == n) {
                SearchChoice choice = {row, value, record};
                ARENA_PUSH(arena, choices, n, capacity, choice);
            } else if (is_better(record, choices[last].best)) {
                choices[last].best = record;
            }
        }
        for (int i = first + 1; i < n; i++) { /* ascending values */
            SearchChoice choice = choices[i];
            int at = i;
            for (; at > first && choices[at - 1].value > choice.value; at--) {
                choices[at] = choices[at - 1];
            }
            choices[at] = choice;
        }
    }
    *out = choices;
    return n;
}

/* The part of the step that takes longest beyond the winner's. */
static const char *grown_part(const StepCost *other, const StepCost *winner, bool recomputes,
                              double *out_us) {
    const struct {
        const char *words;
        double us;
    } parts[] = {
        {recomputes ? "recomputation" : "arithmetic", other->compute_us - winner->compute_us},
        {"messages of tensor parallelism", other->tensor_us - winner->tensor_us},
        {"messages between stages", other->pipeline_us - winner->pipeline_us},
        {"the pipeline's bubble", other->bubble_us - winner->bubble_us},
        {"reductions of data parallelism", other->data_us - winner->data_us},
        {"the optimizer", other->update_us - winner->update_us},
    };
    int most = 0;
    for (int i = 1; i < 6; i++) {
        if (parts[i].us > parts[most].us) most = i;
    }
    *out_us = parts[most].us;
    return parts[most].words;
}

static const char *duration_text(Arena *arena, double us) {
    if (us >= 9.995e5) return arena_printf(arena, "%.2f s", us / 1e6);
    return us >= 999.5 ? arena_printf(arena, "%.0f ms", us / 1e3)
                       : arena_printf(arena, "%.0f us", us);
}

static const char *bytes_text(Arena *arena, double bytes) {
    double gib = bytes / (1 << 30);
    if (gib >= 99.5) return arena_printf(arena, "%.0f GiB", gib);
    return gib >= 0.995 ? arena_printf(arena, "%.1f GiB", gib)
                        : arena_printf(arena, "%.0f MiB", bytes / (1 << 20));
}

/* What can be said of the value before any pricing, or "". */
static const char *value_remark(const SearchRecords *records, const Candidate *candidate,
                                const char *axis) {
    int node = records->costs->cluster->node.n_devices;
    if (strcmp(axis, "t") == 0 && candidate->t > node) return " leaves the node's fast links";
    return "";
}

static const char *reason_of(Arena *arena, const SearchRecords *records, const Alternative *other,
                             const StepCost *cost, const Found *winner) {
    const char *head = arena_printf(arena, "%s=%s%s", other->axis, other->value,
                                    value_remark(records, &other->best, other->axis));
    bool recomputes = other->best.recompute > winner->candidate.recompute;
    double percent = (other->slowdown - 1) * 100, grown_us;
    const char *part = grown_part(cost, &winner->cost, recomputes, &grown_us);
    if (percent < 0.05) {
        double more = (double)(cost->memory_bytes - winner->cost.memory_bytes);
        return arena_printf(arena, "%s: as fast, with %s %s memory", head,
                            bytes_text(arena, fabs(more)), more < 0 ? "less" : "more");
    }
    return arena_printf(arena, "%s: %+.*f %% step time, most for %s (%s more)", head,
                        percent < 9.95 ? 1 : 0, percent, part, duration_text(arena, grown_us));
}

void search_explain(Arena *arena, const SearchRecords *records, const SearchChoice *choices,
                    int n_choices, const Found *priced, double limit_bytes, SearchResult *result) {
    const Found *winner = &result->found[0];
    int n_most = n_choices + records->n_refusals;
    result->alternatives = ARENA_ARRAY(arena, Alternative, n_most + 1);
    for (int i = 0; i < n_choices; i++) {
        const SearchAxis *axis = &SEARCH_AXES[choices[i].axis];
        const Found *found = &priced[i];
        if (axis->get(&winner->candidate) == choices[i].value) continue;
        Alternative *other = &result->alternatives[result->n_alternatives++];
        *other = (Alternative){.axis = axis->name,
                               .value = search_value_text(arena, axis, choices[i].value),
                               .fits = choices[i].best->step_us < INFINITY,
                               .best = found->candidate};
        if (other->fits) {
            other->slowdown = found->cost.step_us / winner->cost.step_us;
            other->reason = reason_of(arena, records, other, &found->cost, winner);
        } else {
            double missing = (double)choices[i].best->memory_bytes - limit_bytes;
            other->missing_bytes = (int64_t)ceil(missing);
            other->reason = arena_printf(arena, "%s=%s does not fit: %s missing per device",
                                         other->axis, other->value, bytes_text(arena, missing));
        }
    }
    for (int i = 0; i < records->n_refusals; i++) {
        Alternative *other = &result->alternatives[result->n_alternatives++];
        const SearchRefusal *refusal = &records->refusals[i];
        *other = (Alternative){
            .axis = "t", .value = arena_printf(arena, "%d", refusal->t), .best = {.t = refusal->t}};
        other->reason = arena_printf(arena, "t=%d cannot be: %s", refusal->t, refusal->reason);
    }
}

/* What predictions were compared with: published runs, by the devices they ran on. */
static const struct {
    const char *device; /* part of its name; "": any */
    int most_ranks;
} COMPARED_RANKS[] = {{"A100", 3072}, {"H100", 4608}, {"", 4608}};

enum {
    COMPARED_P = 64,
    COMPARED_MICRO_BATCH = 16,
    COMPARED_HIDDEN_LEAST = 1024,
    COMPARED_HIDDEN_MOST = 25600
};

static int compared_ranks(const char *device) {
    int i = 0;
    while (!strstr(device ? device : "", COMPARED_RANKS[i].device)) i++;
    return COMPARED_RANKS[i].most_ranks;
}

/* A block of a transformer has about 12 h^2 parameters. */
static double guess_hidden(const ModelCosts *costs) {
    return sqrt((double)costs->n_parameters / (12.0 * costs->n_blocks));
}

void search_flag_unusual(Arena *arena, const ModelCosts *costs, Found *found) {
    const Candidate *c = &found->candidate;
    int node = costs->cluster->node.n_devices, ranks = c->t * c->p * c->d;
    int most_ranks = compared_ranks(costs->cluster->device.name);
    double hidden = guess_hidden(costs);
    const char *why = NULL;
    if (c->t > node || c->t > 8) {
        why =
            arena_printf(arena, "no measured run had t over 8 or out of a node; this has %d", c->t);
    } else if (c->p > COMPARED_P) {
        why = arena_printf(arena, "no measured run had p over %d; this has %d", COMPARED_P, c->p);
    } else if (ranks > most_ranks) {
        why = arena_printf(arena, "no measured run had over %d ranks; this has %d", most_ranks,
                           ranks);
    } else if (c->micro_batch > COMPARED_MICRO_BATCH) {
        why = arena_printf(arena, "no measured run had micro-batches over %d; this has %d",
                           COMPARED_MICRO_BATCH, c->micro_batch);
    } else if (costs->n_parameters > 0 &&
               (hidden < COMPARED_HIDDEN_LEAST / 1.5 || hidden > COMPARED_HIDDEN_MOST * 1.5)) {
        why = arena_printf(arena, "measured models were %d to %d wide; this is about %.0f",
                           COMPARED_HIDDEN_LEAST, COMPARED_HIDDEN_MOST, hidden);
    }
    found->unusual = why != NULL;
    found->why = why;
}
