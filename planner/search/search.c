#include "ir/base/clock.h"
#include "planner/search/search_records.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_TOP = 10,
    MOST_MESHES = 48, /* whose fastest candidates are simulated in any case: interleaved and not */
    MOST_PARETO = 32,
    PARETO_ROUNDS = 8,   /* of simulating what the round before made the front */
    BATCH = 16,          /* of the fastest, simulated until the next cannot be faster ... */
    MOST_BEST = 512,     /* ... or so many have been ... */
    MOST_TASKS = 4 << 20 /* ... or so many tasks in all: some tenths of a second */
};

/* Candidates that are looked at closely: priced again, and simulated. */
typedef struct Finalist {
    const SearchRecord *record;
    Found found;
} Finalist;

/* One of each per thread. */
typedef struct Simulators {
    Arena *arenas[MOST_CREW];
    PipelineSim *sims[MOST_CREW];
    Diag *diags[MOST_CREW];
} Simulators;

typedef struct Search {
    Arena *arena, *scratch; /* the result's; the search's own */
    SearchRecords *records;
    const SearchRecord **fits; /* fastest first, as estimated */
    int n_fits;
    bool *is_finalist; /* [record] */
    double *known_us;  /* [record]: simulated if it was, else estimated */
    Finalist *finalists;
    int n_finalists, finalist_capacity;
    int n_simulated; /* the first so many of them */
    int n_threads;
    Simulators simulators;
} Search;

/* A total order: of equals, what came first along the axes. */
static int by_time(const void *left, const void *right) {
    const SearchRecord *a = *(const SearchRecord *const *)left;
    const SearchRecord *b = *(const SearchRecord *const *)right;
    if (a->step_us != b->step_us) return a->step_us < b->step_us ? -1 : 1;
    if (a->memory_bytes != b->memory_bytes) return a->memory_bytes < b->memory_bytes ? -1 : 1;
    return a < b ? -1 : a > b;
}

static void rank_fits(Search *search) {
    const SearchRecords *records = search->records;
    search->fits = ARENA_ARRAY(search->scratch, const SearchRecord *, records->n + 1);
    search->is_finalist = ARENA_ARRAY(search->scratch, bool, records->n);
    search->known_us = ARENA_ARRAY(search->scratch, double, records->n);
    for (int i = 0; i < records->n; i++) {
        const SearchRecord *record = &records->items[i];
        search->known_us[i] = record->step_us;
        if (record->step_us < INFINITY) search->fits[search->n_fits++] = record;
    }
    qsort(search->fits, (size_t)search->n_fits, sizeof(*search->fits), by_time);
}

static int index_of(const Search *search, const SearchRecord *record) {
    return (int)(record - search->records->items);
}

static void add_finalist(Search *search, const SearchRecord *record) {
    if (search->is_finalist[index_of(search, record)]) return;
    search->is_finalist[index_of(search, record)] = true;
    Finalist finalist = {record, search_found(search->arena, search->records, record)};
    ARENA_PUSH(search->scratch, search->finalists, search->n_finalists, search->finalist_capacity,
               finalist);
}

static bool same_mesh(const Candidate *a, const Candidate *b) {
    return a->t == b->t && a->p == b->p && a->d == b->d && candidate_c(a) == candidate_c(b) &&
           candidate_e(a) == candidate_e(b) && candidate_r(a) == candidate_r(b);
}

static void simulate_run(void *context, int worker, int begin, int end) {
    Search *search = context;
    for (int i = begin; i < end; i++) {
        Finalist *finalist = &search->finalists[search->n_simulated + i];
        Found *found = &finalist->found;
        found->simulated = search_simulate(
            search->simulators.sims[worker], search->records->costs, finalist->record->layout,
            &found->candidate, found->split, &found->cost, search->simulators.diags[worker]);
    }
}

static double simulated_us(const Search *search, const SearchRecord *record) {
    Found found = search_found(search->scratch, search->records, record);
    search_simulate(search->simulators.sims[0], search->records->costs, record->layout,
                    &found.candidate, found.split, &found.cost, search->simulators.diags[0]);
    return found.cost.step_us;
}

static void simulate_finalists(Search *search) {
    int n = search->n_finalists - search->n_simulated;
    crew_run(&search->records->space.request->crew, "layouts simulated", n, 1, simulate_run,
             search);
    for (; search->n_simulated < search->n_finalists; search->n_simulated++) {
        const Finalist *finalist = &search->finalists[search->n_simulated];
        search->known_us[index_of(search, finalist->record)] = finalist->found.cost.step_us;
    }
}

