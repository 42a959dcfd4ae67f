/* What a search says when there is nothing to search, or nothing fits. */
#include "planner/search/search_records.h"

enum { MOST_RANKS = 1 << 22 };

static bool check_fixed(const SearchSpace *space, Diag *diag) {
    const SearchRequest *r = space->request;
    int n = space->n_ranks;
    int sizes[] = {r->t, r->p, r->d};
    for (int i = 0; i < 3; i++) {
        if (sizes[i] >= 0 && (sizes[i] == ANY || n % sizes[i] == 0)) continue;
        diag_error(diag, NO_LOC, "%c=%d does not divide %d ranks", "tpd"[i], sizes[i], n);
        return false;
    }
    int64_t product = (int64_t)r->t * r->p * r->d;
    if (product && product != n) {
        diag_error(diag, NO_LOC, "t=%d x p=%d x d=%d are %lld ranks, not %d", r->t, r->p, r->d,
                   (long long)product, n);
    } else if (r->d != ANY && space->global_batch % r->d) {
        diag_error(diag, NO_LOC, "d=%d does not divide global batch %d", r->d, space->global_batch);
    } else if (r->micro_batch < 0 ||
               (r->micro_batch != ANY &&
                space->global_batch % ((int64_t)r->micro_batch * (r->d != ANY ? r->d : 1)))) {
        diag_error(diag, NO_LOC, "global batch %d is not a multiple of micro-batch %d x d %d",
                   space->global_batch, r->micro_batch, r->d != ANY ? r->d : 1);
    } else if (r->n_chunks < 0 || r->n_chunks > MAX_CHUNKS) {
        diag_error(diag, NO_LOC, "%d chunks a stage: must be 1 to %d", r->n_chunks, MAX_CHUNKS);
    } else if (r->p != ANY && r->p > space->costs->n_blocks) {
        diag_error(diag, NO_LOC, "p=%d needs at least %d blocks; the model has %d", r->p, r->p,
                   space->costs->n_blocks);
    } else {
        return true;
    }
    return false;
}

