/* What a search says when there is nothing to search, or nothing fits. */
#include "ir/base/strbuf.h"
#include "planner/search/search_records.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_RANKS = 1 << 22, N_FIXED = 6 };
static const char FIXED_NAMES[] = "tpdcer";

static int most_ranks(const Cluster *cluster) {
    return cluster->max_devices > 0 && cluster->max_devices < MOST_RANKS ? (int)cluster->max_devices
                                                                         : MOST_RANKS;
}

/* The product of the degrees that are fixed, and its factors in words: "t x d = 16". */
static int64_t fixed_product(const SearchRequest *r, char *words, size_t size) {
    const int sizes[N_FIXED] = {r->t, r->p, r->d, r->c, r->e, r->r};
    int64_t product = 1;
    size_t n = 0;
    for (int i = 0; i < N_FIXED; i++) {
        if (sizes[i] == ANY) continue;
        product *= sizes[i];
        n += (size_t)snprintf(words + n, size - n, "%s%c=%d", n ? " x " : "", FIXED_NAMES[i],
                              sizes[i]);
    }
    return product;
}

static bool check_mesh(const SearchSpace *space, Diag *diag) {
    const SearchRequest *r = space->request;
    int n = space->n_ranks;
    const int sizes[N_FIXED] = {r->t, r->p, r->d, r->c, r->e, r->r};
    char words[96];
    for (int i = 0; i < N_FIXED; i++) {
        if (sizes[i] >= 0 && (sizes[i] == ANY || n % sizes[i] == 0)) continue;
        diag_error(diag, NO_LOC, "%c=%d does not divide %d ranks", FIXED_NAMES[i], sizes[i], n);
        return false;
    }
    int64_t product = fixed_product(r, words, sizeof(words));
    bool all = r->t != ANY && r->p != ANY && r->d != ANY;
    if (all && product != n) {
        diag_error(diag, NO_LOC, "%s are %lld ranks, not %d", words, (long long)product, n);
    } else if (n % product) {
        diag_error(diag, NO_LOC, "%s = %lld does not divide %d ranks", words, (long long)product,
                   n);
    } else {
        return true;
    }
    return false;
}

/* `data`: ranks that divide the batch, as far as they are fixed. */
static bool check_experts(const SearchSpace *space, int e, int64_t data, Diag *diag) {
    const SearchRequest *r = space->request;
    int64_t n_experts = space->costs->n_experts, t = r->t != ANY ? r->t : 1;
    int64_t unit = data * (r->micro_batch != ANY ? r->micro_batch : 1);
    if (n_experts == 0) {
        diag_error(diag, NO_LOC, "--ep %d: the model has no axis 'experts' to divide", e);
    } else if (n_experts % (t * e) != 0) {
        diag_error(diag, NO_LOC, "the model's %" PRId64 " experts are no multiple of t=%d x e=%d",
                   n_experts, (int)t, e);
    } else if (r->micro_batch < 0 || space->global_batch % unit != 0) {
        diag_error(diag, NO_LOC, "global batch %d is not a multiple of micro-batch %d x d x e %d",
                   space->global_batch, r->micro_batch != ANY ? r->micro_batch : 1, (int)data);
    } else {
        return true;
    }
    return false;
}

static bool check_batch(const SearchSpace *space, Diag *diag) {
    const SearchRequest *r = space->request;
    int c = search_fixed_c(space), e = search_fixed_e(space);
    int d = r->d != ANY ? search_fixed_data(r) : 1;
    if (r->lanes > 1 && r->micro_batch % r->lanes) {
        diag_error(diag, NO_LOC,
                   "--lanes %d: a micro-batch of %d is no multiple of it, so lanes would differ",
                   r->lanes, r->micro_batch);
        return false;
    }
    bool both = e == ANY && r->d == ANY; /* d x e follows, whatever e is */
    if (r->d == ANY && r->t != ANY && r->p != ANY && c != ANY) {
        d = space->n_ranks / r->t / r->p / c / (both ? 1 : e);
    }
    if (e > 1) return check_experts(space, e, (int64_t)d * e, diag);
    if (space->global_batch % d) {
        diag_error(diag, NO_LOC, "%sd%s=%d does not divide global batch %d",
                   r->r > 1 && r->d != ANY ? "r x " : "",
                   both && space->costs->n_experts > 0 ? " x e" : "", d, space->global_batch);
    } else if (r->micro_batch < 0 || (r->micro_batch != ANY &&
                                      space->global_batch % ((int64_t)r->micro_batch * d) != 0)) {
        diag_error(diag, NO_LOC, "global batch %d is not a multiple of micro-batch %d x %sd %d",
                   space->global_batch, r->micro_batch, r->r > 1 && r->d != ANY ? "r x " : "", d);
    } else {
        return true;
    }
    return false;
}

