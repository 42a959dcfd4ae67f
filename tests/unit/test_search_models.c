/* The search on the models and clusters that come with the program: in time, and finding what the
 * papers found. */
#include "frontend/lua/cluster_read.h"
#include "frontend/lua/model.h"
#include "planner/search/search_records.h"
#include "tests/unit/check.h"
#include "tests/unit/model_request.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { MOST_AXES = 16, MOST_TRIED_VALUES = 128 };

static double now_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static ModelCosts *costs_of(Arena *arena, const char *path, const ModelSetting *settings,
                            int n_settings, const char *cluster_name, const char *software,
                            Diag *diag) {
    Model *model = model_load(arena, path, settings, n_settings, 1, diag);
    Cluster *cluster = model ? cluster_read(arena, cluster_name, software, diag) : NULL;
    if (!cluster) return NULL;
    PlanRequest request = model_request(model);
    return model_costs_create(arena, &request, cluster, diag);
}

static SearchRequest request_of(int n_ranks, int global_batch) {
    return (SearchRequest){.n_ranks = n_ranks,
                           .global_batch = global_batch,
                           .recompute = -1,
                           .zero = -1,
                           .sequence_parallel = -1};
}

static void test_speed(Diag *diag) {
    static const struct {
        const char *path, *size, *cluster;
        int n_ranks, global_batch;
        double seconds;
    } CASES[] = {{"models/gpt.lua", "175b", "selene", 4096, 4096, 1},
                 {"models/gpt.lua", "1t", "selene", 3072, 3072, 2},
                 {"models/llama.lua", "405b", "h100-roce", 16384, 2048, 2}};
    check_begin("large models: the whole space in time, from the model's script on");
    const bool all = getenv("TEST_LONG");
    for (size_t i = !all; i < (all ? sizeof(CASES) / sizeof(CASES[0]) : 2); i++) {
        Arena *arena = arena_create();
        ModelSetting size = {"size", CASES[i].size};
        SearchRequest request = request_of(CASES[i].n_ranks, CASES[i].global_batch);
        double begin = now_seconds();
        ModelCosts *costs = costs_of(arena, CASES[i].path, &size, 1, CASES[i].cluster, NULL, diag);
        SearchResult *r = costs ? search_layouts(arena, costs, &request, diag) : NULL;
        double seconds = now_seconds() - begin;
        CHECK(r && r->n_found > 0, "%s: %s", CASES[i].size, diag_text(diag));
        if (r) {
            printf("# %s on %d: %lld candidates, %lld fit, %.3f s, %.0f a second\n", CASES[i].size,
                   CASES[i].n_ranks, (long long)r->n_candidates, (long long)r->n_fit, seconds,
                   (double)r->n_candidates / r->seconds);
        }
        /* Generous: sanitizers and busy machines. */
        CHECK(seconds < 20 * CASES[i].seconds, "%s: %.2f s", CASES[i].size, seconds);
        arena_destroy(arena);
    }
}

/* "The Llama 3 Herd of Models" (arXiv 2407.21783), section 3.3.2 and table 4: 126 layers in 128
 * chunks, the first and the last without one; 400 TFLOP/s a GPU, with memory that ZeRO beyond stage
 * 1 made room for. Half as many stages are a little faster where gathers of weights are beside the
 * forward. */
static void test_llama(Diag *diag) {
    Arena *arena = arena_create();
    ModelSetting size = {"size", "405b"};
    SearchRequest request = request_of(16384, 2048);
    check_begin("Llama 3 405B on 16,384 H100s: the layout that it was trained in, and its speed");
    ModelCosts *costs = costs_of(arena, "models/llama.lua", &size, 1, "h100-roce", NULL, diag);
    SearchResult *r = costs ? search_layouts(arena, costs, &request, diag) : NULL;
    CHECK(r && r->n_found > 0, "%s", diag_text(diag));
    if (r && r->n_found > 0) {
        const Found *trained = NULL;
        for (int i = r->n_found - 1; i >= 0; i--) {
            const Candidate *c = &r->found[i].candidate;
            bool is = c->t == 8 && c->p == 16 && c->n_chunks == 8 && c->micro_batch == 1;
            trained = is ? &r->found[i] : trained;
        }
        CHECK(trained, "it is not among those that were found");
        for (int g = 0; trained && g < 128; g++) {
            CHECK(trained->split[g] == (g > 0 && g < 127), "chunk %d: %d", g, trained->split[g]);
        }
        double us = trained ? trained->cost.step_us : 1, least = r->found[0].cost.step_us;
        double tflops = costs->model_flops * 2048 / us / 16384 / 1e6;
        CHECK(us / least < 1.03, "it is %.1f %% slower", 100 * (us / least - 1));
        CHECK(fabs(tflops / 400 - 1) < 0.1, "%.0f TFLOP/s a GPU", tflops);
    }
    arena_destroy(arena);
}

