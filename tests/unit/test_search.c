/* The search against trying everything: same optimum, same answer on any number of threads, and
 * the lessons of the literature on a made-up cluster whose costs have a closed form. */
#include "planner/plan/plan_library.h"
#include "planner/search/search_records.h"
#include "tests/unit/check.h"
#include "tests/unit/synthetic_costs.h"

#include <stdlib.h>

static uint64_t seed = 20261121, state;

static double random_unit(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

static int random_below(int n) {
    return (int)(random_unit() * n);
}

static SearchRequest request_of(int n_ranks, int global_batch) {
    return (SearchRequest){.n_ranks = n_ranks,
                           .global_batch = global_batch,
                           .recompute = -1,
                           .zero = -1,
                           .sequence_parallel = -1};
}

/* What is known of a search's case when everything was tried. */
typedef struct Tried {
    int n;
    double best_us;              /* INFINITY: nothing fits */
    const SearchResult *against; /* whose Pareto points ... */
    bool beaten[256];            /* ... have more than 3 % more time, and more memory */
} Tried;

static void compare_front(Tried *tried, const StepCost *cost) {
    const SearchResult *r = tried->against;
    for (int i = 0; r && i < r->n_pareto && i < 256; i++) {
        const StepCost *point = &r->pareto[i].cost;
        tried->beaten[i] |=
            cost->step_us * 1.03 < point->step_us && cost->memory_bytes < point->memory_bytes;
    }
}

static void try_one(PipelineSim *sim, const LayoutCost *layout, const Candidate *c,
                    const int *split, double limit_bytes, Tried *tried, Diag *diag) {
    StepCost cost;
    step_cost(&synthetic_costs, layout, c, split, &cost);
    if ((double)cost.memory_bytes > limit_bytes) return;
    if (!simulate_candidate(sim, &synthetic_costs, layout, c, split, &cost, diag)) {
        BUG("%s", diag_text(diag));
    }
    tried->n++;
    tried->best_us = fmin(tried->best_us, cost.step_us);
    compare_front(tried, &cost);
}

/* Shards on one node, on four, on sixteen; or on all. */
static void try_replicas(PipelineSim *sim, const LayoutCost *layout, Candidate c, const int *split,
                         double limit_bytes, Tried *tried, Diag *diag) {
    int data = c.d, node = synthetic_cluster.node.n_devices;
    try_one(sim, layout, &c, split, limit_bytes, tried, diag);
    if (!c.zero || !synthetic_cluster.software.repeats_shards) return;
    for (c.r = 2; c.r < data; c.r++) {
        c.d = data / c.r;
        int width = c.t * c.d;
        bool of_nodes = width == node || width == 4 * node || width == 16 * node;
        if (c.d * c.r == data && of_nodes) {
            try_one(sim, layout, &c, split, limit_bytes, tried, diag);
        }
    }
}

/* Simulates everything that fits. Written without the search's table. */
static void try_all(const SearchRequest *request, double limit_bytes, Tried *tried) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    PipelineSim *sim = pipeline_sim_create(arena);
    int n_blocks = synthetic_costs.n_blocks, split[4096];
    int n_schedules = 0;
    while (schedule_name(n_schedules)) n_schedules++;
    for (int code = 0; code < 64 * 3 * 4 * 2 * 8 * n_schedules; code++) {
        int rest = code;
        Candidate c = {.micro_batch = 1 + rest % 64};
        rest /= 64, c.recompute = (Recompute)(rest % 3);
        rest /= 3, c.zero = rest % N_ZERO_STAGES;
        rest /= N_ZERO_STAGES, c.sequence_parallel = rest % 2;
        rest /= 2, c.n_chunks = 1 + rest % 8;
        rest /= 8, c.schedule = rest;
        for (c.t = 1; c.t <= 16 && c.t <= request->n_ranks; c.t++) {
            if (c.t == 1 && c.sequence_parallel) continue;
            for (c.p = 1; c.p <= n_blocks + 2 && c.t * c.p <= request->n_ranks; c.p++) {
                c.d = request->n_ranks / (c.t * c.p);
                if (c.t * c.p * c.d != request->n_ranks || (c.d == 1 && c.zero)) continue;
                c.n_micro = request->global_batch / (c.d * c.micro_batch);
                if (c.n_micro * c.d * c.micro_batch != request->global_batch) continue;
                PipelineShape shape = {c.p, c.n_chunks, c.n_micro, PATH_LOOP};
                const char *reason;
                if (c.n_micro < 1 || !schedule_allows(c.schedule, &shape)) continue;
                if (c.recompute == RECOMPUTE_FULL && schedule_splits(c.schedule)) continue;
                const LayoutCost *layout =
                    model_costs_at(&synthetic_costs, c.t, c.sequence_parallel, c.recompute,
                                   c.micro_batch, &reason);
                if (!layout || !split_blocks(&synthetic_costs, layout, candidate_path(&c),
                                             c.n_chunks, false, split)) {
                    continue;
                }
                try_replicas(sim, layout, c, split, limit_bytes, tried, diag);
            }
        }
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Few ranks and blocks, so that everything can be tried, but every part of a step matters. */
static void use_random_case(SearchRequest *request) {
    static const int RANKS[] = {4, 6, 8, 12, 16, 24, 32};
    static const int BATCHES[] = {1, 2, 3, 4};
    Synthetic model = {512 << random_below(3),    512 << random_below(4),     16 << random_below(2),
                       8192 << random_below(4),   1e14 * (1 + random_unit()), 100 * random_unit(),
                       1 + (random_below(4) == 0)};
    synthetic_use(model, 2 + random_below(14));
    *request = request_of(RANKS[random_below(7)], 0);
    request->global_batch = request->n_ranks * BATCHES[random_below(4)];
    request->memory_limit_bytes = CUDA_CONTEXT_BYTES + 1e9 * pow(2, 5 * random_unit());
    synthetic_cluster.node.n_devices = 4 << random_below(2);
    synthetic_cluster.network.nic_bytes_per_second *= 0.1 + random_unit();
    if (random_below(3) == 0) { /* all stages of a node behind one slow card */
        synthetic_cluster.network.n_nics = 1;
        synthetic_cluster.network.nic_bytes_per_second /= 20;
    }
    synthetic_cluster.software.overlaps_gradients = random_below(2);
    synthetic_cluster.software.overlaps_pipeline = random_below(2);
    synthetic_cluster.software.repeats_shards = random_below(2);
}

static void test_optimum(Diag *diag) {
    int n_cases = (getenv("TEST_LONG") ? 400 : 60) / (LAYOUT_STEP * VARIANT_STEP), n_same = 0,
        n_searched = 0, n_tried = 0;
    int n_points = 0, n_beaten = 0;
    double worst = 1;
    check_begin(
        "random cases: the optimum of all, in 95 % exactly, else within 2 %; and the front");
    state = seed;
    for (int i = 0; n_searched < n_cases && i < 2 * n_cases; i++) { /* some fit nowhere */
        Arena *arena = arena_create();
        SearchRequest request;
        use_random_case(&request);
        SearchResult *result = search_layouts(arena, &synthetic_costs, &request, diag);
        CHECK(result, "case %d: %s", i, diag_text(diag));
        Tried all = {.best_us = INFINITY, .against = result};
        try_all(&request, request.memory_limit_bytes, &all);
        double best = all.best_us;
        n_tried += all.n;
        if (result) {
            n_points += result->n_pareto;
            for (int k = 0; k < result->n_pareto; k++) n_beaten += all.beaten[k];
            double found = result->n_found ? result->found[0].cost.step_us : INFINITY;
            CHECK((found < INFINITY) == (best < INFINITY), "case %d: %g, all: %g", i, found, best);
            double ratio = best < INFINITY ? found / best : 1;
            CHECK(ratio >= 1 - 1e-9, "case %d: %g, better than the best %g", i, found, best);
            n_searched += best < INFINITY;
            n_same += best < INFINITY && ratio < 1 + 1e-9;
            if (ratio > worst) worst = ratio;
        }
        arena_destroy(arena);
    }
    CHECK(n_searched == n_cases, "only %d of %d cases fit", n_searched, n_cases);
    CHECK(n_same >= 0.95 * n_searched && worst <= 1.02, "seed %llu: %d of %d the same, worst %.4f",
          (unsigned long long)seed, n_same, n_searched, worst);
    CHECK(n_beaten <= 0.001 * n_points, "%d of %d Pareto points are beaten", n_beaten, n_points);
    printf("# seed %llu: %d of %d Pareto points beaten\n", (unsigned long long)seed, n_beaten,
           n_points);
    printf("# seed %llu: %d of %d cases the optimum of %d candidates simulated, worst %.4f\n",
           (unsigned long long)seed, n_same, n_searched, n_tried, worst);
}

/* Against playing all of it. */
static void test_many_groups(Arena *arena, Diag *diag) {
    static const struct {
        int t, p, v, m;
        const char *schedule;
    } CASES[] = {{8, 16, 1, 8021, "1f1b"},       {8, 16, 5, 1024, "interleaved"},
                 {4, 7, 3, 2800, "interleaved"}, {8, 31, 1, 2000, "gpipe"},
                 {2, 12, 1, 9000, "1f1b"},       {8, 31, 2, 1860, "interleaved"}};
    PipelineSim *sim = pipeline_sim_create(arena);
    check_begin("many micro-batches: what a few groups of them say");
    for (int hidden = 0; hidden < 2; hidden++) {
        synthetic_use(SYNTHETIC_175B, 96);
        synthetic_cluster.software.overlaps_pipeline = hidden;
        for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            Candidate c = {.t = CASES[i].t,
                           .p = CASES[i].p,
                           .d = 2,
                           .n_chunks = CASES[i].v,
                           .micro_batch = 1,
                           .n_micro = CASES[i].m,
                           .schedule = schedule_find(CASES[i].schedule)};
            int split[96];
            const char *reason;
            const LayoutCost *layout =
                model_costs_at(&synthetic_costs, c.t, false, RECOMPUTE_NONE, 1, &reason);
            StepCost all = {0}, few = {0};
            if (!split_blocks(&synthetic_costs, layout, candidate_path(&c), c.n_chunks, false,
                              split))
                BUG("none");
            CHECK(search_count_tasks(&c) < 2 * c.p * c.n_chunks * c.n_micro, "case %zu: whole", i);
            CHECK(simulate_candidate(sim, &synthetic_costs, layout, &c, split, &all, diag) &&
                      search_simulate(sim, &synthetic_costs, layout, &c, split, &few, diag),
                  "%s", diag_text(diag));
            CHECK(fabs(few.step_us / all.step_us - 1) < 1e-4, "case %zu: %.6f s, all %.6f s", i,
                  few.step_us / 1e6, all.step_us / 1e6);
            CHECK(fabs(few.bubble_us - all.bubble_us) < 1e-3 * all.step_us, "case %zu: bubble", i);
        }
    }
}

static bool same_candidate(const Candidate *a, const Candidate *b) {
    for (int row = 0; row < N_SEARCH_AXES; row++) {
        if (SEARCH_AXES[row].get(a) != SEARCH_AXES[row].get(b)) return false;
    }
    return a->d == b->d && a->n_micro == b->n_micro;
}

static bool same_found(const Found *a, const Found *b) {
    return same_candidate(&a->candidate, &b->candidate) && a->cost.step_us == b->cost.step_us &&
           a->cost.memory_bytes == b->cost.memory_bytes;
}

/* Told of each piece of work, in order, on the thread that asked. */
typedef struct Told {
    const char *what;
    int n_pieces, n_begun, n_wrong;
} Told;

static void note_progress(void *user, const char *what, int n_begun, int n_items) {
    Told *told = user;
    if (told->what != what || n_begun < told->n_begun) { /* another piece, perhaps of the same */
        *told = (Told){what, told->n_pieces + 1, 0, told->n_wrong};
    }
    told->n_wrong += n_begun <= 0 || n_begun > n_items;
    told->n_begun = n_begun;
}

static void test_threads(Arena *arena, Diag *diag) {
    check_begin("the same answer on 1, 2 and 7 threads");
    synthetic_use(SYNTHETIC_175B, 96);
    SearchResult *results[3];
    for (int i = 0; i < 3; i++) {
        SearchRequest request = request_of(512, 512);
        request.crew.n_threads = i == 0 ? 1 : i == 1 ? 2 : 7;
        request.explain = true;
        Told told = {0};
        request.crew.progress = note_progress;
        request.crew.user = &told;
        results[i] = search_layouts(arena, &synthetic_costs, &request, diag);
        CHECK(told.n_pieces >= 2 && told.n_wrong == 0, "told of %d pieces, %d times wrong",
              told.n_pieces, told.n_wrong);
        CHECK(results[i], "%s", diag_text(diag));
        if (!results[i]) return;
    }
    const SearchResult *one = results[0];
    for (int i = 1; i < 3; i++) {
        const SearchResult *more = results[i];
        CHECK(one->n_candidates == more->n_candidates && one->n_fit == more->n_fit &&
                  one->n_found == more->n_found && one->n_pareto == more->n_pareto &&
                  one->n_samples == more->n_samples && one->n_alternatives == more->n_alternatives,
              "counts differ");
        for (int k = 0; k < one->n_found; k++) {
            CHECK(same_found(&one->found[k], &more->found[k]), "found %d differs", k);
        }
        for (int k = 0; k < one->n_alternatives; k++) {
            CHECK(strcmp(one->alternatives[k].reason, more->alternatives[k].reason) == 0,
                  "alternative %d differs", k);
        }
    }
}

static void test_result(Arena *arena, Diag *diag) {
    synthetic_use(SYNTHETIC_175B, 96);
    SearchRequest request = request_of(512, 512);
    request.explain = true;
    request.n_top = 7;
    SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
    check_begin("a result: sorted, simulated, complete");
    CHECK(r && r->n_found == 7, "%s", diag_text(diag));
    if (!r || !r->n_found) return;
    for (int i = 0; i < r->n_found; i++) {
        const Candidate *c = &r->found[i].candidate;
        int n = 0;
        for (int g = 0; g < c->p * c->n_chunks; g++) n += r->found[i].split[g];
        CHECK(n == 96, "found %d: a split of %d blocks", i, n);
        CHECK(r->found[i].simulated, "found %d was not simulated", i);
        CHECK(c->t * c->p * c->d == 512 && c->d * c->micro_batch * c->n_micro == 512, "found %d",
              i);
        CHECK(i == 0 || r->found[i].cost.step_us >= r->found[i - 1].cost.step_us, "order");
        CHECK((double)r->found[i].cost.memory_bytes <= 80e9 * 0.95, "found %d does not fit", i);
    }
    check_begin("Pareto: each has less memory than the one before, the winner first");
    CHECK(r->n_pareto >= 2 && same_found(&r->pareto[0], &r->found[0]), "%d", r->n_pareto);
    for (int i = 1; i < r->n_pareto; i++) {
        CHECK(r->pareto[i].simulated, "point %d was not simulated", i);
        CHECK(r->pareto[i].cost.step_us >= r->pareto[i - 1].cost.step_us &&
                  r->pareto[i].cost.memory_bytes < r->pareto[i - 1].cost.memory_bytes,
              "point %d", i);
    }
    check_begin("all that could be the fastest was simulated, or it is said how many were not");
    CHECK(r->n_open == 0, "%d open", r->n_open);
    request.most_simulated = 1, request.memory_limit_bytes = 1e15;
    SearchResult *short_of = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(short_of && short_of->n_open > 0, "a search of one says nothing");
    check_begin("samples: no more than asked for, the winner among them");
    bool has_winner = false;
    for (int i = 0; i < r->n_samples; i++) has_winner |= same_found(&r->samples[i], &r->found[0]);
    CHECK(r->n_samples <= MAX_SAMPLES && r->n_samples > 100 && has_winner, "%d", r->n_samples);
    check_begin("alternatives: one for every value that lost, with its reason");
    bool has_t1 = false, has_misfit = false;
    request.most_simulated = 0, request.memory_limit_bytes = 12e9;
    SearchResult *tight = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(tight, "%s", diag_text(diag));
    for (int i = 0; tight && i < tight->n_alternatives; i++) {
        has_misfit |= strstr(tight->alternatives[i].reason, "does not fit: ") != NULL;
    }
    for (int i = 0; i < r->n_alternatives; i++) {
        const Alternative *a = &r->alternatives[i];
        CHECK(a->fits ? a->slowdown >= 1 : a->missing_bytes > 0 || strstr(a->reason, "cannot be"),
              "%s", a->reason);
        CHECK(strncmp(a->reason, a->axis, strlen(a->axis)) == 0, "%s", a->reason);
        has_t1 |= strcmp(a->axis, "t") == 0 && strcmp(a->value, "1") == 0;
    }
    CHECK(has_t1 && has_misfit, "t=1 %d, one that does not fit %d", has_t1, has_misfit);
}

static void test_fixed(Arena *arena, Diag *diag) {
    check_begin("what is fixed by hand stays fixed");
    synthetic_use(SYNTHETIC_175B, 96);
    SearchRequest request = request_of(512, 512);
    request.t = 8, request.p = 16, request.micro_batch = 2, request.schedule = "1f1b";
    request.recompute = RECOMPUTE_FULL, request.zero = 0, request.sequence_parallel = 0;
    SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(r && r->n_candidates == 1 && r->n_found == 1, "%s", diag_text(diag));
    if (!r || !r->n_found) return;
    const Candidate *c = &r->found[0].candidate;
    CHECK(c->t == 8 && c->p == 16 && c->d == 4 && c->micro_batch == 2 && c->n_micro == 64 &&
              c->n_chunks == 1 && c->recompute == RECOMPUTE_FULL && !c->zero &&
              !c->sequence_parallel,
          "another candidate");
    check_begin("a micro-batch and degrees that no search would try");
    request = request_of(512, 512);
    request.t = 32, request.micro_batch = 128, request.recompute = RECOMPUTE_FULL;
    request.sequence_parallel = 1;
    r = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(r && r->n_candidates > 0, "%s", diag_text(diag));
    check_begin("an unusual winner says so");
    CHECK(r && r->n_found && r->found[0].unusual &&
              strstr(r->found[0].why, "t 32 (compared: to 8)"),
          "no");
}

static void test_no_fit(Arena *arena, Diag *diag) {
    check_begin("nothing fits: what is missing, and how many ranks would do");
    synthetic_use(SYNTHETIC_175B, 96);
    SearchRequest request = request_of(8, 64);
    SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(r && r->n_found == 0 && r->least_missing_bytes > 0, "%s", diag_text(diag));
    if (!r) return;
    CHECK(r->least_ranks > 8 && r->least_ranks % 8 == 0, "%d", r->least_ranks);
    request.n_ranks = r->least_ranks;
    SearchResult *enough = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(enough && enough->n_found > 0, "%d ranks do not do: %s", r->least_ranks, diag_text(diag));
    request.n_ranks = r->least_ranks - 8;
    SearchResult *fewer = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(fewer && fewer->n_found == 0, "%d ranks would do, too", r->least_ranks - 8);
}

/* What is priced beside its neighbours costs what it costs alone, and no less than the bound that
 * spares searches says. */
static void check_records(const SearchRequest *request, int i) {
    Arena *arena = arena_create();
    SearchSpace space = search_space(&synthetic_costs, request);
    SearchRecords *records = search_enumerate(arena, &synthetic_costs, &space,
                                              search_limit_bytes(&synthetic_costs, request));
    StepPricer *pricer = step_pricer_create(&synthetic_costs, arena);
    SearchSplits splits = search_splits_create(&synthetic_costs, arena);
    double least = search_least_bytes(&synthetic_costs, request->n_ranks);
    int n_wrong = 0, n_below = 0, n_not = 0, alone[4096];
    for (int k = 0; k < records->n; k++) {
        const SearchRecord *record = &records->items[k];
        const Candidate *c = &record->candidate;
        StepCost one, next, memory;
        split_blocks(&synthetic_costs, record->layout, candidate_path(c), c->n_chunks, false,
                     alone);
        step_cost(&synthetic_costs, record->layout, c, alone, &one);
        const int *split = search_find_split(&splits, &synthetic_costs, record);
        step_pricer_memory(pricer, record->layout, c, split, &memory);
        step_pricer_cost(pricer, record->layout, c, split, &next);
        n_wrong += one.step_us != next.step_us || one.data_us != next.data_us ||
                   one.pipeline_us != next.pipeline_us || one.bubble_us != next.bubble_us ||
                   one.memory_bytes != next.memory_bytes || one.worst_stage != next.worst_stage ||
                   one.memory_bytes != memory.memory_bytes ||
                   one.runtime_bytes != memory.runtime_bytes;
        n_below += (double)one.memory_bytes < least;
        n_below += !search_may_fit(&space, record, (double)one.memory_bytes);
        n_not += !search_may_fit(&space, record, 0.7 * (double)one.memory_bytes);
    }
    CHECK(records->n > 0 && n_wrong == 0 && n_below == 0, "case %d: of %d %d differ, %d below %g",
          i, records->n, n_wrong, n_below, least);
    CHECK(n_not > records->n / 20, "case %d: bounds say no of %d in %d", i, n_not, records->n);
    search_records_end(records);
    arena_destroy(arena);
}

/* As search_least_ranks, but no number of ranks is left out. */
static int least_ranks_of_all(const SearchRequest *request) {
    SearchSpace space = search_space(&synthetic_costs, request);
    int node = synthetic_cluster.node.n_devices, n_tried = 0;
    double limit_bytes = search_limit_bytes(&synthetic_costs, request);
    for (int n = (request->n_ranks / node + 1) * node; n <= 4096 * request->n_ranks; n += node) {
        int rest = n / node;
        for (int prime = 2; prime <= 7; prime++) {
            while (rest % prime == 0) rest /= prime;
        }
        if (rest > 1) continue;
        if (search_fits_least(&synthetic_costs, &space, n, limit_bytes)) return n;
        if (++n_tried == 200) break;
    }
    return 0;
}

/* Bounds spare a search only where there is nothing to find. */
static void test_bounds(void) {
    int n_found = 0, n_none = 0, n_bound = 0;
    check_begin("random cases: what is left out changes no answer, nor do neighbours a price");
    state = seed + 1;
    for (int i = 0; i < 48 / LAYOUT_STEP; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        SearchRequest request, short_of;
        use_random_case(&request);
        if (request.n_ranks > 12) request.n_ranks = request.global_batch = 8;
        request.memory_limit_bytes =
            CUDA_CONTEXT_BYTES +
            (request.memory_limit_bytes - CUDA_CONTEXT_BYTES) / (1 + 7 * (i % 2));
        short_of = request;
        short_of.leaves_out = PART_SAMPLES | PART_RANKS | PART_MISSING;
        if (i % 8 == 0) check_records(&request, i);
        SearchResult *all = search_layouts(arena, &synthetic_costs, &request, diag);
        SearchResult *some = search_layouts(arena, &synthetic_costs, &short_of, diag);
        bool any = search_finds_any(&synthetic_costs, &request);
        CHECK(all && some, "case %d: %s", i, diag_text(diag));
        if (all && some) {
            CHECK(all->n_found == some->n_found && any == (all->n_found > 0),
                  "case %d: %d found, %d with less to say, any: %d", i, all->n_found, some->n_found,
                  any);
            for (int k = 0; k < all->n_found && k < some->n_found; k++)
                CHECK(same_found(&all->found[k], &some->found[k]), "case %d: found %d", i, k);
            n_found += all->n_found > 0;
            n_none += all->n_found == 0;
            n_bound += all->n_found == 0 && some->n_candidates == 0;
        }
        if (all && all->n_found == 0) {
            int ranks = least_ranks_of_all(&request);
            CHECK(all->least_ranks == ranks, "case %d: %d ranks, of all %d", i, all->least_ranks,
                  ranks);
        }
        diag_destroy(diag);
        arena_destroy(arena);
    }
    printf("# %d found something, %d nothing, %d of them by the bound alone\n", n_found, n_none,
           n_bound);
    CHECK(n_found > 0 && n_bound > 0, "nothing to compare");
    CHECK(n_none > n_bound || LAYOUT_STEP > 1, "no case that the bound lets pass fits nowhere");
}

static void test_refusals(Arena *arena) {
    static const struct {
        SearchRequest request;
        const char *text;
    } CASES[] = {
        {{.n_ranks = 0, .global_batch = 8}, "0 ranks: made-up has 1 to 4194304\n"},
        {{.n_ranks = 8, .global_batch = 0}, "a global batch of 0 sequences: must be at least 1\n"},
        {{.n_ranks = 8, .global_batch = 8, .t = 3}, "t=3 does not divide 8 ranks\n"},
        {{.n_ranks = 8, .global_batch = 8, .p = -2}, "p=-2 does not divide 8 ranks\n"},
        {{.n_ranks = 8, .global_batch = 8, .t = 2, .p = 2, .d = 4},
         "t=2 x p=2 x d=4 are 16 ranks, not 8\n"},
        {{.n_ranks = 8, .global_batch = 9, .d = 2}, "d=2 does not divide global batch 9\n"},
        {{.n_ranks = 8, .global_batch = 8, .micro_batch = 3},
         "global batch 8 is not a multiple of micro-batch 3 x d 1\n"},
        {{.n_ranks = 256, .global_batch = 8, .p = 128},
         "p=128 needs at least 126 blocks; the model has 96\n"},
        {{.n_ranks = 8, .global_batch = 8, .n_chunks = 33}, "33 chunks a stage: must be 1 to 32\n"},
        {{.n_ranks = 8, .global_batch = 8, .schedule = "zigzag"},
         "there is no schedule 'zigzag'\n"},
        {{.n_ranks = 8, .global_batch = 8, .p = 2, .schedule = "1f1b", .n_chunks = 2},
         "--schedule 1f1b cannot be with t=1, p=2, d=4, micro-batch 1: interleaved and zb-chunked "
         "need micro-batches in multiples of p, zb-v and v-half two chunks a stage, others one, "
         "and "
         "no split backward full recomputation\n"},
        {{.n_ranks = 5, .global_batch = 20, .t = 5},
         "t=5: axis 'heads' is 96: t=5 does not "
         "divide it\n"},
        {{.n_ranks = 8, .global_batch = 64, .t = 8, .d = 2},
         "t=8 x d=2 = 16 does not divide 8 ranks\n"},
        {{.n_ranks = 128, .global_batch = 8, .p = 16, .n_chunks = 8},
         "p=16 x 8 chunks needs at least 126 blocks; the model has 96\n"},
        {{.n_ranks = 64, .global_batch = 8, .p = 1, .d = 1, .n_chunks = 1},
         "t=64: axis 'heads' is 96: t=64 does not divide it\n"},
        {{.n_ranks = 475, .global_batch = 64}, /* p = 95, t = 5 */
         "475 ranks cannot be divided: global batch 64 leaves only t=5 (axis 'heads' is 96: t=5 "
         "does not divide it); 464 or 480 ranks would do\n"},
        {{.n_ranks = 4099, .global_batch = 1024},
         "4099 ranks cannot be divided: no d = ranks / (t x c x p) divides global batch 1024; 4096 "
         "or "
         "4160 ranks would do\n"},
    };
    check_begin("impossible requests: one line each");
    synthetic_use(SYNTHETIC_175B, 96);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Diag *diag = diag_create();
        SearchRequest request = CASES[i].request;
        request.recompute = request.zero = request.sequence_parallel = -1;
        SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
        CHECK(!r, "case %zu was searched", i);
        CHECK(strstr(diag_text(diag), CASES[i].text), "case %zu: %s", i, diag_text(diag));
        diag_destroy(diag);
    }
}

