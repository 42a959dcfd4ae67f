/* Candidates played: against step_cost, which has closed forms for the same prices, on a made-up
 * model and cluster. */
#include "planner/cost/border_time.h"
#include "planner/simulate/simulate_candidate.h"
#include "tests/unit/check.h"
#include "tests/unit/synthetic_costs.h"

#include <stdlib.h>
#include <time.h>

enum { MOST_CHUNKS = 4096 };

typedef struct Pair {
    StepCost closed, played;
    int split[MOST_CHUNKS];
} Pair;

static int schedule_number(const char *name) {
    for (int i = 0; schedule_name(i); i++) {
        if (strcmp(schedule_name(i), name) == 0) return i;
    }
    return -1;
}

/* Both costs. Splits evenly when `even`, else as the search would. */
static bool price(PipelineSim *sim, const Candidate *candidate, bool even, Pair *out, Diag *diag) {
    const char *reason = "";
    const LayoutCost *layout =
        model_costs_at(&synthetic_costs, candidate->t, candidate->sequence_parallel,
                       candidate->recompute, candidate->micro_batch, &reason);
    CHECK(layout, "%s", reason);
    if (!layout || !split_blocks(&synthetic_costs, layout, candidate_path(candidate),
                                 candidate->n_chunks, even, out->split)) {
        return false;
    }
    step_cost(&synthetic_costs, layout, candidate, out->split, &out->closed);
    out->played = out->closed;
    bool good = simulate_candidate(sim, &synthetic_costs, layout, candidate, out->split,
                                   &out->played, diag);
    CHECK(good, "%s", diag_text(diag));
    return good;
}

static double parts_us(const StepCost *cost) {
    return cost->compute_us + cost->tensor_us + cost->pipeline_us + cost->bubble_us +
           cost->data_us + cost->update_us;
}

static void check_parts(const StepCost *played, const char *what) {
    CHECK(fabs(parts_us(played) - played->step_us) <= 1e-6 * played->step_us,
          "%s: parts sum to %g of %g", what, parts_us(played), played->step_us);
    CHECK(played->compute_us > 0 && played->pipeline_us >= -1e-3 && played->bubble_us >= -1e-3 &&
              played->data_us >= 0 && played->update_us > 0,
          "%s: a part is negative", what);
}

/* What a stage holds all the time, for the page: all classes but activations and messages. */
static void check_constant(const Candidate *candidate, const Pair *pair) {
    Arena *arena = arena_create();
    const char *reason;
    const LayoutCost *layout =
        model_costs_at(&synthetic_costs, candidate->t, candidate->sequence_parallel,
                       candidate->recompute, candidate->micro_batch, &reason);
    const PipelineLoad *load =
        candidate_load(NULL, arena, &synthetic_costs, layout, candidate, pair->split);
    const StepCost *cost = &pair->closed;
    double want = (double)(cost->memory_bytes - cost->activation_bytes - cost->message_bytes);
    double is = load->constant_bytes[cost->worst_stage];
    CHECK(cost->runtime_bytes > 0 && fabs(is - want) < 4096, "stage %d: %.0f, not %.0f",
          cost->worst_stage, is, want);
    arena_destroy(arena);
}

/* Weights of the ends so light that stages are equal. */
static const Synthetic EQUAL = {2048, 12288, 96, 1, 200e12, 60, 1};