/* Blocks over stages, where p is fixed or follows from t and d; over chunks, where these are. */
static bool check_blocks(const SearchSpace *space, Diag *diag) {
    const SearchRequest *r = space->request;
    const ClusterSoftware *software = &space->costs->cluster->software;
    int c = search_fixed_c(space), e = search_fixed_e(space), p = r->p != ANY ? r->p : 1;
    if (r->p == ANY && r->t != ANY && r->d != ANY && c != ANY && e != ANY) {
        p = space->n_ranks / r->t / search_fixed_data(r) / c / e;
    }
    int v = r->n_chunks != ANY ? r->n_chunks : 1, n_blocks = space->costs->n_blocks;
    char words[64];
    if (v < 0 || v > MAX_CHUNKS) {
        diag_error(diag, NO_LOC, "%d chunks a stage: must be 1 to %d", v, MAX_CHUNKS);
        return false;
    }
    snprintf(words, sizeof(words), v > 1 ? "p=%d x %d chunks" : "p=%d", p, v);
    if ((int64_t)p * v > n_blocks + MOST_BARE_CHUNKS) {
        diag_error(diag, NO_LOC, "%s needs at least %d blocks; the model has %d", words,
                   p * v - MOST_BARE_CHUNKS, n_blocks);
    } else if (space->costs->offload_activations && p * v >= n_blocks) {
        diag_error(diag, NO_LOC,
                   "%s with --offload activations needs more blocks than that, as the last of a "
                   "chunk keeps its values; the model has %d",
                   words, n_blocks);
    } else if (software->even_split && !blocks_split_evenly(software, n_blocks, p * v)) {
        diag_error(diag, NO_LOC,
                   "%s: software %s splits blocks evenly, and the model's %d are no multiple of %d",
                   words, software->name, n_blocks, p * v);
    } else {
        return true;
    }
    return false;
}

bool search_check_request(const ModelCosts *costs, const SearchSpace *space, Diag *diag) {
    const SearchRequest *request = space->request;
    int most = most_ranks(costs->cluster);
    if (space->n_ranks < 1 || space->n_ranks > most) {
        diag_error(diag, NO_LOC, "%d ranks: %s has %s%d", space->n_ranks, costs->cluster->name,
                   most > 1 ? "1 to " : "", most);
        return false;
    }
    if (space->global_batch < 1) {
        diag_error(diag, NO_LOC, "a global batch of %d sequences: must be at least 1",
                   space->global_batch);
        return false;
    }
    if (request->schedule && space->schedule < 0) {
        diag_error(diag, NO_LOC, "there is no schedule '%s'", request->schedule);
        for (int i = 0; schedule_name(i); i++) {
            diag_note(diag, NO_LOC, "%s: %s", schedule_name(i), schedule_help(i));
        }
        return false;
    }
    if (request->recompute >= N_RECOMPUTES || request->zero >= N_ZERO_STAGES) {
        diag_error(diag, NO_LOC, "recomputation is none, selective or full, ZeRO's stage 0 to 3");
        return false;
    }
    if (request->r > 1 && (request->zero == ZERO_NOTHING || request->d == 1)) {
        diag_error(diag, NO_LOC, "r=%d repeats what --zero divides over d, and %s", request->r,
                   request->d == 1 ? "d is 1" : "--zero is 0");
        return false;
    }
    return check_mesh(space, diag) && check_batch(space, diag) && check_blocks(space, diag);
}