/* 126 blocks and software that splits them evenly: p=16 follows from t and d. */
static void test_even_split(Arena *arena) {
    static const char WANT[] = "p=16: software made-up splits blocks evenly, and the model's 126 "
                               "are no multiple of 16\n";
    check_begin("blocks that do not go over stages evenly are what is said, not the batch");
    synthetic_use(SYNTHETIC_175B, 126);
    synthetic_cluster.software.even_split = true;
    for (int given = 0; given < 2; given++) {
        Diag *diag = diag_create();
        SearchRequest request = request_of(16384, 2048);
        request.t = 8, request.d = 128, request.p = given ? 16 : ANY;
        CHECK(!search_layouts(arena, &synthetic_costs, &request, diag), "it was searched");
        CHECK(strstr(diag_text(diag), WANT), "%s", diag_text(diag));
        diag_destroy(diag);
    }
}

static void test_cramped(Arena *arena, Diag *diag) {
    check_begin("few data degrees left: which are not, and numbers of ranks with more");
    synthetic_use(SYNTHETIC_175B, 96);
    SearchRequest request = request_of(100, 1024);
    request.explain = true, request.memory_limit_bytes = 1e15;
    SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(r && r->n_found, "%s", diag_text(diag));
    bool said = false;
    for (int i = 0; r && i < r->n_alternatives; i++) {
        said |= !strcmp(r->alternatives[i].reason,
                        "d=5, 10, 20, 25, 50, 100 cannot be: global batch 1024 is no multiple");
    }
    CHECK(said, "no refused d");
    CHECK(r && r->remark &&
              !strcmp(r->remark, "global batch 1024 rules out every d of 100 ranks but 1, 2, 4: "
                                 "96 or 112 ranks can be divided in more ways, and may be faster"),
          "%s", r && r->remark ? r->remark : "nothing");
    request = request_of(128, 1024);
    r = search_layouts(arena, &synthetic_costs, &request, diag);
    CHECK(r && !r->remark, "a remark on 128 ranks");
}