static void test_closed_forms(PipelineSim *sim, Diag *diag) {
    /* With v-half, messages up and down share wires, which the closed form does not see. */
    static const struct {
        const char *schedule;
        int t, p, d, v, m, zero;
        double within;
    } CASES[] = {
        {"1f1b", 8, 8, 16, 1, 64, 0, 0.01},        {"1f1b", 8, 1, 128, 1, 4, 1, 0.01},
        {"1f1b", 1, 4, 8, 1, 128, 0, 0.01},        {"gpipe", 8, 12, 1, 1, 32, 0, 0.01},
        {"interleaved", 8, 8, 16, 4, 64, 1, 0.01}, {"interleaved", 4, 12, 4, 2, 48, 0, 0.01},
        {"1f1b", 2, 48, 2, 1, 96, 1, 0.01},        {"1f1b", 2, 1, 16, 1, 4, 3, 0.01},
        {"1f1b", 2, 4, 16, 1, 16, 2, 0.01},        {"interleaved", 4, 4, 8, 4, 16, 3, 0.01},
        {"zb-v", 8, 8, 16, 2, 64, 0, 0.01},        {"zb-v", 4, 12, 4, 2, 50, 1, 0.01},
        {"v-half", 8, 8, 16, 2, 64, 0, 0.02},      {"v-half", 4, 12, 4, 2, 150, 1, 0.02},
    };
    Pair pair;
    for (int software = 0; software < 16; software++) {
        char name[200];
        snprintf(name, sizeof(name), "equal stages%s%s%s%s: as near the closed form as they should",
                 software & 1 ? ", gradients overlapped" : "",
                 software & 2 ? ", messages overlapped" : "",
                 software & 4 ? ", borders scattered" : "",
                 software & 8 ? ", gathers beside forwards" : "");
        check_begin(name);
        synthetic_use(EQUAL, 96);
        synthetic_cluster.software.overlaps_gradients = software & 1;
        synthetic_cluster.software.overlaps_pipeline = software & 2;
        synthetic_cluster.software.scatters_borders = software & 4;
        synthetic_cluster.software.overlaps_parameters = software & 8;
        for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            Candidate candidate = {.t = CASES[i].t,
                                   .p = CASES[i].p,
                                   .d = CASES[i].d,
                                   .n_chunks = CASES[i].v,
                                   .micro_batch = 1,
                                   .n_micro = CASES[i].m,
                                   .zero = CASES[i].zero,
                                   .schedule = schedule_number(CASES[i].schedule)};
            if (!price(sim, &candidate, true, &pair, diag)) continue;
            double error = pair.closed.step_us / pair.played.step_us - 1;
            CHECK(fabs(error) < CASES[i].within,
                  "software %d, case %zu (%s p=%d v=%d): closed %.0f us, played %.0f us (%+.2f %%)",
                  software, i, CASES[i].schedule, CASES[i].p, CASES[i].v, pair.closed.step_us,
                  pair.played.step_us, 100 * error);
            check_parts(&pair.played, CASES[i].schedule);
            CHECK(pair.played.memory_bytes == pair.closed.memory_bytes, "memory changed");
            check_constant(&candidate, &pair);
        }
    }
}

/* One block a chunk, and none in the first and the last, as Llama 3's. */
static void test_bare_ends(PipelineSim *sim, Diag *diag) {
    static const struct {
        const char *schedule;
        int t, p, d, v, m;
    } CASES[] = {{"interleaved", 8, 16, 4, 6, 16},
                 {"interleaved", 2, 8, 2, 12, 64},
                 {"interleaved", 4, 4, 8, 24, 8},
                 {"1f1b", 8, 96, 4, 1, 192},
                 {"gpipe", 8, 96, 2, 1, 32}};
    Pair pair;
    check_begin("the first and the last chunk without a block: within 3 % of the closed form");
    for (int software = 0; software < 4; software++) {
        synthetic_use(SYNTHETIC_175B, 94);
        synthetic_cluster.software.overlaps_gradients = software & 1;
        synthetic_cluster.software.overlaps_pipeline = software & 2;
        for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            Candidate candidate = {.t = CASES[i].t,
                                   .p = CASES[i].p,
                                   .d = CASES[i].d,
                                   .n_chunks = CASES[i].v,
                                   .micro_batch = 1,
                                   .n_micro = CASES[i].m,
                                   .schedule = schedule_number(CASES[i].schedule)};
            if (!price(sim, &candidate, false, &pair, diag)) continue;
            CHECK(pair.split[0] == 0 && pair.split[95] == 0 && pair.split[94] == 1, "case %zu", i);
            double error = pair.closed.step_us / pair.played.step_us - 1;
            CHECK(fabs(error) < 0.03, "software %d, case %zu: closed %.0f us, played %.0f us",
                  software, i, pair.closed.step_us, pair.played.step_us);
            check_parts(&pair.played, CASES[i].schedule);
            check_constant(&candidate, &pair);
        }
    }
}