/* The nearest number of ranks, in whole nodes where it was nodes, that divides in many ways. */
static int find_near(const SearchSpace *space, int by, int wanted) {
    const Cluster *cluster = space->costs->cluster;
    int node = space->n_ranks < cluster->node.n_devices ? 1 : cluster->node.n_devices;
    int first = by > 0 ? (space->n_ranks / node + 1) * node : (space->n_ranks - 1) / node * node;
    for (int n = first, i = 0; n > 0 && n <= most_ranks(cluster) && i < 512; n += by * node, i++) {
        if (search_count_meshes(space, n) >= wanted) return n;
    }
    return 0;
}

/* "960 or 1008": with so many meshes at least; NULL: there are none near by. */
static const char *near_ranks(Arena *arena, const SearchSpace *space, int wanted) {
    int below = find_near(space, -1, wanted), above = find_near(space, 1, wanted);
    if (below && above) return arena_printf(arena, "%d or %d", below, above);
    return below || above ? arena_printf(arena, "%d", below ? below : above) : NULL;
}

const char *search_remark(Arena *arena, const SearchSpace *space) {
    enum { MOST_LISTED = 8 };
    int allowed[MOST_VALUES], refused[MOST_VALUES], n = space->n_ranks;
    int n_allowed = search_list_d(space, true, allowed);
    if (space->request->d != ANY || n_allowed > MOST_LISTED ||
        search_list_d(space, false, refused) <= n_allowed) {
        return NULL;
    }
    StrBuf list = strbuf_create();
    for (int i = 0; i < n_allowed; i++) {
        strbuf_printf(&list, "%s%d", i ? ", " : "", allowed[i]);
    }
    const char *near = near_ranks(arena, space, 2 * search_count_meshes(space, n));
    const char *remark =
        arena_printf(arena, "global batch %d rules out every d of %d ranks but %s%s%s%s",
                     space->global_batch, n, list.text, near ? ": " : "", near ? near : "",
                     near ? " ranks can be divided in more ways, and may be faster" : "");
    strbuf_destroy(&list);
    return remark;
}

/* `why` no mesh of so many ranks can be. */
static void report_ranks(const SearchRecords *records, const char *why, Diag *diag) {
    const char *near = NULL;
    int n = records->space.n_ranks;
    for (int wanted = 8; wanted >= 1 && !near; wanted /= 2) {
        near = near_ranks(records->arena, &records->space, wanted);
    }
    if (near) {
        diag_error(diag, NO_LOC, "%d ranks cannot be divided: %s; %s ranks would do", n, why, near);
    } else {
        diag_error(diag, NO_LOC, "%d ranks cannot be divided: %s, nor with any count near it", n,
                   why);
    }
}

static const char *why_no_mesh(const SearchRecords *records) {
    const ModelCosts *costs = records->costs;
    const ClusterSoftware *software = &costs->cluster->software;
    const char *evenly = "";
    if (software->even_split) {
        evenly = arena_printf(records->arena,
                              " where p divides the model's %d blocks, which software %s splits "
                              "evenly",
                              costs->n_blocks, software->name);
    }
    int c = records->space.request->c;
    if (c > 1 && costs->seq % (2 * (int64_t)c) != 0) {
        return arena_printf(records->arena,
                            "c=%d deals out 2 c equal chunks of a sequence, and %" PRId64
                            " positions are no multiple of %d",
                            c, costs->seq, 2 * c);
    }
    return arena_printf(records->arena, "no d%s = ranks / (t x c x p) divides global batch %d%s",
                        costs->n_experts > 0 ? " x e" : "", records->space.global_batch, evenly);
}

/* Every tensor degree that the batch leaves is one that the model does not allow. What the model
 * would allow instead is beside the point, as the batch does not leave it. */
