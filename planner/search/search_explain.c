/* Why each other value of each axis is not the choice, in words and numbers, and which choices lie
 * outside of what predictions were compared with. */
#include "planner/search/search_records.h"

#include <string.h>

bool search_is_better(const SearchRecord *a, const SearchRecord *b) {
    if (a->step_us != b->step_us) return a->step_us < b->step_us;
    if (a->memory_bytes != b->memory_bytes) return a->memory_bytes < b->memory_bytes;
    return a < b;
}

int search_choices(Arena *arena, SearchRecords *records, double limit_bytes, SearchChoice **out) {
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
            } else if (search_is_better(record, choices[last].best)) {
                choices[last].best = record;
            }
        }
        for (int i = first; i < n; i++) {
            if (choices[i].best->step_us < INFINITY) continue;
            search_settle_best(records, row, choices[i].value, limit_bytes, &choices[i].best);
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

/* Why stages compute for longer. */
static const char *compute_words(const Candidate *other, const Candidate *winner) {
    if (other->recompute > winner->recompute) return "recomputation";
    if (other->micro_batch < winner->micro_batch) return "smaller products";
    return "arithmetic";
}

/* The part of the step that grew most. */
static const char *grown_part(const StepCost *other, const StepCost *winner, double *out_us) {
    const struct {
        const char *words;
        double us;
    } parts[] = {
        {NULL, other->compute_us - winner->compute_us},
        {"messages of tensor parallelism", other->tensor_us - winner->tensor_us},
        {"messages between stages", other->pipeline_us - winner->pipeline_us},
        {"the pipeline's bubble", other->wait_us - winner->wait_us},
        {"stages that are less even",
         (other->bubble_us - other->wait_us) - (winner->bubble_us - winner->wait_us)},
        {"reductions of data parallelism", other->data_us - winner->data_us},
        {"the optimizer", other->update_us - winner->update_us},
    };
    int most = 0;
    for (size_t i = 1; i < sizeof(parts) / sizeof(*parts); i++) {
        if (parts[i].us > parts[most].us) most = (int)i;
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
    double percent = (other->slowdown - 1) * 100, grown_us;
    const char *part = grown_part(cost, &winner->cost, &grown_us);
    if (!part) part = compute_words(&other->best, &winner->candidate);
    if (percent < 0.05) {
        double more = (double)(cost->memory_bytes - winner->cost.memory_bytes);
        return arena_printf(arena, "%s: as fast, with %s %s memory", head,
                            bytes_text(arena, fabs(more)), more < 0 ? "less" : "more");
    }
    return arena_printf(arena, "%s: %+.*f %% step time, most for %s (%s more)", head,
                        percent < 9.95 ? 1 : 0, percent, part, duration_text(arena, grown_us));
}

/* Where captured graphs alone are what does not fit: their share, or "". */
static const char *graphs_remark(Arena *arena, const Found *found, double missing_bytes) {
    double bytes = (double)step_graph_bytes(&found->cost);
    if (bytes < missing_bytes || bytes == 0) return "";
    return arena_printf(arena, ", where captured graphs of %d micro-batches take %s",
                        found->candidate.n_micro, bytes_text(arena, bytes));
}

/* What the node's memory lacks is missing on the device. */
static const char *host_remark(Arena *arena, const Cluster *cluster, const StepCost *cost) {
    double bytes = (double)step_missing_host_bytes(cluster, cost);
    if (bytes == 0) return "";
    return arena_printf(arena, ", as its node has no room for %s of what is offloaded",
                        bytes_text(arena, bytes));
}

/* Is there any candidate of this tensor degree? */
static bool is_priced(const SearchChoice *choices, int n_choices, int t) {
    for (int i = 0; i < n_choices; i++) {
        if (strcmp(SEARCH_AXES[choices[i].axis].name, "t") == 0 && choices[i].value == t) {
            return true;
        }
    }
    return false;
}

/* Data degrees that the batch rules out, as one row: there can be many. */
static void add_refused_d(Arena *arena, const SearchRecords *records, SearchResult *result) {
    enum { MOST_LISTED = 12 };
    int refused[MOST_VALUES], n = search_list_d(&records->space, false, refused);
    if (n == 0 || records->space.request->d != ANY) return;
    const char *values = "";
    for (int i = 0; i < n; i++) {
        if (n > MOST_LISTED && i == MOST_LISTED - 2)
            values = arena_printf(arena, "%s, ...", values);
        if (n > MOST_LISTED && i >= MOST_LISTED - 2 && i + 1 < n) continue;
        values = arena_printf(arena, "%s%s%d", values, i ? ", " : "", refused[i]);
    }
    Alternative *other = &result->alternatives[result->n_alternatives++];
    *other = (Alternative){.axis = "d", .value = values};
    other->reason = arena_printf(arena, "d=%s cannot be: global batch %d is no multiple", values,
                                 records->space.global_batch);
}

/* With replicas it is not the mesh's d that alternatives differ in. */
static const char *alternative_name(const SearchAxis *axis, const Found *winner) {
    bool data = strcmp(axis->name, "d") == 0 && candidate_r(&winner->candidate) > 1;
    return data ? "r x d" : axis->name;
}

void search_explain(Arena *arena, const SearchRecords *records, const SearchChoice *choices,
                    int n_choices, const Found *priced, double limit_bytes, SearchResult *result) {
    const Found *winner = &result->found[0];
    int n_most = n_choices + records->n_refusals + 1;
    result->alternatives = ARENA_ARRAY(arena, Alternative, n_most + 1);
    for (int i = 0; i < n_choices; i++) {
        const SearchAxis *axis = &SEARCH_AXES[choices[i].axis];
        const Found *found = &priced[i];
        if (axis->get(&winner->candidate) == choices[i].value) continue;
        Alternative *other = &result->alternatives[result->n_alternatives++];
        *other = (Alternative){.axis = alternative_name(axis, winner),
                               .value = search_value_text(arena, axis, choices[i].value),
                               .fits = choices[i].best->step_us < INFINITY,
                               .best = found->candidate};
        if (other->fits) {
            other->slowdown = found->cost.step_us / winner->cost.step_us;
            other->reason = reason_of(arena, records, other, &found->cost, winner);
        } else {
            double missing = (double)choices[i].best->memory_bytes - limit_bytes;
            other->missing_bytes = (int64_t)ceil(missing);
            other->reason = arena_printf(arena, "%s=%s does not fit: %s missing per device%s%s",
                                         other->axis, other->value, bytes_text(arena, missing),
                                         graphs_remark(arena, found, missing),
                                         host_remark(arena, records->costs->cluster, &found->cost));
        }
    }
    for (int i = 0; i < records->n_refusals; i++) {
        if (is_priced(choices, n_choices, records->refusals[i].t)) continue; /* in another way */
        Alternative *other = &result->alternatives[result->n_alternatives++];
        const SearchRefusal *refusal = &records->refusals[i];
        *other = (Alternative){
            .axis = "t", .value = arena_printf(arena, "%d", refusal->t), .best = {.t = refusal->t}};
        other->reason = arena_printf(arena, "t=%d cannot be: %s", refusal->t, refusal->reason);
    }
    add_refused_d(arena, records, result);
}

/* What predictions were compared with: published runs, by the devices they ran on. A search finds
 * whatever its prices are too low for; outside of these ranges nobody has checked them. */
static const struct {
    const char *device; /* part of its name */
    int most_ranks;
} COMPARED[] = {{"A100", 3072}, {"H100", 4608}};

enum {
    COMPARED_T = 8,
    COMPARED_P = 64,
    COMPARED_CHUNKS = 23, /* Megatron's tables for H100 */
    COMPARED_MICRO_BATCH = 16,
    COMPARED_HIDDEN_LEAST = 1024,
    COMPARED_HIDDEN_MOST = 25600,
    COMPARED_MFU = 57 /* per cent of peak, nothing recomputed (Korthikanti et al. 2022) */
};

/* 0: no run on such a device was compared. */
static int compared_ranks(const char *device) {
    for (size_t i = 0; device && i < sizeof(COMPARED) / sizeof(COMPARED[0]); i++) {
        if (strstr(device, COMPARED[i].device)) return COMPARED[i].most_ranks;
    }
    return 0;
}

/* A block of a transformer has about 12 h^2 parameters. */
static double guess_hidden(const ModelCosts *costs) {
    return sqrt((double)costs->n_parameters / (12.0 * fmax(costs->n_blocks, 1)));
}

static double percent_of_peak(const ModelCosts *costs, const Found *found) {
    const Candidate *c = &found->candidate;
    double peak = costs->cluster->device.peak_flops[MATH_BF16];
    double sequences =
        (double)c->micro_batch * c->n_micro / c->t / candidate_c(c) / c->p; /* of one rank */
    if (peak <= 0 || found->cost.step_us <= 0) return 0;
    return 100 * costs->model_flops * sequences / (found->cost.step_us * 1e-6) / peak;
}

void search_flag_unusual(Arena *arena, const ModelCosts *costs, Found *found) {
    const Candidate *c = &found->candidate;
    double hidden = guess_hidden(costs);
    const char *device = costs->cluster->device.name;
    int most_ranks = compared_ranks(device), node = costs->cluster->node.n_devices;
    const struct {
        const char *what;
        double most, is;
    } ranges[] = {
        {"t", node < COMPARED_T ? node : COMPARED_T, c->t}, /* never out of a node */
        {"p", COMPARED_P, c->p},
        {"chunks", COMPARED_CHUNKS, c->n_chunks},
        {"ranks", most_ranks > 0 ? most_ranks : INFINITY,
         (double)c->t * c->p * candidate_replicas(c) * candidate_r(c)},
        {"micro-batch", COMPARED_MICRO_BATCH, c->micro_batch},
        {"hidden size about", COMPARED_HIDDEN_MOST, floor(hidden / 1.2)},
        {"% of peak", COMPARED_MFU, floor(percent_of_peak(costs, found))},
    };
    const char *why = "";
    if (most_ranks == 0) {
        why = arena_printf(arena, "device %s (compared: %s, %s)", device ? device : "unknown",
                           COMPARED[0].device, COMPARED[1].device);
    }
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (ranges[i].is <= ranges[i].most) continue;
        why = arena_printf(arena, "%s%s%s %.0f (compared: to %.0f)", why, *why ? ", " : "",
                           ranges[i].what, ranges[i].is, ranges[i].most);
    }
    if (costs->n_parameters > 0 && hidden * 1.2 < COMPARED_HIDDEN_LEAST) {
        why = arena_printf(arena, "%s%shidden size about %.0f (compared: from %d)", why,
                           *why ? ", " : "", hidden, COMPARED_HIDDEN_LEAST);
    }
    found->unusual = *why != 0;
    found->why = found->unusual ? why : NULL;
}
