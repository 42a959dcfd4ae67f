/* Plans whose products read fp8 and scales, for tensor cores, on the CPU: the losses of plans that
 * widen, on every layout, with less memory.
 *
 * Would catch: an operand quantised along the wrong axis when it is turned, scales in another order
 * than their product reads them, tiles whose scales are repeated wrongly, gathers that join turned
 * parts wrong, a product left widened or a widened copy left behind, plans that swap scales and are
 * taken for sound.
 */
#include "planner/show/show_facts.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

enum { STEPS = 2, GLOBAL_BATCH = 4 };
static const double LEARNING_RATE = 2e-3;

/* The same numbers are multiplied; a sum in another order is rounded to bf16 the other way now and
 * then, and what that moves over a rounding to fp8 is 2^-4 of itself apart (test_fp8_training). */
static const double LOSS_TOLERANCE = 1e-3, NORM_TOLERANCE = 0.02;

/* clang-format off */
#define SIZES(model, heads, seq) {"optimizer.eps", "1e-6"}, {"model", model}, {"heads", heads}, \
    {"kv_heads", heads}, {"head", "128"}, {"ffn", "256"}, {"layers", "1"}, {"vocab", "64"}, \
    {"seq", seq}
/* clang-format on */
static const ModelSetting SMALL[] = {SIZES("128", "2", "256")};
static const ModelSetting LONG[] = {SIZES("128", "2", "512")};
static const ModelSetting TILES[] = {SIZES("512", "4", "128")};
enum { N_SETTINGS = sizeof(SMALL) / sizeof(SMALL[0]) };

typedef struct Case {
    const char *name;
    const ModelSetting *settings;
    int c, zero;
    Recompute recompute;
    Layout layout;
} Case;