static double least_simulated_us(const Search *search) {
    double least_us = INFINITY;
    for (int i = 0; i < search->n_simulated; i++) {
        least_us = fmin(least_us, search->finalists[i].found.cost.step_us);
    }
    return least_us;
}

/* In the order of their estimates, until none that follows can be the fastest. */
static void add_fastest(Search *search, int most) {
    double least_us = INFINITY;
    int64_t n_tasks = 0;
    for (int i = 0; i < search->n_fits && i < most && n_tasks < MOST_TASKS;) {
        if (search->fits[i]->step_us > least_us * (1 + ESTIMATE_SLACK)) break;
        for (int end = i + BATCH; i < end && i < most && i < search->n_fits; i++) {
            add_finalist(search, search->fits[i]);
            n_tasks += search_count_tasks(&search->fits[i]->candidate);
        }
        simulate_finalists(search);
        least_us = least_simulated_us(search);
    }
}

/* Those whose estimates leave open that they are the fastest. */
static int count_open(const Search *search) {
    double most_us = least_simulated_us(search) * (1 + ESTIMATE_SLACK);
    int n = 0;
    for (int i = 0; i < search->n_fits && search->fits[i]->step_us <= most_us; i++) {
        n += !search->is_finalist[index_of(search, search->fits[i])];
    }
    return n;
}

/* Interleaved ones with uneven chunks are slower than estimated: others get their chance beside
 * them. */
static void add_meshes(Search *search) {
    const SearchRecord *meshes[MOST_MESHES];
    int n_meshes = 0;
    for (int i = 0; i < search->n_fits && n_meshes < MOST_MESHES; i++) {
        const SearchRecord *record = search->fits[i];
        bool known = false;
        for (int k = 0; k < n_meshes && !known; k++) {
            const Candidate *a = &meshes[k]->candidate, *b = &record->candidate;
            known = same_mesh(a, b) && (a->n_chunks > 1) == (b->n_chunks > 1);
        }
        if (known) continue;
        meshes[n_meshes++] = record;
        add_finalist(search, record);
    }
}

/* The fastest fit, as estimated, with each value of each axis. */
static void add_values(Search *search) {
    for (int row = 0; row < N_SEARCH_AXES; row++) {
        int seen[MOST_VALUES], n_seen = 0;
        for (int i = 0; i < search->n_fits && n_seen < MOST_VALUES; i++) {
            int value = SEARCH_AXES[row].get(&search->fits[i]->candidate), k = 0;
            while (k < n_seen && seen[k] != value) k++;
            if (k < n_seen) continue;
            seen[n_seen++] = value;
            add_finalist(search, search->fits[i]);
        }
    }
}

/* A fit and when it ends, as far as is known. */
typedef struct Point {
    double us;
    const SearchRecord *record;
} Point;

static int points_by_time(const void *left, const void *right) {
    const Point *a = left, *b = right;
    if (a->us != b->us) return a->us < b->us ? -1 : 1;
    return by_time(&a->record, &b->record);
}

/* The fits that none is known to beat in time and memory, by time, into out[n_fits]. */
static int find_pareto(const Search *search, Point *out) {
    int n = 0;
    for (int i = 0; i < search->n_fits; i++) {
        const SearchRecord *record = search->fits[i];
        out[i] = (Point){search->known_us[index_of(search, record)], record};
    }
    qsort(out, (size_t)search->n_fits, sizeof(*out), points_by_time);
    for (int i = 0; i < search->n_fits; i++) {
        if (n > 0 && out[i].record->memory_bytes >= out[n - 1].record->memory_bytes) continue;
        out[n++] = out[i];
    }
    return n;
}

/* The front, thinned to MOST_PARETO: what is simulated may leave it, and let others in. */
static void add_pareto(Search *search, Point *front) {
    for (int round = 0; round < PARETO_ROUNDS; round++) {
        int n = find_pareto(search, front), n_kept = n < MOST_PARETO ? n : MOST_PARETO;
        int n_before = search->n_finalists;
        for (int i = 0; i < n_kept; i++) {
            add_finalist(search,
                         front[n_kept > 1 ? (int64_t)i * (n - 1) / (n_kept - 1) : 0].record);
        }
        if (search->n_finalists == n_before) return;
        simulate_finalists(search);
    }
}