static const char *why_all_refused(const SearchRecords *records) {
    StrBuf list = strbuf_create();
    for (int i = 0; i < records->n_refusals && i < 4; i++) {
        strbuf_printf(&list, "%s%d", i ? ", " : "", records->refusals[i].t);
    }
    const char *reason = records->refusals[0].reason, *instead = strrchr(reason, ';');
    const char *why =
        arena_printf(records->arena, "global batch %d leaves only t=%s%s (%.*s)",
                     records->space.global_batch, list.text, records->n_refusals > 4 ? ", ..." : "",
                     (int)(instead ? instead - reason : (ptrdiff_t)strlen(reason)), reason);
    strbuf_destroy(&list);
    return why;
}

/* What the axis' values must be, here. */
static const char *rule_of(const SearchRecords *records, const SearchAxis *axis) {
    const ClusterSoftware *software = &records->costs->cluster->software;
    const char *rule = axis->rule;
    if (records->costs->offload_activations && axis->divides_blocks) {
        rule = arena_printf(records->arena,
                            "%s; with --offload activations fewer chunks than blocks, of which the "
                            "last of a chunk keeps its values",
                            rule);
    }
    if (records->costs->offload_activations && strcmp(axis->name, "schedule") == 0) {
        rule =
            arena_printf(records->arena,
                         "%s; nor --offload activations, which wants one chunk where p is 1", rule);
    }
    if (!axis->divides_blocks || !software->even_split) return rule;
    return arena_printf(records->arena, "%s; software %s splits the model's %d blocks evenly", rule,
                        software->name, records->costs->n_blocks);
}

static void report_stuck(const SearchRecords *records, Diag *diag) {
    const SearchAxis *axis = &SEARCH_AXES[records->stuck_axis];
    const Candidate *at = &records->stuck;
    if (records->stuck_value < 0) {
        diag_error(diag, NO_LOC, "nothing is left to choose for %s: %s", axis->name,
                   rule_of(records, axis));
        return;
    }
    const char *value = search_value_text(records->arena, axis, records->stuck_value);
    diag_error(diag, NO_LOC, "%s %s cannot be with t=%d, p=%d, d=%d, micro-batch %d: %s",
               axis->option, value, at->t, at->p, at->d, at->micro_batch, rule_of(records, axis));
}

void search_report_none(const SearchRecords *records, Diag *diag) {
    const SearchSpace *space = &records->space;
    const SearchRequest *request = space->request;
    bool t_given = request->t != ANY || (request->p != ANY && request->d != ANY);
    if (search_count_meshes(space, space->n_ranks) == 0 && records->stuck_axis <= 4) {
        report_ranks(records, why_no_mesh(records), diag);
    } else if (records->stuck_axis > 4) {
        report_stuck(records, diag);
    } else if (records->n_refusals > 0 && t_given) {
        diag_error(diag, NO_LOC, "t=%d: %s", records->refusals[0].t, records->refusals[0].reason);
    } else if (records->n_refusals > 0) {
        report_ranks(records, why_all_refused(records), diag);
    } else {
        diag_error(diag, NO_LOC, "nothing is left to choose: %s",
                   rule_of(records, &SEARCH_AXES[3]));
    }
}

/* Does anything fit of what `request` leaves open? out_graphs_aside: or would, but for its captured
 * graphs. */
static bool request_fits(ModelCosts *costs, const SearchSpace *space, const SearchRequest *request,
                         double limit_bytes, bool *out_graphs_aside) {
    Arena *scratch = arena_create();
    SearchSpace smaller = *space;
    smaller.request = request;
    SearchRecords *records = search_enumerate(scratch, costs, &smaller, limit_bytes);
    SearchSplits splits = search_splits_create(costs, scratch);
    StepPricer *pricer = step_pricer_create(costs, scratch);
    bool fits = false;
    for (int i = 0; i < records->n && !fits; i++) {
        const SearchRecord *record = &records->items[i];
        if (!search_may_fit(&smaller, record, limit_bytes)) continue;
        const int *split = search_find_split(&splits, costs, record);
        StepCost cost;
        step_pricer_memory(pricer, record->layout, &record->candidate, split, &cost);
        fits = (double)cost.memory_bytes <= limit_bytes &&
               step_missing_host_bytes(costs->cluster, &cost) == 0;
        *out_graphs_aside |= (double)(cost.memory_bytes - step_graph_bytes(&cost)) <= limit_bytes;
    }
    search_records_end(records);
    arena_destroy(scratch);
    return fits;
}