bool search_check_request(const ModelCosts *costs, const SearchSpace *space, Diag *diag) {
    const SearchRequest *request = space->request;
    int64_t most = costs->cluster->max_devices > 0 ? costs->cluster->max_devices : MOST_RANKS;
    if (space->n_ranks < 1 || space->n_ranks > most) {
        diag_error(diag, NO_LOC, "%d ranks: %s has %s%lld", space->n_ranks, costs->cluster->name,
                   most > 1 ? "1 to " : "", (long long)most);
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
    if (request->recompute >= N_RECOMPUTES || request->zero > 1) {
        diag_error(diag, NO_LOC, "recomputation is none, selective or full, ZeRO's stage 0 or 1");
        return false;
    }
    return check_fixed(space, diag);
}

/* The nearest number of ranks, in whole nodes where it was nodes, that divides in many ways. */
static int find_near(const SearchSpace *space, int by, int wanted) {
    int node = space->costs->cluster->node.n_devices;
    if (space->n_ranks < node) node = 1;
    int first = by > 0 ? (space->n_ranks / node + 1) * node : (space->n_ranks - 1) / node * node;
    for (int n = first, i = 0; n > 0 && n <= MOST_RANKS && i < 512; n += by * node, i++) {
        if (search_count_meshes(space, n) >= wanted) return n;
    }
    return 0;
}

static void report_ranks(const SearchSpace *space, Diag *diag) {
    for (int wanted = 8; wanted >= 1; wanted /= 2) {
        int below = find_near(space, -1, wanted), above = find_near(space, 1, wanted);
        if (!below && !above) continue;
        char near[64];
        if (below && above) {
            snprintf(near, sizeof(near), "%d or %d", below, above);
        } else {
            snprintf(near, sizeof(near), "%d", below ? below : above);
        }
        diag_error(diag, NO_LOC,
                   "%d ranks cannot be divided: no d = ranks / (t x p) divides global batch %d; "
                   "%s ranks would do",
                   space->n_ranks, space->global_batch, near);
        return;
    }
    diag_error(diag, NO_LOC,
               "%d ranks cannot be divided: no d = ranks / (t x p) divides global "
               "batch %d, nor with any count near it",
               space->n_ranks, space->global_batch);
}

void search_report_none(const SearchRecords *records, Diag *diag) {
    const SearchSpace *space = &records->space;
    const Candidate *at = &records->stuck;
    if (search_count_meshes(space, space->n_ranks) == 0 && records->stuck_axis <= 2) {
        report_ranks(space, diag);
    } else if (records->stuck_axis > 2) {
        const SearchAxis *axis = &SEARCH_AXES[records->stuck_axis];
        if (records->stuck_value < 0) {
            diag_error(diag, NO_LOC, "nothing is left to choose for %s: %s", axis->name,
                       axis->rule);
            return;
        }
        const char *value = search_value_text(records->arena, axis, records->stuck_value);
        diag_error(diag, NO_LOC, "%s %s cannot be with t=%d, p=%d, d=%d, micro-batch %d: %s",
                   axis->option, value, at->t, at->p, at->d, at->micro_batch, axis->rule);
    } else if (records->n_refusals > 0) {
        diag_error(diag, NO_LOC, "t=%d: %s", records->refusals[0].t, records->refusals[0].reason);
    } else {
        diag_error(diag, NO_LOC, "nothing is left to choose: %s", SEARCH_AXES[1].rule);
    }
}

/* Does anything fit of what `request` leaves open? out_graphs_aside: or would, but for its captured
 * graphs. */
static bool request_fits(ModelCosts *costs, const SearchSpace *space, const SearchRequest *request,
                         double limit_bytes, bool *out_graphs_aside) {
    Arena *scratch = arena_create();
    SearchSpace smaller = *space;
    smaller.request = request;
    SearchRecords *records = search_enumerate(scratch, costs, &smaller);
    int *split = ARENA_ARRAY(scratch, int, costs->n_blocks + 1);
    bool fits = false, even = costs->cluster->software.even_split;
    for (int i = 0; i < records->n && !fits; i++) {
        const SearchRecord *record = &records->items[i];
        const Candidate *c = &record->candidate;
        StepCost cost;
        if (!split_blocks(costs, record->layout, c->p, c->n_chunks, even, split)) continue;
        step_memory(costs, record->layout, c, split, &cost);
        fits = (double)cost.memory_bytes <= limit_bytes;
        *out_graphs_aside |= (double)(cost.memory_bytes - step_graph_bytes(&cost)) <= limit_bytes;
    }
    arena_destroy(scratch);
    return fits;
}

/* What takes least but for its graphs is tried first: then all that matters is how ranks and
 * schedule are chosen. Fewer and larger micro-batches, none of them computed again, have smaller
 * graphs. */
static bool anything_fits(ModelCosts *costs, const SearchSpace *space, int n_ranks,
                          double limit_bytes) {
    SearchRequest least = *space->request;
    SearchSpace there = *space;
    bool graphs_aside = false, ignored = false;
    there.n_ranks = n_ranks;
    if (least.zero < 0) least.zero = 1;
    SearchRequest first = least;
    if (first.micro_batch == ANY) first.micro_batch = 1;
    if (first.recompute < 0) first.recompute = RECOMPUTE_FULL;
    if (request_fits(costs, &there, &first, limit_bytes, &graphs_aside)) return true;
    return graphs_aside && request_fits(costs, &there, &least, limit_bytes, &ignored);
}

int search_least_ranks(ModelCosts *costs, const SearchSpace *space, double limit_bytes) {
    int64_t most = costs->cluster->max_devices > 0 ? costs->cluster->max_devices : MOST_RANKS;
    int node = costs->cluster->node.n_devices, n_tried = 0;
    if (most > (int64_t)space->n_ranks * 4096) most = (int64_t)space->n_ranks * 4096;
    for (int64_t n = (int64_t)(space->n_ranks / node + 1) * node; n <= most; n += node) {
        int64_t rest = n / node;
        for (int prime = 2; prime <= 7; prime++) {
            while (rest % prime == 0) rest /= prime;
        }
        if (rest > 1) continue;
        if (anything_fits(costs, space, (int)n, limit_bytes)) return (int)n;
        if (++n_tried == 200) break;
    }
    return 0;
}