static int finalists_by_time(const void *left, const void *right) {
    const Finalist *a = left, *b = right;
    double us_a = a->found.cost.step_us, us_b = b->found.cost.step_us;
    if (us_a != us_b) return us_a < us_b ? -1 : 1;
    return by_time(&a->record, &b->record);
}

/* The fastest of all first, then the fastest of each other mesh, then what is left; by time. */
static void list_found(Search *search, int n_top, SearchResult *result) {
    int n = search->n_finalists, n_chosen = 0;
    bool *chosen = ARENA_ARRAY(search->scratch, bool, n + 1);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n && n_chosen < n_top; i++) {
            bool known = chosen[i];
            for (int k = 0; pass == 0 && k < i && !known; k++) {
                known = chosen[k] && same_mesh(&search->finalists[i].found.candidate,
                                               &search->finalists[k].found.candidate);
            }
            if (known) continue;
            chosen[i] = true;
            n_chosen++;
        }
    }
    result->found = ARENA_ARRAY(search->arena, Found, n_chosen + 1);
    for (int i = 0; i < n; i++) {
        if (chosen[i]) result->found[result->n_found++] = search->finalists[i].found;
    }
}

/* Of the front, what was simulated: `front` has room for all fits. */
static void list_pareto(Search *search, Point *front, SearchResult *result) {
    int n = find_pareto(search, front);
    result->pareto = ARENA_ARRAY(search->arena, Found, n + 1);
    for (int i = 0, at = 0; i < n; i++) {
        if (!search->is_finalist[index_of(search, front[i].record)]) continue;
        while (search->finalists[at].record != front[i].record) at++; /* both by time */
        result->pareto[result->n_pareto++] = search->finalists[at].found;
    }
}

/* Every so many-th candidate, whether it fits or not, and the finalists. */
static void list_samples(Search *search, SearchResult *result) {
    const SearchRecords *records = search->records;
    int room = MAX_SAMPLES - search->n_finalists, stride = (records->n + room - 1) / room;
    result->samples = ARENA_ARRAY(search->arena, Found, MAX_SAMPLES);
    for (int i = 0; i < search->n_finalists; i++) {
        result->samples[result->n_samples++] = search->finalists[i].found;
    }
    for (int i = 0; i < records->n; i += stride) {
        const SearchRecord *record = &records->items[i];
        if (search->is_finalist[i]) continue;
        Found *sample = &result->samples[result->n_samples++];
        *sample = search_found(search->scratch, records, record);
        sample->split = NULL;
    }
}

/* Of the finalists, which are sorted. NULL: nothing with this value fits. */
static const Finalist *find_fastest_with(const Search *search, const SearchChoice *choice) {
    for (int i = 0; i < search->n_finalists; i++) {
        const Candidate *candidate = &search->finalists[i].found.candidate;
        if (SEARCH_AXES[choice->axis].get(candidate) == choice->value) {
            return &search->finalists[i];
        }
    }
    return NULL;
}

/* Everything that is simulated is whether or not anyone asked why: the same answer either way. */
static void choose(Search *search, const SearchRequest *request, double limit_bytes,
                   SearchResult *result) {
    SearchChoice *choices = NULL;
    Point *front = ARENA_ARRAY(search->scratch, Point, search->n_fits);
    add_fastest(search, request->most_simulated > 0 ? request->most_simulated : MOST_BEST);
    add_meshes(search);
    add_values(search);
    simulate_finalists(search);
    add_pareto(search, front);
    result->n_open = count_open(search);
    qsort(search->finalists, (size_t)search->n_finalists, sizeof(Finalist), finalists_by_time);
    for (int i = 0; i < search->n_finalists; i++) {
        search_flag_unusual(search->arena, search->records->costs, &search->finalists[i].found);
    }
    list_found(search, request->n_top > 0 ? request->n_top : DEFAULT_TOP, result);
    list_pareto(search, front, result);
    if (!(request->leaves_out & PART_SAMPLES)) list_samples(search, result);
    if (!request->explain) return;
    int n_choices = search_choices(search->scratch, search->records, limit_bytes, &choices);
    Found *priced = ARENA_ARRAY(search->scratch, Found, n_choices + 1);
    for (int i = 0; i < n_choices; i++) {
        const Finalist *finalist = find_fastest_with(search, &choices[i]);
        priced[i] = finalist ? finalist->found
                             : search_found(search->scratch, search->records, choices[i].best);
    }
    search_explain(search->arena, search->records, choices, n_choices, priced, limit_bytes, result);
}