/* Megatron's habits cost what they must: nothing is hidden. */
static void test_software(PipelineSim *sim, Diag *diag) {
    check_begin("software: hiding messages and gradients takes less than waiting for them");
    Pair pair;
    double us[4], data_us[4], pipeline_us[4];
    Candidate candidate = {8,     8, 16, 1,     1, 64, schedule_number("1f1b"), 0, 0,
                           false, 1, 1,  false, 1, 1};
    synthetic_use(SYNTHETIC_175B, 96);
    for (int software = 0; software < 4; software++) {
        synthetic_cluster.software.overlaps_gradients = software & 1;
        synthetic_cluster.software.overlaps_pipeline = software & 2;
        if (!price(sim, &candidate, true, &pair, diag)) return;
        us[software] = pair.played.step_us;
        data_us[software] = pair.played.data_us;
        pipeline_us[software] = pair.played.pipeline_us;
        check_parts(&pair.played, "175B");
    }
    CHECK(us[3] < us[1] && us[3] < us[2] && us[1] < us[0] && us[2] < us[0],
          "neither %.0f, gradients %.0f, pipeline %.0f, both %.0f us", us[0], us[1], us[2], us[3]);
    CHECK(data_us[1] < data_us[0] && pipeline_us[2] < pipeline_us[0], "parts: %g %g %g %g",
          data_us[0], data_us[1], pipeline_us[0], pipeline_us[2]);
}

/* Four stages of two ranks share a node, and with a single card its wire. */
static void test_cards(PipelineSim *sim) {
    check_begin("stages that share a network card wait for it");
    Pair pair;
    Candidate candidate = {2,     8, 1, 1,     1, 32, schedule_number("1f1b"), 0, 0,
                           false, 1, 1, false, 1, 1};
    const char *reason;
    synthetic_use(EQUAL, 96);
    const LayoutCost *layout = model_costs_at(&synthetic_costs, 2, false, 0, 1, &reason);
    split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 8}, 1, true, pair.split);
    const PipelineLoad *load =
        candidate_load(sim, NULL, &synthetic_costs, layout, &candidate, pair.split);
    int n_network = load->n_wires - 8;
    CHECK(n_network == 8 && load->n_links == 14, "a card each: %d wires, %d links", n_network,
          load->n_links);
    synthetic_cluster.network.n_nics = 1;
    load = candidate_load(sim, NULL, &synthetic_costs, layout, &candidate, pair.split);
    CHECK(load->n_wires - 8 == 2, "one card a node: %d wires", load->n_wires - 8);
    int n_cross = 0;
    for (int i = 0; i < load->n_links; i++) n_cross += load->links[i].wire < 2;
    CHECK(n_cross == 2, "%d links leave a node, not those between stages 3 and 4", n_cross);
}

