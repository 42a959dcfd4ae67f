/* Sequences of a micro-batch in lanes (part_batch), against one rank without. Would catch: a lane
 * with another's rows, labels or masks of dropout; sums over the batch that lack a lane, or have
 * one twice; rows that depend on how many ranks the batch is divided over; messages of one lane
 * that wait for another's; memory that one still sends and another writes; prices that hide more
 * than there is work for.
 */
#include "tests/unit/model_request.h"
#include "tests/unit/train_compare.h"

#include "frontend/lua/cluster_read.h"
#include "planner/cost/cost.h"
#include "planner/cost/model_cost.h"

enum { GLOBAL_BATCH = 12 };

static const char *const MODELS[] = {
    "models/gpt.lua",         "models/bert.lua",           "models/hybrid.lua",
    "models/llama.lua",       "tests/models/gemma.lua",    "tests/models/composed.lua",
    "models/t5.lua",          "tests/models/balanced.lua", "tests/models/reported.lua",
    "models/moe.lua",         "tests/models/experts.lua",  "models/deepseek.lua",
    "tests/models/skips.lua", "tests/models/sinks.lua",
};

static const LayoutCase CASES[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {{1, 1, 1, 12, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{1, 3, 1, 4, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
    {{1, 2, 2, 6, 1, "gpipe", false, NULL, 0}, RECOMPUTE_NONE, 3},
    {{2, 1, 2, 4, 1, "zb-h1", true, NULL, 0}, RECOMPUTE_NONE, 0},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static const ModelSetting DROPOUT[] = {{"dropout", "0.2"}, {"attention_dropout", "0.2"}};

static void check_lanes(Run *run) {
    int64_t lanes = graph_lanes(run->plan->programs[0].graph);
    CHECK(lanes == run_lanes, "%lld lanes, not %d", (long long)lanes, run_lanes);
}

static void check_model(const char *path, int first) {
    const TrainingSetup training = {path, GLOBAL_BATCH, 3, 5e-4};
    Run one;
    run_lanes = 1;
    bool done = start_on_one_rank(&one, &training) && run_training(&one, &training);
    check_begin(path);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int c = first; done && c < N_CASES; c += check_shared_step()) {
        run_lanes = CASES[c].layout.micro_batch % 4 == 0 && c % 2 == 0 ? 4 : 2;
        check_case(&training, &CASES[c], &one, check_lanes);
    }
    run_lanes = 1;
    run_close(&one);
}

static bool train_gpt(Run *run, const Layout *layout) {
    return run_plan(run, "models/gpt.lua", DROPOUT, 2, layout, 16, true) && run_start(run) &&
           run_steps_keeping(run, 2, 5e-4);
}

/* The mask of each row is what it would be without lanes, on every layout. */
static void check_dropout(void) {
    static const struct {
        Layout layout;
        int lanes, context;
    } DROPPED[] = {
        {{1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 4, 1},
        {{2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, 2, 1},
        {{1, 2, 2, 4, 1, "1f1b", false, NULL, 0}, 4, 1},
        {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 2},
    };
    const Layout alone = {1, 1, 1, 8, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = train_gpt(&one, &alone);
    for (size_t i = 0; i < sizeof(DROPPED) / sizeof(DROPPED[0]); i++) {
        char text[192];
        Run run;
        run_lanes = DROPPED[i].lanes, run_context = DROPPED[i].context;
        check_begin(layout_name("dropout", &DROPPED[i].layout, text, sizeof(text)));
        bool ran = done && train_gpt(&run, &DROPPED[i].layout);
        CHECK(ran, "%s", diag_text(done ? run.diag : one.diag));
        if (ran) compare_runs(&run, &one, 2);
        if (done) run_close(&run);
        run_lanes = run_context = 1;
        check_end();
    }
    run_close(&one);
}

static void check_refused(void) {
    static const struct {
        const char *path, *why;
        ModelSetting setting;
        int lanes, micro_batch;
    } REFUSED[] = {
        {"models/gpt.lua", "a micro-batch of 3 is no multiple of it", {"layers", "1"}, 2, 3},
        {"models/llama.lua", "sequences are pairs", {"preference", "dpo"}, 2, 4},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        const Layout alone = {1, 1, 1, REFUSED[i].micro_batch, 1, "1f1b", false, NULL, 0};
        Run run;
        check_begin(REFUSED[i].why);
        run_lanes = REFUSED[i].lanes;
        bool done = run_plan(&run, REFUSED[i].path, &REFUSED[i].setting, 1, &alone,
                             REFUSED[i].micro_batch, true);
        run_lanes = 1;
        CHECK(!done && strstr(diag_text(run.diag), REFUSED[i].why), "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

/* A plan whose input has more lanes than its micro-batch has sequences for. */
static void check_damaged(void) {
    const Layout alone = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("lanes that a micro-batch has no sequences for");
    run_lanes = 2;
    bool done = run_plan(&run, "models/gpt.lua", NULL, 0, &alone, 4, true);
    run_lanes = 1;
    CHECK(done, "%s", diag_text(run.diag));
    for (int n = 0; done && n < run.plan->programs[0].graph->n_nodes; n++) {
        Node *node = run.plan->programs[0].graph->nodes[n];
        if (node->op == OP_INPUT) node->types[0].dims[1] = 3;
    }
    if (done) {
        CHECK(
            !verify_plan(run.plan, run.diag) &&
                strstr(diag_text(run.diag), "has 2 sequences in each of 3 lanes, a micro-batch 4"),
            "%s", diag_text(run.diag));
        CHECK(!run_start(&run), "it was started");
    }
    run_close(&run);
    check_end();
}

/* --- what a lane's messages lie beside --- */

static bool reads(const Node *node, const Node *from) {
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i].node == from) return true;
    }
    return false;
}

static int find_reader(const Graph *graph, int message) {
    for (int n = message + 1; n < graph->n_nodes; n++) {
        if (reads(graph->nodes[n], graph->nodes[message])) return n;
    }
    return graph->n_nodes;
}

static bool overlaps(const Buffer *a, const Buffer *b) {
    return a->region == b->region && a->offset_bytes < b->offset_bytes + b->bytes &&
           b->offset_bytes < a->offset_bytes + a->bytes;
}

/* Messages of blocks forward, all and those with a product before their reader; and that nothing
 * writes what they send before that. */
static void count_messages(const Program *program, int *out_all, int *out_beside) {
    const Graph *graph = program->graph;
    *out_all = *out_beside = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool counts = node->phase == PHASE_FORWARD && node->block != NO_BLOCK;
        if (!node_overlaps(node)) continue;
        Value sent = node->inputs[0];
        const Buffer *buffer = &program->buffers[sent.node->id * MAX_OUTPUTS + sent.output];
        bool beside = false;
        for (int k = n + 1, end = find_reader(graph, n); k < end; k++) {
            const Node *other = graph->nodes[k];
            beside |= op_multiplies(other->op);
            for (int o = 0; o < other->n_outputs && other->phase == node->phase; o++) {
                const Buffer *made = &program->buffers[k * MAX_OUTPUTS + o];
                bool own = node_overlaps(other) || made->offset_bytes == buffer->offset_bytes;
                CHECK(own || !overlaps(made, buffer), "%%%d writes what %%%d sends", k, n);
            }
        }
        *out_all += counts;
        *out_beside += counts && beside;
    }
}

static void check_order(bool sequence_parallel) {
    static const ModelSetting settings[] = {{"size", "8b"}, {"layers", "4"}, {"seq", "4096"}};
    const Layout layout = {2, 1, 1, 2, 1, "1f1b", sequence_parallel, NULL, 0};
    int all[2], beside[2];
    check_begin(sequence_parallel ? "gathers and scatters lie beside the other lane's products"
                                  : "sums over t lie beside the other lane's products");
    for (int lanes = 1; lanes <= 2; lanes++) {
        Run run;
        run_lanes = lanes;
        bool done =
            run_plan_for(&run, "models/llama.lua", settings, 3, &layout, 2, true, true, DTYPE_BF16);
        run_lanes = 1;
        CHECK(done, "%s", diag_text(run.diag));
        if (done) count_messages(&run.plan->programs[0], &all[lanes - 1], &beside[lanes - 1]);
        run_close(&run);
    }
    CHECK(beside[0] == 0 && all[1] == 2 * all[0], "%d of %d messages, with two lanes %d of %d",
          beside[0], all[0], beside[1], all[1]);
    CHECK(beside[1] >= all[1] - 3, "%d of %d messages lie beside products", beside[1], all[1]);
    check_end();
}

/* --- prices --- */

/* What a search says of one stage's step, and what the plan's own nodes cost, a micro-batch. */
static void check_price(const char *size, int t, bool sequence_parallel, int lanes) {
    const ModelSetting settings[] = {{"size", size}, {"layers", "6"}, {"seq", "4096"}};
    const Layout layout = {t, 1, 1, 2, 1, "1f1b", sequence_parallel, NULL, 0};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Run run;
    char text[96];
    snprintf(text, sizeof(text), "llama %s, t=%d%s, %d lanes: a search's price is the plan's", size,
             t, sequence_parallel ? " seq" : "", lanes);
    check_begin(text);
    run_lanes = lanes;
    bool done =
        run_plan_for(&run, "models/llama.lua", settings, 3, &layout, 2, false, true, DTYPE_BF16);
    Cluster *cluster = cluster_read(arena, "h100-dgx", NULL, diag);
    Model *thin = model_load(arena, "models/llama.lua", settings, 3, 1, diag);
    CHECK(done && cluster && thin, "%s%s", diag_text(run.diag), diag_text(diag));
    if (done && cluster && thin) {
        const char *why = "";
        PlanRequest request = model_request(thin);
        ModelCosts *costs = model_costs_create(arena, &request, cluster, diag);
        const LayoutCost *of = costs ? model_costs_divided(costs, t, 1, 1, sequence_parallel,
                                                           RECOMPUTE_NONE, 2, lanes, &why)
                                     : NULL;
        CHECK(of, "%s%s", diag_text(diag), why);
        const Device device = device_of_cluster(cluster, DTYPE_BF16);
        ProgramCost planned = cost_program(run.plan, 0, &device, arena);
        for (int back = 0; of && back < 2; back++) {
            const PhaseCost *block = back ? &of->kinds[0].backward : &of->kinds[0].forward;
            const PhaseCost *before = back ? &of->before.backward : &of->before.forward;
            const PhaseCost *after = back ? &of->after.backward : &of->after.forward;
            double us = 6 * block->us + block->edge_us + before->us + after->us;
            double theirs = back ? planned.backward[0].us : planned.forward[0].us;
            CHECK(fabs(us / theirs - 1) < 0.02, "%s: %.0f us, the plan's %.0f (%+.1f %%)",
                  back ? "backward" : "forward", us, theirs, 100 * (us / theirs - 1));
        }
    }
    run_lanes = 1;
    run_close(&run);
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    check_refused();
    check_damaged();
    check_order(false);
    check_order(true);
    for (int lanes = 1; lanes <= 2; lanes++) {
        check_price("8b", 2, true, lanes);
        check_price("8b", 4, false, lanes);
        check_price("70b", 8, true, lanes);
    }
    check_dropout();
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        check_model(MODELS[i], (int)i % check_shared_step());
    }
    compare_print_worst();
    return check_report();
}
