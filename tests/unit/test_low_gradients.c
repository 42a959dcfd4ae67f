/* Gradients in bf16 (--gradients bf16): which are, that each is what f32 would have, rounded once,
 * and that training goes as with f32 under every layout and optimizer, in the memory that was
 * planned; that plans which add up in bf16 are refused.
 *
 * Would catch: a gradient that is read as another dtype, by a norm, an optimizer or a message; one
 * that is rounded and then added to, or added up over micro-batches in bf16; a gradient of f32
 * where bf16 is asked for; a shard that lies where f32 would.
 */
#include "planner/plan/plan.h"
#include "planner/verify/verify.h"
#include "runtime/cpu/vec_low.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 5, LONG_STEPS = 60, GLOBAL_BATCH = 16, N_SETTINGS = 9 };
static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};

static const char *optimizer = "adamw"; /* of what is started from now on */
static const char *tied = "true";

static bool plan(Run *run, DType gradients, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "61"},
                                               {"layers", "4"},
                                               {"ffn", "70"},
                                               {"tied", tied}};
    run_precision = DTYPE_BF16;
    run_gradient_dtype = gradients;
    bool fine = run_plan(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH, text);
    run_gradient_dtype = DTYPE_F32;
    return fine;
}

static bool start(Run *run, DType gradients, const Layout *layout, bool text) {
    return plan(run, gradients, layout, text) && run_start(run);
}

/* --- which are --- */

/* How many accumulators of gradients are bf16, of how many. */
static int count_low(const Plan *plan, int *out_all) {
    int low = 0;
    *out_all = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_ACCUMULATOR || !node_string(node, ATTR_of)[0]) continue;
            low += node->types[0].dtype == DTYPE_BF16;
            ++*out_all;
        }
    }
    return low;
}

/* Messages in the backward whose numbers are bf16 of what is added up in f32. */
static int count_sent(const Plan *plan) {
    int count = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n], *share;
            if (node->op != OP_ACCUMULATE || node->phase == PHASE_FORWARD) continue;
            share = node->inputs[1].node;
            count += share->op == OP_REDUCE_SCATTER && share->types[0].dtype == DTYPE_BF16 &&
                     node->types[0].dtype == DTYPE_F32;
        }
    }
    return count;
}

/* A block has six weights that products make the gradients of; there are four, and a head: where it
 * is the embedding, too, its share is sent in bf16, if large enough to be divided. */