static const Case CASES[] = {
    {"one rank", SMALL, 1, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {"t", SMALL, 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {"t, sequences too", SMALL, 1, 0, RECOMPUTE_FULL, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {"d, ZeRO", SMALL, 1, 3, RECOMPUTE_SELECTIVE, {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
    {"zb-h1", SMALL, 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "zb-h1", false, NULL, 0}},
    {"c", LONG, 2, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {"tiles", TILES, 1, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
};

static bool start(Run *run, const Case *of, bool tensor, bool text) {
    run_precision = DTYPE_FP8;
    run_fp8_tensor_cores = tensor;
    run_context = of->c;
    run_zero = of->zero;
    run_recompute = of->recompute;
    return run_plan(run, "models/llama.lua", of->settings, N_SETTINGS, &of->layout, GLOBAL_BATCH,
                    text);
}

static bool train(Run *run, const Case *of, bool tensor) {
    return start(run, of, tensor, true) && run_start(run) &&
           run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static int count_ops(const Plan *plan, OpKind op) {
    int count = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) count += graph->nodes[n]->op == op;
    }
    return count;
}

static int count_tiles(const Plan *plan) {
    int count = 0;
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        count += node->op == OP_QUANTIZE && node_attr(node, ATTR_beside) &&
                 !node_int(node, ATTR_each, 0);
    }
    return count;
}

/* All seven products of a block forward, and 14 backward, but for what is computed again. */
static void check_plan(const Plan *plan, const Plan *widened) {
    Fp8Facts fp8 = facts_count_fp8(plan), before = facts_count_fp8(widened);
    int all = before.widened_planned;
    CHECK(all >= 21 && before.on_tensor_cores == 0, "%d products were widened", all);
    CHECK(fp8.on_tensor_cores == all, "%d of %d on tensor cores", fp8.on_tensor_cores, all);
    CHECK(!fp8.widened_planned && !fp8.widened_parts, "others are widened");
    CHECK(count_ops(plan, OP_DEQUANTIZE) == 0, "something is still widened");
    int64_t bytes = plan->stages[0].arena_bytes, more = widened->stages[0].arena_bytes;
    bool one = mesh_rank_count(&plan->mesh) == 1; /* else others may be the most at once */
    CHECK(bytes + one <= more, "%lld bytes instead of %lld", (long long)bytes, (long long)more);
}

static void check_case(const Case *of) {
    Run widened, tensor;
    check_begin(of->name);
    bool done = train(&widened, of, false) & train(&tensor, of, true);
    CHECK(done, "%s%s", diag_text(widened.diag), diag_text(tensor.diag));
    if (done) check_plan(tensor.plan, widened.plan);
    for (int step = 0; done && step < STEPS; step++) {
        double loss = fabs(tensor.losses[step] / widened.losses[step] - 1);
        double norm = fabs(tensor.norms[step] / widened.norms[step] - 1);
        CHECK(loss < LOSS_TOLERANCE, "loss of step %d is %.3g off", step + 1, loss);
        CHECK(norm < NORM_TOLERANCE, "norm of step %d is %.3g off", step + 1, norm);
    }
    CHECK(!done || (count_tiles(tensor.plan) > 0) == (of->settings == TILES),
          "%d weights have scales of tiles", done ? count_tiles(tensor.plan) : 0);
    check_end();
    run_close(&widened);
    run_close(&tensor);
}

/* Products of a batch stay widened, and the plan says so. */
static void check_experts(void) {
    static const ModelSetting SETTINGS[] = {{"model", "128"},  {"heads", "2"},       {"head", "64"},
                                            {"kv_heads", "2"}, {"layers", "1"},      {"seq", "256"},
                                            {"vocab", "64"},   {"experts", "4"},     {"top_k", "2"},
                                            {"capacity", "1"}, {"expert_ffn", "128"}};
    const Layout layout = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("experts' products stay in bf16, and are counted");
    run_fp8_tensor_cores = true;
    run_context = 1, run_zero = 0, run_recompute = RECOMPUTE_NONE;
    bool made = run_plan(&run, "models/moe.lua", SETTINGS, sizeof(SETTINGS) / sizeof(SETTINGS[0]),
                         &layout, GLOBAL_BATCH, true) &&
                run_start(&run) && run_steps(&run, 1, LEARNING_RATE);
    CHECK(made, "%s", diag_text(run.diag));
    Fp8Facts fp8 = made ? facts_count_fp8(run.plan) : (Fp8Facts){0};
    CHECK(fp8.on_tensor_cores > 0 && fp8.widened_batches > 0, "%d and %d", fp8.on_tensor_cores,
          fp8.widened_batches);
    CHECK(!fp8.widened_planned && !fp8.widened_parts, "others are widened");
    check_end();
    run_close(&run);
}

static void check_broken(void) {
    static const BrokenText CHANGES[] = {
        {"last=[model]", "last=[model]", "last=[batch]", "quantize: 'last' must name"},
        {"last=[model]", "last=[model]", "last=[batch, seq, model]", "quantize: 'last' must name"},
        {"last=[model]", "last=[model]", "last=[model], each=1", "quantize: 'each' is for tiles"},
        {"each=1", "each=1", "each=0", "the types stated are not the ones"},
        {".1) {over=[model]}", ".1) {over=[model]}", ") {over=[model]}", "scales"},
    };
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        Run run;
        char name[128];
        snprintf(name, sizeof(name), "refused: '%s' for '%s'", CHANGES[i].to, CHANGES[i].from);
        check_begin(name);
        bool made = start(&run, &CASES[0], true, false);
        CHECK(made, "%s", diag_text(run.diag));
        if (made) check_broken_text(&run, &CHANGES[i]);
        check_end();
        run_close(&run);
    }
}

/* Scales of another value of the same shape, which no type forbids. */
static void check_foreign_scales(void) {
    Run run;
    check_begin("refused: a product with scales of other values");
    bool made = start(&run, &CASES[0], true, false), swapped = false;
    CHECK(made, "%s", diag_text(run.diag));
    const Graph *graph = made ? run.plan->programs[0].graph : NULL;
    for (int n = 0; made && n < graph->n_nodes && !swapped; n++) {
        Node *node = graph->nodes[n];
        for (int k = 0; k < n && matmul_is_scaled(node) && !swapped; k++) {
            Node *other = graph->nodes[k];
            if (other->op != OP_QUANTIZE || other == node->inputs[2].node) continue;
            if (!type_equal(&other->types[1], value_type(node->inputs[2]))) continue;
            if (other->phase != node->phase) continue;
            node->inputs[2] = node_value(other, 1);
            swapped = true;
        }
    }
    CHECK(swapped, "there are none");
    CHECK(!made || !verify_plan(run.plan, run.diag), "taken for sound");
    CHECK(strstr(diag_text(run.diag), "its scales are not those of its values"), "says: %s",
          diag_text(run.diag));
    check_end();
    run_close(&run);
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_case(&CASES[i]);
    check_experts();
    check_broken();
    check_foreign_scales();
    return check_report();
}