/* Narayanan et al. 2021, takeaway 1: t up to the node, then p. */
static void test_mesh(Diag *diag) {
    static const struct {
        const char *size;
        int n_ranks, global_batch, least_tp;
    } CASES[] = {{"1.7b", 32, 512, 1},
                 {"39.1b", 512, 1536, 2},
                 {"145.6b", 1536, 2304, 16},
                 {"1008b", 3072, 3072, 128}};
    check_begin("t stays in the node, p leaves it, and both grow with the model (SC'21)");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += LAYOUT_STEP) {
        Arena *arena = arena_create();
        ModelSetting size = {"size", CASES[i].size};
        ModelCosts *costs =
            costs_of(arena, "models/gpt.lua", &size, 1, "selene", "megatron-2021", diag);
        SearchRequest request = request_of(CASES[i].n_ranks, CASES[i].global_batch);
        SearchResult *r = costs ? search_layouts(arena, costs, &request, diag) : NULL;
        CHECK(r && r->n_found > 0, "%s: %s", CASES[i].size, diag_text(diag));
        if (r && r->n_found) {
            const Candidate *c = &r->found[0].candidate;
            CHECK(c->t <= 8 && c->t * c->p >= CASES[i].least_tp, "%s: t=%d p=%d", CASES[i].size,
                  c->t, c->p);
        }
        arena_destroy(arena);
    }
}

static double best_us(Arena *arena, ModelCosts *costs, const SearchRequest *request, Diag *diag) {
    SearchResult *r = search_layouts(arena, costs, request, diag);
    CHECK(r && r->n_found > 0, "nothing found: %s", diag_text(diag));
    return r && r->n_found > 0 ? r->found[0].cost.step_us : 1;
}

/* What is free must not be slower than what is fixed, nor depend on whether anyone asks why. */
static void test_slow_network(Diag *diag) {
    static const struct {
        const char *size;
        int n_ranks, t;
        const char *schedule;
    } CASES[] = {{"70b", 64, 2, "1f1b"}, {"70b", 128, 8, "1f1b"}, {"8b", 64, 8, "gpipe"}};
    check_begin("a slow network: the free search is no slower than one with choices fixed");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += LAYOUT_STEP) {
        Arena *arena = arena_create();
        ModelSetting size = {"size", CASES[i].size};
        ModelCosts *costs = costs_of(arena, "models/llama.lua", &size, 1,
                                     "tests/data/slow_network.lua", NULL, diag);
        CHECK(costs, "%s: %s", CASES[i].size, diag_text(diag));
        if (costs) {
            SearchRequest request = request_of(CASES[i].n_ranks, 512);
            double free_us = best_us(arena, costs, &request, diag);
            request.explain = true;
            double explained_us = best_us(arena, costs, &request, diag);
            request.explain = false, request.schedule = CASES[i].schedule;
            double schedule_us = best_us(arena, costs, &request, diag);
            request.schedule = NULL, request.t = CASES[i].t;
            double tensor_us = best_us(arena, costs, &request, diag);
            printf("# %s on %d: %.1f s; %s %.1f s; t=%d %.1f s\n", CASES[i].size, CASES[i].n_ranks,
                   free_us / 1e6, CASES[i].schedule, schedule_us / 1e6, CASES[i].t,
                   tensor_us / 1e6);
            CHECK(explained_us == free_us, "%s: explained %g", CASES[i].size, explained_us / 1e6);
            CHECK(free_us <= fmin(schedule_us, tensor_us) * (1 + 1e-9), "%s: free %g s, %g s, %g s",
                  CASES[i].size, free_us / 1e6, schedule_us / 1e6, tensor_us / 1e6);
        }
        arena_destroy(arena);
    }
}

