#include "planner/search_records.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_TOP = 10, MOST_BEST = 16, MOST_MESHES = 24, MOST_PARETO = 64 };

/* Candidates that are looked at closely: priced again, and simulated. */
typedef struct Finalist {
    const SearchRecord *record;
    Found found;
} Finalist;

typedef struct Search {
    Arena *arena, *scratch; /* the result's; the search's own */
    SearchRecords *records;
    const SearchRecord **fits; /* fastest first */
    int n_fits;
    Finalist *finalists;
    int n_finalists, finalist_capacity;
} Search;

static double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

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
    for (int i = 0; i < records->n; i++) {
        const SearchRecord *record = &records->items[i];
        if (record->step_us < INFINITY) search->fits[search->n_fits++] = record;
    }
    qsort(search->fits, (size_t)search->n_fits, sizeof(*search->fits), by_time);
}

static Finalist *find_finalist(const Search *search, const SearchRecord *record) {
    for (int i = 0; i < search->n_finalists; i++) {
        if (search->finalists[i].record == record) return &search->finalists[i];
    }
    return NULL;
}

static void add_finalist(Search *search, const SearchRecord *record) {
    if (find_finalist(search, record)) return;
    Finalist finalist = {record, search_found(search->arena, search->records, record)};
    ARENA_PUSH(search->scratch, search->finalists, search->n_finalists, search->finalist_capacity,
               finalist);
}

static bool same_mesh(const Candidate *a, const Candidate *b) {
    return a->t == b->t && a->p == b->p && a->d == b->d;
}

static void add_best(Search *search) {
    const SearchRecord *meshes[MOST_MESHES];
    int n_meshes = 0;
    for (int i = 0; i < search->n_fits && n_meshes < MOST_MESHES; i++) {
        const SearchRecord *record = search->fits[i];
        bool known = false;
        for (int k = 0; k < n_meshes && !known; k++) {
            known = same_mesh(&meshes[k]->candidate, &record->candidate);
        }
        if (!known) meshes[n_meshes++] = record;
        if (!known || i < MOST_BEST) add_finalist(search, record);
    }
}

/* The fits that nothing beats in time and memory, thinned to MOST_PARETO. */
static int find_pareto(const Search *search, const SearchRecord **out) {
    const SearchRecord **front =
        ARENA_ARRAY(search->scratch, const SearchRecord *, search->n_fits + 1);
    int n = 0, n_out = 0;
    for (int i = 0; i < search->n_fits; i++) {
        if (n > 0 && search->fits[i]->memory_bytes >= front[n - 1]->memory_bytes) continue;
        front[n++] = search->fits[i];
    }
    int n_kept = n < MOST_PARETO ? n : MOST_PARETO;
    for (int i = 0; i < n_kept; i++) {
        out[n_out++] = front[n_kept > 1 ? (int64_t)i * (n - 1) / (n_kept - 1) : 0];
    }
    return n_out;
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

static void list_pareto(Search *search, SearchResult *result) {
    result->pareto = ARENA_ARRAY(search->arena, Found, search->n_finalists + 1);
    for (int i = 0; i < search->n_finalists; i++) {
        const Found *found = &search->finalists[i].found, *last = NULL;
        if (result->n_pareto > 0) last = &result->pareto[result->n_pareto - 1];
        if (last && found->cost.memory_bytes >= last->cost.memory_bytes) continue;
        result->pareto[result->n_pareto++] = *found;
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
        if (find_finalist(search, record)) continue;
        Found *sample = &result->samples[result->n_samples++];
        *sample = search_found(search->scratch, records, record);
        sample->split = NULL;
    }
}

static void choose(Search *search, const SearchRequest *request, double limit_bytes,
                   SearchResult *result) {
    SearchChoice *choices = NULL;
    const SearchRecord *pareto[MOST_PARETO];
    int n_pareto = find_pareto(search, pareto), n_choices = 0;
    add_best(search);
    for (int i = 0; i < n_pareto; i++) add_finalist(search, pareto[i]);
    if (request->explain) {
        n_choices = search_choices(search->scratch, search->records, &choices);
        for (int i = 0; i < n_choices; i++) {
            if (choices[i].best->step_us < INFINITY) add_finalist(search, choices[i].best);
        }
    }
    qsort(search->finalists, (size_t)search->n_finalists, sizeof(Finalist), finalists_by_time);
    for (int i = 0; i < search->n_finalists; i++) {
        search_flag_unusual(search->arena, search->records->costs, &search->finalists[i].found);
    }
    list_found(search, request->n_top > 0 ? request->n_top : DEFAULT_TOP, result);
    list_pareto(search, result);
    list_samples(search, result);
    if (!request->explain) return;
    Found *priced = ARENA_ARRAY(search->scratch, Found, n_choices + 1);
    for (int i = 0; i < n_choices; i++) {
        const Finalist *finalist = find_finalist(search, choices[i].best);
        priced[i] = finalist ? finalist->found
                             : search_found(search->scratch, search->records, choices[i].best);
    }
    search_explain(search->arena, search->records, choices, n_choices, priced, limit_bytes, result);
}

static void report_missing(Search *search, ModelCosts *costs, double limit_bytes,
                           SearchResult *result) {
    const SearchRecords *records = search->records;
    const SearchRecord *least = &records->items[0];
    for (int i = 1; i < records->n; i++) {
        if (records->items[i].memory_bytes < least->memory_bytes) least = &records->items[i];
    }
    result->least_missing_bytes = (int64_t)ceil((double)least->memory_bytes - limit_bytes);
    result->least_missing = least->candidate;
    result->least_ranks = search_least_ranks(costs, &records->space, limit_bytes);
    list_samples(search, result);
}

SearchResult *search_layouts(Arena *arena, ModelCosts *costs, const SearchRequest *request,
                             Diag *diag) {
    double begin = now_seconds(), limit_bytes = search_limit_bytes(costs, request);
    SearchSpace space = {.costs = costs,
                         .request = request,
                         .n_ranks = request->n_ranks,
                         .global_batch = request->global_batch,
                         .schedule = request->schedule ? schedule_find(request->schedule) : -1};
    if (!search_check_request(costs, &space, diag)) return NULL;
    Search search = {.arena = arena, .scratch = arena_create()};
    search.records = search_enumerate(search.scratch, costs, &space);
    SearchResult *result = NULL;
    if (search.records->n == 0) {
        search_report_none(search.records, diag);
    } else {
        result = ARENA_NEW(arena, SearchResult);
        search_price(search.records, limit_bytes, request->n_threads);
        rank_fits(&search);
        result->n_candidates = search.records->n;
        result->n_fit = search.n_fits;
        if (search.n_fits > 0) {
            choose(&search, request, limit_bytes, result);
        } else {
            report_missing(&search, costs, limit_bytes, result);
        }
        result->seconds = now_seconds() - begin;
    }
    arena_destroy(search.scratch);
    return result;
}