static void report_missing(Search *search, ModelCosts *costs, double limit_bytes,
                           SearchResult *result) {
    SearchRecords *records = search->records;
    const SearchRecord *least = &records->items[0];
    int leaves_out = records->space.request->leaves_out;
    if (leaves_out & PART_MISSING) return;
    for (int i = 1; i < records->n; i++) {
        if (records->items[i].memory_bytes < least->memory_bytes) least = &records->items[i];
    }
    search_settle_best(records, -1, 0, limit_bytes, &least);
    result->least_missing_bytes = (int64_t)ceil((double)least->memory_bytes - limit_bytes);
    result->least_missing = least->candidate;
    result->least_memory = search_found(search->scratch, records, least).cost;
    if (!(leaves_out & PART_RANKS))
        result->least_ranks = search_least_ranks(costs, &records->space, limit_bytes);
    if (!(leaves_out & PART_SAMPLES)) list_samples(search, result);
}

SearchSpace search_space(const ModelCosts *costs, const SearchRequest *request) {
    return (SearchSpace){.costs = costs,
                         .request = request,
                         .n_ranks = request->n_ranks,
                         .global_batch = request->global_batch,
                         .schedule = request->schedule ? schedule_find(request->schedule) : -1};
}

/* Prices all; or, where only a best of at most beats_us is of interest, first what may be that,
 * which is simulated. A candidate is no faster than it is estimated to be, less the slack (of which
 * there is twice as much here): so where none of these is, the fastest of all is not. */
static bool price_all(Search *search, double limit_bytes) {
    enum { MOST_TRIED = 256 };
    SearchRecords *records = search->records;
    double beats_us = records->space.request->beats_us;
    if (beats_us > 0) {
        int n_tried = 0;
        bool beats = false;
        search_price(records, limit_bytes, true);
        for (int i = 0; i < records->n && !beats; i++) {
            const SearchRecord *record = &records->items[i];
            if (record->step_us > records->most_us) continue;
            beats = n_tried++ == MOST_TRIED || simulated_us(search, record) <= beats_us;
        }
        records->most_us = INFINITY;
        if (!beats) return false;
        search_prepare(records);
    }
    search_price(records, limit_bytes, true);
    return true;
}

SearchResult *search_layouts(Arena *arena, ModelCosts *costs, const SearchRequest *request,
                             Diag *diag) {
    double begin = clock_now(), limit_bytes = search_limit_bytes(costs, request);
    SearchSpace space = search_space(costs, request);
    if (!search_check_request(costs, &space, diag)) return NULL;
    bool possible = !(request->leaves_out & PART_MISSING) ||
                    search_least_bytes(costs, request->n_ranks) <= limit_bytes;
    if (!possible) return ARENA_NEW(arena, SearchResult);
    Search search = {.arena = arena, .scratch = arena_create()};
    search.n_threads = crew_size(&request->crew);
    for (int i = 0; i < search.n_threads; i++) {
        search.simulators.arenas[i] = arena_create();
        search.simulators.sims[i] = pipeline_sim_create(search.simulators.arenas[i]);
        search.simulators.diags[i] = diag_create();
    }
    search.records = search_enumerate(search.scratch, costs, &space, limit_bytes);
    SearchResult *result = NULL;
    if (search.records->n == 0) {
        search_report_none(search.records, diag);
    } else {
        result = ARENA_NEW(arena, SearchResult);
        bool priced = price_all(&search, limit_bytes);
        if (priced) rank_fits(&search);
        result->n_candidates = search.records->n;
        result->n_fit = search.n_fits;
        result->remark = search_remark(arena, &space);
        if (!priced) {
            result->n_found = 0;
        } else if (search.n_fits > 0) {
            choose(&search, request, limit_bytes, result);
        } else {
            report_missing(&search, costs, limit_bytes, result);
        }
        result->seconds = clock_now() - begin;
    }
    for (int i = 0; i < search.n_threads; i++) {
        diag_destroy(search.simulators.diags[i]);
        arena_destroy(search.simulators.arenas[i]);
    }
    search_records_end(search.records);
    arena_destroy(search.scratch);
    return result;
}