static void test_scattered(void) {
    check_begin("borders: scattered, 1/t of the bytes and a gather");
    const char *reason;
    synthetic_use(EQUAL, 96);
    const LayoutCost *layout = model_costs_at(&synthetic_costs, 8, false, 0, 1, &reason);
    const LayoutCost *divided = model_costs_at(&synthetic_costs, 8, true, 0, 1, &reason);
    CollectiveGroup group = {8, 8, 1};
    double bytes = (double)layout->border_bytes;
    double gather_us = collective_us(&synthetic_cluster, COLLECTIVE_ALL_GATHER, bytes, &group);
    BorderTime whole = border_time(&synthetic_cluster, layout, true, 8);
    CHECK(whole.us == message_us(&synthetic_cluster, bytes, true, 8), "whole: %g us", whole.us);
    synthetic_cluster.software.scatters_borders = true;
    BorderTime parts = border_time(&synthetic_cluster, layout, true, 8);
    double want = message_us(&synthetic_cluster, bytes / 8, true, 8) + gather_us;
    CHECK(fabs(parts.us - want) < 1e-6, "scattered: %g us, not %g", parts.us, want);
    CHECK(parts.latency_us > gather_us && parts.latency_us < parts.us, "the gather is on a wire");
    BorderTime already = border_time(&synthetic_cluster, divided, true, 8);
    want = message_us(&synthetic_cluster, (double)divided->border_bytes, true, 8);
    CHECK(already.us == want, "divided along the sequence, nothing is left to scatter");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Uneven stages, every software: the closed form must rank well, and so be near. */
static void test_random(PipelineSim *sim, Diag *diag, uint64_t seed, bool of_v, bool print) {
    static const Recompute KINDS[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    check_begin(of_v ? "300 random candidates in a V: the same"
                     : "300 random candidates: parts add up, step_cost is near");
    Pair pair;
    double sum = 0, most = 0, spent = 0;
    int n = 0;
    synthetic_use(SYNTHETIC_175B, 96);
    srand((unsigned)seed);
    for (int i = 0; i < 300; i++) {
        int schedule = rand() % 3, p = 1 << rand() % 6, v = 1;
        if (schedule == schedule_number("interleaved") && p > 1) v = 1 + rand() % 3;
        if (of_v && p > 1) schedule = schedule_number(rand() % 2 ? "zb-v" : "v-half"), v = 2;
        if (p * v > 96) continue;
        Candidate candidate = {.t = 1 << rand() % 4,
                               .p = p,
                               .d = 1 << rand() % 5,
                               .n_chunks = v,
                               .micro_batch = 1 << rand() % 3,
                               .n_micro = p * (1 + rand() % 8),
                               .schedule = schedule,
                               .recompute = KINDS[rand() % (of_v ? 2 : 3)],
                               .zero = rand() % N_ZERO_STAGES,
                               .sequence_parallel = rand() % 2};
        if (candidate.zero && candidate.d > 1) candidate.r = 1 << rand() % 3;
        synthetic_cluster.software.overlaps_gradients = rand() % 2;
        synthetic_cluster.software.overlaps_pipeline = rand() % 2;
        synthetic_cluster.software.overlaps_parameters = rand() % 2;
        double start = seconds();
        if (!price(sim, &candidate, false, &pair, diag)) continue;
        spent += seconds() - start;
        double error = fabs(pair.closed.step_us / pair.played.step_us - 1);
        sum += error, n++;
        if (error > most) most = error;
        check_parts(&pair.played, schedule_name(schedule));
        if (print && error > 0.03) {
            printf("# %.1f %%: %s t=%d p=%d d=%d v=%d m=%d b=%d overlaps gradients %d pipeline %d: "
                   "closed bubble %.0f pipeline %.0f data %.0f, played %.0f %.0f %.0f of %.0f us\n",
                   100 * error, schedule_name(schedule), candidate.t, p, candidate.d, v,
                   candidate.n_micro, candidate.micro_batch,
                   synthetic_cluster.software.overlaps_gradients,
                   synthetic_cluster.software.overlaps_pipeline, pair.closed.bubble_us,
                   pair.closed.pipeline_us, pair.closed.data_us, pair.played.bubble_us,
                   pair.played.pipeline_us, pair.played.data_us, pair.played.step_us);
        }
        CHECK(error < 0.15, "seed %llu, case %d: %s t=%d p=%d d=%d v=%d m=%d: %.0f, played %.0f us",
              (unsigned long long)seed, i, schedule_name(schedule), candidate.t, p, candidate.d, v,
              candidate.n_micro, pair.closed.step_us, pair.played.step_us);
    }
    if (print) {
        printf("# %d candidates: step_cost off by %.2f %% on average, %.1f %% at most; %.0f us "
               "each\n",
               n, 100 * sum / n, 100 * most, spent / n * 1e6);
    }
    CHECK(n > 150 && sum / n < 0.02, "%d candidates: %.2f %% on average", n, 100 * sum / n);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 && atoll(argv[1]) > 0 ? (uint64_t)atoll(argv[1]) : 175;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    PipelineSim *sim = pipeline_sim_create(arena);
    test_closed_forms(sim, diag);
    test_bare_ends(sim, diag);
    test_software(sim, diag);
    test_cards(sim);
    test_scattered();
    test_random(sim, diag, seed, false, argc > 1);
    test_random(sim, diag, seed, true, argc > 1);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