static void test_which(void) {
    static const struct {
        const char *name, *tied;
        Layout layout;
        int zero, lanes, loss_parts, low, sent;
    } CASES[] = {
        {"one micro-batch", "true", {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 0, 1, 1, 24, 0},
        {"and a head of its own",
         "false",
         {1, 1, 1, 16, 1, "1f1b", false, NULL, 0},
         0,
         1,
         1,
         25,
         0},
        {"but in parts", "false", {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 0, 1, 4, 24, 0},
        {"two micro-batches", "true", {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 1, 1, 0, 0},
        {"two lanes", "true", {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 0, 2, 1, 0, 0},
        {"d, one micro-batch", "true", {1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, 0, 1, 1, 24, 0},
        {"ZeRO-1, two", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 1, 1, 0, 0},
        {"ZeRO-2, one", "true", {1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, 2, 1, 1, 24, 1},
        {"ZeRO-2, two", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 2, 1, 1, 0, 25},
        {"ZeRO-3, two", "true", {2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, 3, 1, 1, 0, 25},
        {"backwards in two", "true", {1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, 2, 1, 1, 0, 25},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run run;
        int all;
        run_zero = CASES[k].zero;
        run_lanes = CASES[k].lanes;
        run_loss_parts = CASES[k].loss_parts;
        tied = CASES[k].tied;
        check_begin(CASES[k].name);
        bool fine = plan(&run, DTYPE_BF16, &CASES[k].layout, true);
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) {
            int low = count_low(run.plan, &all), sent = count_sent(run.plan);
            bool any = CASES[k].low + CASES[k].sent > 0;
            CHECK(low == CASES[k].low, "%d of %d are kept in bf16, not %d", low, all, CASES[k].low);
            CHECK(sent == CASES[k].sent, "%d are sent in bf16, not %d", sent, CASES[k].sent);
            CHECK(plan_gradient_dtype(run.plan) == (any ? DTYPE_BF16 : DTYPE_F32),
                  "the plan says otherwise");
        }
        run_close(&run);
        check_end();
    }
    run_zero = 0;
    run_lanes = run_loss_parts = 1;
    tied = "true";
}

/* --- training --- */

static int64_t gradient_bytes(const Run *run) {
    const Program *program = &run->plan->programs[0];
    int64_t bytes = 0;
    for (int n = 0; n < program->graph->n_nodes; n++) {
        if (program->graph->nodes[n]->op == OP_ACCUMULATOR)
            bytes += program->buffers[n * MAX_OUTPUTS].bytes;
    }
    return bytes;
}

static bool is_weight(const Type *type) {
    return type->rank > 1;
}

/* The first step's: a weight's is the f32 one, rounded by half of its last bit, and a little where
 * a kernel sums in another order; all others are the same. */
static void compare_rounded(const Run *low, const Run *full) {
    int n_low = 0;
    for (int i = 0; i < full->n_params; i++) {
        int64_t n = type_elements(&full->types[i]), far = 0, wide = 0, unlike = 0;
        CHECK(low->gradients[i] && full->gradients[i], "no gradient of '%s'", full->names[i]);
        if (!low->gradients[i] || !full->gradients[i]) return;
        double most = largest(full->gradients[i], n);
        for (int64_t j = 0; j < n; j++) {
            float x = low->gradients[i][j], y = full->gradients[i][j];
            far += fabs((double)x - y) > 0x1.01p-9 * 2 * fabs((double)y) + 1e-5 * most;
            wide += vec_bits(x) != vec_bits(vec_bf16_widen(vec_bf16_round(x)));
            unlike += vec_bits(x) != vec_bits(y);
        }
        n_low += wide == 0;
        CHECK(far == 0, "'%s': %d of %d are not rounded", full->names[i], (int)far, (int)n);
        CHECK(is_weight(&full->types[i]) || unlike == 0 || is_key_bias(full, full->names[i]),
              "'%s': %d of %d differ", full->names[i], (int)unlike, (int)n);
    }
    CHECK(n_low >= 24 && n_low < 30, "%d parameters' gradients are bf16", n_low);
}

static void test_training(const char *with, double rate) {
    Run full, low;
    char name[100];
    optimizer = with;
    snprintf(name, sizeof(name), "%s with gradients in bf16 trains as with f32", optimizer);
    check_begin(name);
    bool done = start(&full, DTYPE_F32, &ALONE, true);
    done = start(&low, DTYPE_BF16, &ALONE, true) && done;
    done = done && run_steps_keeping(&full, LONG_STEPS, rate) &&
           run_steps_keeping(&low, LONG_STEPS, rate);
    CHECK(done, "%s%s", diag_text(full.diag), diag_text(low.diag));
    if (done) {
        double ours = mean_loss(&low, LONG_STEPS - 10, LONG_STEPS),
               theirs = mean_loss(&full, LONG_STEPS - 10, LONG_STEPS);
        CHECK(fabs(ours - theirs) < 2e-3 * theirs, "loss %.5f, with f32 %.5f", ours, theirs);
        compare_rounded(&low, &full);
        double share = (double)gradient_bytes(&low) / (double)gradient_bytes(&full);
        CHECK(share > 0.5 && share < 0.6, "gradients take %.3f of f32's", share);
        compare_memory(&low);
    }
    run_close(&full);
    run_close(&low);
    check_end();
}

/* As test_bf16_training has it: layouts round in other places. */
static void compare_layout(Run *run, Run *one) {
    for (int step = 0; step < STEPS; step++) {
        double error = fabs(run->losses[step] - one->losses[step]) / one->losses[step];
        CHECK(compare_note(&compare_worst.loss, error) < 5e-4,
              "loss of step %d is %.6f, on one rank %.6f", step + 1, run->losses[step],
              one->losses[step]);
        error = fabs(run->norms[step] - one->norms[step]) / one->norms[step];
        CHECK(compare_note(&compare_worst.norm, error) < 0.02,
              "gradient norm of step %d is %.6f, on one rank %.6f", step + 1, run->norms[step],
              one->norms[step]);
    }
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        if (is_key_bias(one, one->names[i])) continue;
        double error = relative_distance(ours, run_weight(one, i), n);
        CHECK(compare_note(&compare_worst.weight, error) < 0.3, "'%s' differs by %.3g of its norm",
              one->names[i], error);
    }
    compare_memory(run);
}

/* Against one rank whose gradients are f32. */
static void test_layouts(double rate) {
    static const LayoutCase CASES[] = {
        {{1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
        {{2, 2, 1, 8, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 3, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 4, 1, 4, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 2},
        {{1, 4, 1, 1, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{2, 2, 1, 8, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 3},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_SELECTIVE, 3},
        {{1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{4, 1, 1, 16, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    };
    Run one;
    bool ready = start(&one, DTYPE_F32, &ALONE, false) && run_steps(&one, STEPS, rate);
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += VARIANT_STEP) {
        char title[200];
        Run run;
        Layout layout = CASES[k].layout;
        if (layout.d == 3) layout.d = 2, layout.micro_batch = 8; /* shards are padded: 70, 61 */
        run_recompute = CASES[k].recompute;
        run_zero = CASES[k].zero;
        int length = snprintf(title, sizeof(title), "gradients in bf16, ");
        layout_name(optimizer, &layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done = ready && start(&run, DTYPE_BF16, &layout, true) && run_steps(&run, STEPS, rate);
        run_recompute = RECOMPUTE_NONE;
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) compare_layout(&run, &one);
        if (ready) run_close(&run);
        check_end();
    }
    run_close(&one);
}

/* Replicas, whose shards are summed as well. */
static void test_replicas(void) {
    static const Layout LAYOUT = {1, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    Run one, run;
    optimizer = "adamw";
    check_begin("gradients in bf16, summed over r");
    bool done = start(&one, DTYPE_F32, &ALONE, false) && run_steps(&one, STEPS, 2e-3);
    run_zero = 2;
    run_replicas = 2;
    done = start(&run, DTYPE_BF16, &LAYOUT, true) && run_steps(&run, STEPS, 2e-3) && done;
    run_zero = 0;
    run_replicas = 1;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(run.diag));
    if (done) compare_layout(&run, &one);
    run_close(&one);
    run_close(&run);
    check_end();
}

/* --- plans that are wrong --- */

/* Makes the sum of this name, and what is added to it, bf16. */
static void lower_sum(const Plan *plan, const char *name) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        bool leaf = node->op == OP_ACCUMULATOR && strcmp(node_string(node, ATTR_name), name) == 0;
        const Node *to = node->op == OP_ACCUMULATE ? node->inputs[0].node : NULL;
        bool chain = to && to->types[0].dtype == DTYPE_BF16 && to->op != OP_MATMUL;
        if (leaf || chain) node->types[0].dtype = DTYPE_BF16;
    }
}

static void check_refused(const char *title, int micro_batch, const char *name,
                          const char *expected) {
    const Layout layout = {1, 1, 1, micro_batch, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin(title);
    optimizer = "adamw";
    bool fine = plan(&run, DTYPE_BF16, &layout, false);
    CHECK(fine, "%s", diag_text(run.diag));
    if (fine) {
        lower_sum(run.plan, name);
        check_broken_plan(run.plan, expected);
    }
    run_close(&run);
    check_end();
}

static void test_refused(void) {
    check_refused("two micro-batches, added up in bf16", GLOBAL_BATCH / 2, "grad/ln_f.gain",
                  "2 shares a step are added up in bf16");
    check_refused("a loss in bf16", GLOBAL_BATCH, "loss",
                  "1 shares a step are added up in bf16, and it is no gradient");
}

int main(void) {
    static const struct {
        const char *optimizer;
        double rate;
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05}, {"lamb", 5e-3}, {"muon", 2e-3}};
    test_which();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i += VARIANT_STEP) {
        test_training(KINDS[i].optimizer, KINDS[i].rate);
        test_layouts(KINDS[i].rate);
    }
    test_replicas();
    test_refused();
    compare_print_worst();
    return check_report();
}