/* Narayanan et al. 2021, takeaways 1-3; on costs with a closed form. */
static void test_lessons(Arena *arena, Diag *diag) {
    synthetic_use(SYNTHETIC_175B, 96);
    SearchRequest request = request_of(1024, 1024);
    request.explain = true;
    SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
    check_begin("tensor parallelism stays in the node, the pipeline leaves it");
    CHECK(r && r->n_found && r->found[0].candidate.t <= 8 && r->found[0].candidate.p > 1 &&
              r->found[0].candidate.t * r->found[0].candidate.p > 8,
          "%s", diag_text(diag));
    check_begin("t beyond the node loses to its messages");
    for (int i = 0; r && i < r->n_alternatives; i++) {
        const Alternative *a = &r->alternatives[i];
        if (strcmp(a->axis, "t") == 0 && strcmp(a->value, "16") == 0) {
            CHECK(a->slowdown > 1.05 && strstr(a->reason, "leaves the node") &&
                      strstr(a->reason, "messages of tensor"),
                  "%s", a->reason);
        }
    }
    check_begin("interleaving gains at a small batch, and less at a large one");
    double gain[2];
    for (int i = 0; i < 2; i++) {
        double us[2];
        for (int k = 0; k < 2; k++) {
            request = request_of(64, i ? 512 : 16);
            request.t = 8, request.p = 8, request.schedule = k ? "1f1b" : "interleaved";
            r = search_layouts(arena, &synthetic_costs, &request, diag);
            CHECK(r && r->n_found, "nothing found: %s", diag_text(diag));
            us[k] = r && r->n_found ? r->found[0].cost.step_us : 1;
        }
        gain[i] = us[1] / us[0] - 1;
    }
    CHECK(gain[0] > 0.1 && gain[1] < gain[0] / 4, "%g, then %g", gain[0], gain[1]);
    check_begin("the best micro-batch is in the middle");
    synthetic.op_us = 2000;
    double us[6];
    int best = 0;
    for (int i = 0; i < 6; i++) {
        request = request_of(64, 128);
        request.t = 8, request.p = 8, request.schedule = "1f1b", request.micro_batch = 1 << i;
        request.recompute = RECOMPUTE_FULL, request.memory_limit_bytes = 1e15;
        n_synthetic_layouts = 0;
        r = search_layouts(arena, &synthetic_costs, &request, diag);
        us[i] = r && r->n_found ? r->found[0].cost.step_us : 0;
        if (us[i] < us[best]) best = i;
    }
    CHECK(best > 0 && best < 5, "1 << %d: %g %g %g %g %g %g", best, us[0], us[1], us[2], us[3],
          us[4], us[5]);
}