/* Korthikanti et al. 2022, table 5: 29 to 32 % faster. */
static void test_recomputation(Diag *diag) {
    static const struct {
        const char *name, *layers, *hidden, *heads;
        int n_ranks, p, n_chunks, micro_batch, global_batch;
    } CASES[] = {{"22b", "48", "6144", "64", 8, 1, 1, 4, 4},
                 {"175b", "96", "12288", "96", 64, 8, 3, 1, 64},
                 {"530b", "105", "20480", "128", 280, 35, 3, 1, 280},
                 {"1t", "128", "25600", "160", 512, 64, 1, 1, 512}};
    check_begin("selective recomputation with sequence parallelism beats full recomputation");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += LAYOUT_STEP) {
        Arena *arena = arena_create();
        ModelSetting settings[] = {{"layers", CASES[i].layers}, {"model", CASES[i].hidden},
                                   {"heads", CASES[i].heads},   {"seq", "2048"},
                                   {"vocab", "51200"},          {"dropout", "0.1"}};
        ModelCosts *costs =
            costs_of(arena, "models/gpt.lua", settings, 6, "selene", "megatron-2022", diag);
        CHECK(costs, "%s: %s", CASES[i].name, diag_text(diag));
        if (costs) {
            SearchRequest request = request_of(CASES[i].n_ranks, CASES[i].global_batch);
            request.t = 8, request.p = CASES[i].p, request.n_chunks = CASES[i].n_chunks;
            request.micro_batch = CASES[i].micro_batch, request.zero = 0;
            request.recompute = RECOMPUTE_FULL, request.sequence_parallel = 0;
            double full_us = best_us(arena, costs, &request, diag);
            request.recompute = RECOMPUTE_SELECTIVE, request.sequence_parallel = 1;
            double selective_us = best_us(arena, costs, &request, diag), gain;
            gain = full_us / selective_us - 1;
            printf("# %s: %.2f s and %.2f s\n", CASES[i].name, full_us / 1e6, selective_us / 1e6);
            CHECK(gain > 0.2 && gain < 0.45, "%s: %+.3f", CASES[i].name, gain);
        }
        arena_destroy(arena);
    }
}

/* Narayanan et al. 2021, figures 12 and 16: 175B, 8 x 12, and the micro-batch's size. */
static void test_batches(Diag *diag) {
    Arena *arena = arena_create();
    ModelSetting size = {"size", "175b"};
    ModelCosts *costs =
        costs_of(arena, "models/gpt.lua", &size, 1, "selene", "megatron-2021", diag);
    check_begin("interleaving gains at a small batch, and less at a large one (SC'21, figure 12)");
    CHECK(costs, "%s", diag_text(diag));
    double gain[2] = {0, 0};
    for (int i = 0; costs && i < 2; i++) {
        SearchRequest request = request_of(96, i ? 384 : 24);
        request.t = 8, request.p = 12, request.micro_batch = 1;
        request.recompute = RECOMPUTE_FULL, request.sequence_parallel = 0;
        request.schedule = "1f1b";
        double plain_us = best_us(arena, costs, &request, diag);
        request.schedule = "interleaved", request.n_chunks = 2;
        gain[i] = plain_us / best_us(arena, costs, &request, diag) - 1;
    }
    CHECK(gain[0] > 0.08 && gain[1] < gain[0] / 2, "%+.3f, then %+.3f", gain[0], gain[1]);
    check_begin(
        "the best micro-batch is in the middle (SC'21, figure 16: 91B, t=8, p=8, batch 512)");
    ModelSetting settings[] = {
        {"layers", "72"}, {"model", "10240"}, {"heads", "80"}, {"seq", "2048"}, {"vocab", "51200"}};
    costs = costs_of(arena, "models/gpt.lua", settings, 5, "selene", "megatron-2021", diag);
    double us[5] = {0};
    int best = 0;
    for (int i = 0; costs && i < 5; i++) {
        SearchRequest request = request_of(64, 512);
        request.t = 8, request.p = 8, request.micro_batch = 1 << i, request.schedule = "1f1b";
        request.recompute = RECOMPUTE_FULL, request.sequence_parallel = 0;
        request.memory_limit_bytes = 1e15; /* time is the question */
        us[i] = best_us(arena, costs, &request, diag);
        if (us[i] < us[best]) best = i;
    }
    CHECK(best > 0 && best < 4, "1 << %d: %g %g %g %g %g", best, us[0], us[1], us[2], us[3], us[4]);
    arena_destroy(arena);
}

/* What all of a space take, priced one by one. */
typedef struct Exhaustive {
    int64_t n_fit;
    int n_wrong, n_bounded; /* bounds above what they bound; of what does not fit, left out */
    bool fits[MOST_AXES][MOST_TRIED_VALUES];
    int64_t least[MOST_AXES][MOST_TRIED_VALUES]; /* bytes: by axis and value; 0: none has it */
} Exhaustive;

static void price_alone(SearchRecords *records, double limit_bytes, Exhaustive *out) {
    const ModelCosts *costs = records->costs;
    Arena *scratch = arena_create();
    SearchSplits splits = search_splits_create(costs, scratch);
    for (int i = 0; i < records->n; i++) {
        const SearchRecord *record = &records->items[i];
        const Candidate *c = &record->candidate;
        StepCost cost;
        model_costs_price(records->costs, record->layout, schedule_splits(c->schedule));
        step_memory(costs, record->layout, c, search_find_split(&splits, costs, record), &cost);
        bool fits = (double)cost.memory_bytes <= limit_bytes;
        out->n_fit += fits;
        out->n_wrong += !search_may_fit(&records->space, record, (double)cost.memory_bytes);
        out->n_bounded += !search_may_fit(&records->space, record, limit_bytes);
        for (int row = 0; row < N_SEARCH_AXES; row++) {
            int value = SEARCH_AXES[row].get(c);
            if (value >= MOST_TRIED_VALUES) continue;
            int64_t *least = &out->least[row][value];
            out->fits[row][value] |= fits;
            if (*least == 0 || cost.memory_bytes < *least) *least = cost.memory_bytes;
        }
    }
    arena_destroy(scratch);
}

