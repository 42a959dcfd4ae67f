/* Models that are no GPT, under layouts against one rank: blocks that use each other's weights,
 * weights with penalties, values that skip blocks, parts of axes, masked labels, experts, norms
 * after the sums and attention to what follows. Catches
 * copies of one weight that drift apart, a share of a gradient that is counted d times, and values
 * that are not where a stage reads them.
 */
#include "tests/unit/train_compare.h"

enum { GLOBAL_BATCH = 12 };

static const char *const MODELS[] = {"tests/models/shared.lua",  "tests/models/penalties.lua",
                                     "tests/models/skips.lua",   "tests/models/parallel.lua",
                                     "tests/models/parts.lua",   "tests/models/gemma.lua",
                                     "tests/models/experts.lua", "models/bert.lua",
                                     "tests/models/sinks.lua"};

static const int ONE_THREE[] = {1, 3}, THREE_ONE[] = {3, 1};
static const LayoutCase CASES[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{1, 3, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{1, 1, 2, 3, 1, "1f1b", false, ONE_THREE, 2}, RECOMPUTE_NONE, 0},
    {{1, 1, 2, 3, 1, "gpipe", false, THREE_ONE, 2}, RECOMPUTE_FULL, 0},
    {{1, 1, 2, 3, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{1, 1, 4, 3, 1, "1f1b", false, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{2, 2, 2, 1, 2, "interleaved", true, NULL, 0}, RECOMPUTE_FULL, 1},
    {{1, 2, 4, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 1},
    {{1, 2, 2, 2, 2, "zb-v", false, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void check_model(const char *path, int first) {
    const TrainingSetup training = {path, GLOBAL_BATCH, 4, 5e-3};
    Run one;
    bool done = start_on_one_rank(&one, &training) && run_training(&one, &training);
    check_begin(path);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int c = first; done && c < N_CASES; c += LAYOUT_STEP) {
        check_case(&training, &CASES[c], &one, NULL);
    }
    run_close(&one);
}

/* In 16 bits a weight has a copy, which may lie in another chunk of its stage. */
static void check_low(const char *path, int first) {
    char name[160];
    Run run;
    run_precision = DTYPE_BF16;
    for (int c = first; c < N_CASES; c += LAYOUT_STEP) {
        run_zero = CASES[c].zero;
        layout_name(path, &CASES[c].layout, name, sizeof(name));
        check_begin(strcat(name, ", bf16"));
        bool done = run_plan(&run, path, NULL, 0, &CASES[c].layout, GLOBAL_BATCH, true);
        CHECK(done, "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_precision = DTYPE_F32;
}

/* A weight that several stages hold goes by the name of the block that made it, everywhere. */
static void check_names(void) {
    const Layout layout = CASES[3].layout;
    const char *const names[] = {"blocks.0.gain", "blocks.0.up", "blocks.2.up", "wte"};
    Run run;
    check_begin("a shared weight is called after the block that made it");
    bool done = run_plan(&run, MODELS[0], NULL, 0, &layout, GLOBAL_BATCH, true) && run_start(&run);
    CHECK(done, "%s", diag_text(run.diag));
    CHECK(run.n_params == 6, "%d parameters", run.n_params);
    for (size_t i = 0; done && i < sizeof(names) / sizeof(names[0]); i++) {
        int k = 0;
        while (k < run.n_params && strcmp(run.names[k], names[i]) != 0) k++;
        CHECK(k < run.n_params, "no '%s'", names[i]);
    }
    run_close(&run);
    check_end();
}

/* A weight's gradient is summed over d once a step, not for every micro-batch; that of its norm, a
 * vector, has to be: what follows is not linear in it. */
static void check_messages(void) {
    const Layout layout = {1, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("a weight with a penalty is summed over d once a step");
    CHECK(run_plan(&run, MODELS[1], NULL, 0, &layout, GLOBAL_BATCH, false), "%s",
          diag_text(run.diag));
    const Graph *graph = run.plan ? run.plan->programs[0].graph : NULL;
    for (int n = 0; graph && n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool message = node->op == OP_ALL_REDUCE && node->phase == PHASE_BACKWARD;
        CHECK(!message || node->types[0].rank < 2, "line %d: all_reduce in the backward",
              node->loc.line);
    }
    run_close(&run);
    check_end();
}

/* Attention and mlp side by side: one message a block forward, one backward. */
static void check_parallel(void) {
    const Layout layout = {2, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    int n_messages = 0;
    check_begin("terms of a sum that products gave are completed by one message");
    CHECK(run_plan(&run, MODELS[3], NULL, 0, &layout, GLOBAL_BATCH, false), "%s",
          diag_text(run.diag));
    const Graph *graph = run.plan ? run.plan->programs[0].graph : NULL;
    for (int n = 0; graph && n < graph->n_nodes; n++) {
        n_messages += graph->nodes[n]->op == OP_ALL_REDUCE && graph->nodes[n]->block >= 0;
    }
    /* The first block also completes the embedding. */
    CHECK(!graph || n_messages == 4 * 2 + 1, "%d messages in four blocks", n_messages);
    run_close(&run);
    check_end();
}

/* The largest value that a channel carries, and how many one message of a chunk has at most. */
static int64_t largest_sent(const Plan *plan, const Channel *channel) {
    const Graph *graph = plan->programs[plan->stages[channel->from].program].graph;
    int64_t largest = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_SEND || (node->phase == PHASE_BACKWARD) != channel->backward) continue;
        Value value = node->inputs[0];
        int64_t bytes = type_local_bytes(value_type(value), value_sharding(value), &plan->mesh);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* Values of one message lie in equal parts of a slot, which have to hold the largest. */
static void check_slots(void) {
    const Layout layout = {1, 1, 2, 3, 2, "interleaved", false, NULL, 0};
    Run run;
    int n_uneven = 0;
    check_begin("a slot has room for each of a message's values, as large as the largest");
    CHECK(run_plan(&run, MODELS[2], NULL, 0, &layout, GLOBAL_BATCH, false), "%s",
          diag_text(run.diag));
    for (int c = 0; run.plan && c < run.plan->n_channels; c++) {
        Channel *channel = &run.plan->channels[c];
        int64_t largest = largest_sent(run.plan, channel), slot = channel->slot_bytes;
        int values = plan_channel_values(run.plan, c);
        n_uneven += values > 1;
        CHECK(slot == largest * values, "channel %d: %lld bytes for %d of %lld", c, (long long)slot,
              values, (long long)largest);
        channel->slot_bytes -= ALIGN_BYTES;
        Diag *diag = diag_create();
        CHECK(!verify_plan(run.plan, diag) &&
                  strstr(diag_text(diag), "does not fit its part of the slot"),
              "channel %d: %s", c, diag_text(diag));
        diag_destroy(diag);
        channel->slot_bytes = slot;
    }
    CHECK(n_uneven > 0, "no channel carries several values");
    run_close(&run);
    check_end();
}

/* Three heads and an ffn of 13 do not divide by two, and here what fills up the last shard would
 * get into a weight's gradient. */
static void check_padding_is_refused(void) {
    static const char *const LAYERS[] = {"logsumexp", "silu", "attention"};
    const Layout layout = {2, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    for (size_t i = 0; i < sizeof(LAYERS) / sizeof(LAYERS[0]); i++) {
        ModelSetting layer = {"layer", LAYERS[i]};
        char name[80];
        Run run;
        snprintf(name, sizeof(name), "padding that would not stay zero is refused: %s", LAYERS[i]);
        check_begin(name);
        bool planned =
            run_plan(&run, "tests/models/odd.lua", &layer, 1, &layout, GLOBAL_BATCH, false);
        CHECK(!planned, "was planned");
        CHECK(strstr(diag_text(run.diag), "which t=2 does not divide"), "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

int main(void) {
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        check_model(MODELS[i], (int)i % LAYOUT_STEP);
        check_low(MODELS[i], (int)(i + 1) % LAYOUT_STEP);
    }
    check_names();
    check_messages();
    check_parallel();
    check_slots();
    check_padding_is_refused();
    compare_print_worst();
    return check_report();
}