bool search_fits_least(ModelCosts *costs, const SearchSpace *space, int n_ranks,
                       double limit_bytes) {
    SearchRequest least = *space->request;
    SearchSpace there = *space;
    bool graphs_aside = false, ignored = false;
    there.n_ranks = n_ranks;
    if (least.zero < 0) least.zero = costs->cluster->software.zero_stages;
    SearchRequest first = least;
    if (first.micro_batch == ANY)
        first.micro_batch = costs->has_pairs ? 2 : first.lanes > 1 ? first.lanes : 1;
    if (first.recompute < 0) first.recompute = RECOMPUTE_FULL;
    if (request_fits(costs, &there, &first, limit_bytes, &graphs_aside)) return true;
    return graphs_aside && request_fits(costs, &there, &least, limit_bytes, &ignored);
}

static double least_bytes(const SegmentCost *segment) {
    int64_t gradients = segment->gradient_bytes;
    if (segment->low_gradients)
        gradients = gradients / dtype_bytes(DTYPE_F32) * dtype_bytes(DTYPE_BF16);
    int64_t states = segment->offloaded_bytes ? 0 : segment->optimizer_bytes;
    return (double)(segment->parameter_bytes - segment->upper_bytes + segment->frozen_bytes +
                    gradients + states);
}

double search_least_bytes(ModelCosts *costs, int n_ranks) {
    const char *reason;
    const LayoutCost *whole = model_costs_at(costs, 1, false, RECOMPUTE_NONE, 1, &reason);
    if (!whole) return 0;
    double bytes =
        least_bytes(&whole->before) + least_bytes(&whole->after) - least_bytes(&whole->tied);
    for (int i = 0; i < whole->n_shared; i++) bytes += least_bytes(&whole->shared[i].cost);
    for (int b = 0; b < costs->n_blocks; b++) {
        bytes += least_bytes(&whole->kinds[costs->kind_of_block[b]]);
    }
    return bytes / n_ranks + (double)runtime_least_bytes(costs->cluster);
}

bool search_finds_any(ModelCosts *costs, const SearchRequest *request) {
    double limit_bytes = search_limit_bytes(costs, request);
    SearchSpace space = search_space(costs, request);
    Diag *aside = diag_create();
    bool possible = search_check_request(costs, &space, aside) &&
                    search_least_bytes(costs, request->n_ranks) <= limit_bytes;
    diag_destroy(aside);
    if (!possible) return false;
    if (search_fits_least(costs, &space, request->n_ranks, limit_bytes)) return true;
    Arena *scratch = arena_create();
    SearchRecords *records = search_enumerate(scratch, costs, &space, limit_bytes);
    search_price(records, limit_bytes, false);
    bool fits = false;
    for (int i = 0; i < records->n; i++)
        fits |= (double)records->items[i].memory_bytes <= limit_bytes;
    search_records_end(records);
    arena_destroy(scratch);
    return fits;
}

int search_least_ranks(ModelCosts *costs, const SearchSpace *space, double limit_bytes) {
    int64_t most = most_ranks(costs->cluster);
    int node = costs->cluster->node.n_devices, n_tried = 0;
    if (most > (int64_t)space->n_ranks * 4096) most = (int64_t)space->n_ranks * 4096;
    for (int64_t n = (int64_t)(space->n_ranks / node + 1) * node; n <= most; n += node) {
        int64_t rest = n / node;
        for (int prime = 2; prime <= 7; prime++) {
            while (rest % prime == 0) rest /= prime;
        }
        if (rest > 1) continue;
        bool possible = search_least_bytes(costs, (int)n) <= limit_bytes;
        if (possible && search_fits_least(costs, space, (int)n, limit_bytes)) return (int)n;
        if (++n_tried == 200) break;
    }
    return 0;
}