/* What is missing where nothing fits is what is missing of all. */
static void check_missing(const SearchResult *result, const Exhaustive *all, double limit_bytes) {
    Arena *arena = arena_create();
    for (int i = 0; i < result->n_alternatives; i++) {
        const Alternative *other = &result->alternatives[i];
        for (int row = 0; row < N_SEARCH_AXES; row++) {
            for (int value = 0; value < MOST_TRIED_VALUES; value++) {
                const SearchAxis *axis = &SEARCH_AXES[row];
                if (all->least[row][value] == 0 || strcmp(axis->name, other->axis) != 0) continue;
                if (strcmp(search_value_text(arena, axis, value), other->value) != 0) continue;
                CHECK(other->fits == all->fits[row][value], "%s=%s", other->axis, other->value);
                if (other->fits) continue;
                double missing = ceil((double)all->least[row][value] - limit_bytes);
                CHECK((double)other->missing_bytes == missing, "%s=%s: %lld bytes, not %.0f",
                      other->axis, other->value, (long long)other->missing_bytes, missing);
            }
        }
    }
    arena_destroy(arena);
}

/* Only those that are as fast as they have to be are found. */
static void check_beats(Arena *arena, ModelCosts *costs, SearchRequest request, Diag *diag) {
    double us = best_us(arena, costs, &request, diag);
    for (int i = 0; i < 3; i++) {
        const double times[] = {0.9, 1, 1.2};
        request.beats_us = times[i] * us;
        SearchResult *r = search_layouts(arena, costs, &request, diag);
        CHECK(r && (r->n_found > 0) == (i > 0), "%g of the best", times[i]);
        CHECK(!r || i == 0 || r->found[0].cost.step_us == us, "%g of the best", times[i]);
    }
}

/* Bounds are below what they bound, and what they leave out changes nothing. */
static void test_bounds(Diag *diag) {
    static const struct {
        const char *path, *size;
        int n_ranks, global_batch, t, p;
        double limit_bytes;
    } CASES[] = {{"models/deepseek.lua", "v2-lite", 16, 32, 2, 4, 34e9},
                 {"models/t5.lua", "3b", 8, 16, 2, 2, 10e9}};
    check_begin("bounds: what they leave out does not fit, and all else is as without");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i += LAYOUT_STEP) {
        Arena *arena = arena_create();
        ModelSetting size = {"size", CASES[i].size};
        ModelCosts *costs = costs_of(arena, CASES[i].path, &size, 1, "h800", NULL, diag);
        SearchRequest request = request_of(CASES[i].n_ranks, CASES[i].global_batch);
        double limit_bytes = request.memory_limit_bytes = CASES[i].limit_bytes;
        CHECK(costs, "%s: %s", CASES[i].path, diag_text(diag));
        if (!costs) continue;
        request.t = CASES[i].t, request.p = CASES[i].p;
        request.explain = true;
        SearchSpace space = search_space(costs, &request);
        SearchResult *r = search_layouts(arena, costs, &request, diag);
        SearchRecords *records = search_enumerate(arena, costs, &space, limit_bytes);
        Exhaustive *all = ARENA_NEW(arena, Exhaustive);
        price_alone(records, limit_bytes, all);
        printf("# %s: %d layouts, %lld fit, bounds leave out %d\n", CASES[i].path, records->n,
               (long long)all->n_fit, all->n_bounded);
        CHECK(all->n_wrong == 0, "%s: %d bounds are too high", CASES[i].path, all->n_wrong);
        CHECK(all->n_fit > 0 && all->n_bounded > 0, "%s: nothing to compare", CASES[i].path);
        CHECK(r && r->n_fit == all->n_fit, "%s: %lld fit", CASES[i].path,
              (long long)(r ? r->n_fit : 0));
        if (r) check_missing(r, all, limit_bytes);
        if (i == 0) check_beats(arena, costs, request, diag);
        search_records_end(records);
        arena_destroy(arena);
    }
}

int main(void) {
    Diag *diag = diag_create();
    test_bounds(diag);
    test_speed(diag);
    test_llama(diag);
    test_mesh(diag);
    test_slow_network(diag);
    test_recomputation(diag);
    test_batches(diag);
    diag_destroy(diag);
    return check_report();
}