static void test_speed(Arena *arena, Diag *diag) {
    static const struct {
        int n_ranks, global_batch, n_blocks;
        double seconds;
    } CASES[] = {
        {4096, 4096, 96, 1}, {3072, 3072, 128, 2}, {16384, 2048, 126, 2}, {100000, 100000, 128, 5}};
    check_begin("large searches end in time");
    for (int i = 0; i < 4; i += getenv("TEST_LONG") ? 1 : 3) {
        synthetic_use(SYNTHETIC_175B, CASES[i].n_blocks);
        SearchRequest request = request_of(CASES[i].n_ranks, CASES[i].global_batch);
        SearchResult *r = search_layouts(arena, &synthetic_costs, &request, diag);
        CHECK(r, "%s", diag_text(diag));
        if (!r) continue;
        printf("# %d ranks: %lld candidates, %lld fit, %.3f s\n", CASES[i].n_ranks,
               (long long)r->n_candidates, (long long)r->n_fit, r->seconds);
        /* Generous: sanitizers and busy machines. */
        CHECK(r->seconds < 20 * CASES[i].seconds, "%d ranks: %g s", CASES[i].n_ranks, r->seconds);
    }
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_optimum(diag);
    test_many_groups(arena, diag);
    test_threads(arena, diag);
    test_result(arena, diag);
    test_fixed(arena, diag);
    test_no_fit(arena, diag);
    test_bounds();
    test_refusals(arena);
    test_even_split(arena);
    test_cramped(arena, diag);
    test_lessons(arena, diag);
    test_speed(arena, diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
