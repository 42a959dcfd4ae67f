/* Training with fp8 products: the same on every layout, near bf16, in plans that are proved.
 *
 * Would catch: a block that depends on the mesh or the micro-batch, scales of other values or of
 * another shard, a value kept along the wrong axis for its gradient, a weight quantised from a
 * stale copy, a message that takes fp8 for something else, a product of which no operand is
 * quantised.
 */
#include "tests/unit/broken_text.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

enum { STEPS = 2, GLOBAL_BATCH = 4 };
static const double LEARNING_RATE = 2e-3;

/* As test_bf16_training has it: a layout changes where sums are rounded to bf16, and what then
 * falls on the other side of a rounding to fp8 is 2^-4 of itself apart. */
static const double LOSS_TOLERANCE = 5e-4, NORM_TOLERANCE = 0.02, GRADIENT_TOLERANCE = 0.1;
static struct { double loss, norm, gradient; } worst;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "128"}, {"head", "128"}, {"ffn", "256"}, \
              {"layers", "2"}, {"vocab", "64"}
/* clang-format on */
typedef struct Case {
    const char *seq;
    int c, zero;
    Recompute recompute;
    Layout layout;
} Case;

static const Case CASES[] = {
    {"256", 1, 0, RECOMPUTE_NONE, {1, 1, 1, 1, 1, "1f1b", false, NULL, 0}},
    {"256", 1, 0, RECOMPUTE_NONE, {2, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
    {"256", 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {"256", 1, 0, RECOMPUTE_FULL, {2, 1, 2, 2, 1, "1f1b", true, NULL, 0}},
    {"256", 1, 1, RECOMPUTE_SELECTIVE, {1, 2, 1, 2, 1, "gpipe", false, NULL, 0}},
    {"256", 1, 3, RECOMPUTE_NONE, {1, 2, 2, 1, 1, "zb-h1", false, NULL, 0}},
    {"512", 2, 2, RECOMPUTE_NONE, {2, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
};

/* Of adapters; with 128 they are in fp8, too, beside frozen weights. */
static const char *lora_rank = "0";

static bool start_of(Run *run, const char *path, const ModelSetting *settings, int n_settings,
                     const Case *of, DType precision, bool text) {
    run_precision = precision;
    run_context = of->c;
    run_zero = of->zero;
    run_recompute = of->recompute;
    return run_plan(run, path, settings, n_settings, &of->layout, GLOBAL_BATCH, text);
}

static bool start(Run *run, const Case *of, DType precision, bool text) {
    const ModelSetting settings[] = {
        SIZES, {"heads", "2"}, {"kv_heads", "2"}, {"seq", of->seq}, {"lora", lora_rank}};
    return start_of(run, "models/llama.lua", settings, sizeof(settings) / sizeof(settings[0]), of,
                    precision, text);
}

static bool train(Run *run, const Case *of, DType precision) {
    return start(run, of, precision, true) && run_start(run) &&
           run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void check_near(double *most, double error, double tolerance, const char *what, int step) {
    if (!(error <= *most)) *most = error;
    CHECK(error < tolerance, "%s of step %d is %.3g of it off", what, step + 1, error);
}

static void compare(const Run *run, const Run *one) {
    for (int step = 0; step < STEPS; step++) {
        check_near(&worst.loss, fabs(run->losses[step] / one->losses[step] - 1), LOSS_TOLERANCE,
                   "loss", step);
        check_near(&worst.norm, fabs(run->norms[step] / one->norms[step] - 1), NORM_TOLERANCE,
                   "norm", step);
    }
    for (int i = 0; i < run->n_params; i++) {
        int k = 0;
        while (k < one->n_params && strcmp(one->names[k], run->names[i]) != 0) k++;
        if (k == one->n_params || !run->gradients[i] || !one->gradients[k]) continue;
        double error =
            relative_distance(run->gradients[i], one->gradients[k], type_elements(&run->types[i]));
        check_near(&worst.gradient, error, GRADIENT_TOLERANCE, run->names[i], 0);
    }
}

static void check_layouts(const char *seq) {
    const Case alone = {seq, 1, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}};
    Run one;
    bool done = train(&one, &alone, DTYPE_FP8);
    check_begin("one rank");
    CHECK(done, "%s", diag_text(one.diag));
    check_end();
    for (size_t i = 0; done && i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const Case *of = &CASES[i];
        if (i % LAYOUT_STEP) continue;
        char name[160];
        Run run;
        if (strcmp(of->seq, seq) != 0) continue;
        snprintf(name, sizeof(name),
                 "lora %s t=%d c=%d d=%d p=%d micro %d %s%s zero %d recompute %s", lora_rank,
                 of->layout.t, of->c, of->layout.d, of->layout.p, of->layout.micro_batch,
                 of->layout.schedule, of->layout.sequence_parallel ? " sp" : "", of->zero,
                 recompute_mode_name(of->recompute));
        check_begin(name);
        bool trained = train(&run, of, DTYPE_FP8);
        CHECK(trained, "%s", diag_text(run.diag));
        if (trained) compare(&run, &one);
        check_end();
        run_close(&run);
    }
    run_close(&one);
}

/* Experts' products, whose rows come from other ranks: 128 slots each. */
static void check_experts(void) {
    static const ModelSetting SETTINGS[] = {{"model", "128"},  {"heads", "2"},       {"head", "64"},
                                            {"kv_heads", "2"}, {"layers", "1"},      {"seq", "256"},
                                            {"vocab", "64"},   {"experts", "4"},     {"top_k", "2"},
                                            {"capacity", "1"}, {"expert_ffn", "128"}};
    static const int N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]);
    const Case of = {"256", 1, 0, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}};
    Run runs[2];
    bool done = true, quantises = false;
    check_begin("experts on two ranks");
    for (int e = 1; e <= 2; e++) {
        Run *run = &runs[e - 1];
        run_experts = e;
        done &= start_of(run, "models/moe.lua", SETTINGS, N_SETTINGS, &of, DTYPE_FP8, true) &&
                run_start(run) && run_steps_keeping(run, STEPS, LEARNING_RATE);
        CHECK(done, "%s", diag_text(run->diag));
    }
    const Graph *graph = done ? runs[0].plan->programs[0].graph : NULL;
    for (int n = 0; done && n < graph->n_nodes; n++) {
        int slot = axis_find(&graph->axes, "slot", 4);
        const Node *node = graph->nodes[n];
        quantises |= node->op == OP_QUANTIZE && type_find_axis(&node->types[0], slot) >= 0;
    }
    CHECK(quantises, "their products are not in fp8");
    if (done) compare(&runs[1], &runs[0]);
    check_end();
    run_experts = 1;
    for (int i = 0; i < 2; i++) run_close(&runs[i]);
}

/* Not bf16's losses, but near them. */
static void check_bf16(void) {
    Run low, fp8;
    check_begin("fp8 is not bf16, and near it");
    bool done = train(&low, &CASES[0], DTYPE_BF16) & train(&fp8, &CASES[0], DTYPE_FP8);
    CHECK(done, "%s%s", diag_text(low.diag), diag_text(fp8.diag));
    double error = done ? fabs(fp8.losses[STEPS - 1] / low.losses[STEPS - 1] - 1) : 0;
    CHECK(!done || (error > 1e-7 && error < 2e-3), "its loss is %.3g off", error);
    check_end();
    run_close(&low);
    run_close(&fp8);
}

/* A block is never cut; a model without blocks of 128 has no fp8 to offer. */
static void check_refusals(void) {
    static const struct {
        Case of;
        const char *heads, *message;
    } REFUSED[] = {
        {{"128", 1, 0, RECOMPUTE_NONE, {2, 1, 1, 4, 1, "1f1b", true, NULL, 0}},
         "2",
         "axis 'seq' is 128, 1 block of 128 that share an fp8 scale: t=2 would cut some; t=1 would "
         "do, or no --sequence-parallel, or bf16"},
        {{"256", 2, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
         "2",
         "axis 'seq' is 256, 2 blocks of 128 that share an fp8 scale: c=2 would cut some; c=1 "
         "would "
         "do, or bf16"},
        {{"128", 1, 0, RECOMPUTE_NONE, {4, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
         "4",
         "axis 'ffn' is 256, 2 blocks of 128 that share an fp8 scale: t=4 would cut some; t=2 "
         "would "
         "do, or bf16"},
        {{"96", 1, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
         "2",
         "--precision fp8: no block has a product whose sides and positions hold whole blocks of "
         "128, the sizes that share a scale; use bf16"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        const ModelSetting settings[] = {SIZES,
                                         {"seq", REFUSED[i].of.seq},
                                         {"heads", REFUSED[i].heads},
                                         {"kv_heads", REFUSED[i].heads}};
        Run run;
        check_begin(REFUSED[i].message);
        run_precision = DTYPE_FP8;
        run_context = REFUSED[i].of.c;
        run_zero = 0;
        run_recompute = RECOMPUTE_NONE;
        bool planned =
            run_plan(&run, "models/llama.lua", settings, sizeof(settings) / sizeof(settings[0]),
                     &REFUSED[i].of.layout, GLOBAL_BATCH, false);
        CHECK(!planned, "was planned");
        CHECK(strstr(diag_text(run.diag), REFUSED[i].message), "says: %s", diag_text(run.diag));
        check_end();
        run_close(&run);
    }
}

/* Of a sound plan's text, the first `from` after `after` becomes `to`: no proof may hold. */
static void check_broken(void) {
    static const BrokenText CHANGES[] = {
        {"dequantize(", ".1)", ")", "takes fp8 and the f32 scales"},
        {"dequantize(", "dequantize(", "dequantize(%0, ", ""},
        {"quantize(", "over=[seq]", "over=[model]", ""},
        {"quantize(", "seq=256/t, model=128]", "seq=256, model=128]", ""},
    };
    const Case of = {"256", 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}};
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        Run run;
        char name[128];
        snprintf(name, sizeof(name), "refused: '%s' for '%s'", CHANGES[i].to, CHANGES[i].from);
        check_begin(name);
        bool made = start(&run, &of, DTYPE_FP8, false);
        CHECK(made, "%s", diag_text(run.diag));
        if (made) check_broken_text(&run, &CHANGES[i]);
        check_end();
        run_close(&run);
    }
}

/* Scales of another value of the same shape, which no type forbids. */
static void check_foreign_scales(void) {
    Run run;
    check_begin("refused: scales of other values");
    bool made = start(&run, &CASES[0], DTYPE_FP8, false);
    CHECK(made, "%s", diag_text(run.diag));
    const Graph *graph = made ? run.plan->programs[0].graph : NULL;
    bool swapped = false;
    for (int n = 0; made && n < graph->n_nodes && !swapped; n++) {
        Node *node = graph->nodes[n];
        for (int k = 0; k < n && node->op == OP_DEQUANTIZE && !swapped; k++) {
            Node *other = graph->nodes[k];
            if (other->op != OP_QUANTIZE || other == node->inputs[1].node) continue;
            if (!type_equal(&other->types[1], value_type(node->inputs[1]))) continue;
            if (other->phase != node->phase) continue;
            node->inputs[1] = node_value(other, 1);
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

/* Without its scales fp8 is no number to give out. */
static void check_given_out(void) {
    Run run;
    check_begin("refused: fp8 as an output");
    bool made = start(&run, &CASES[0], DTYPE_FP8, false), changed = false;
    CHECK(made, "%s", diag_text(run.diag));
    const Graph *graph = made ? run.plan->programs[0].graph : NULL;
    Node *quantize = NULL;
    for (int n = 0; made && n < graph->n_nodes && !changed; n++) {
        Node *node = graph->nodes[n];
        if (node->op == OP_QUANTIZE) quantize = node;
        if (!quantize || node->op != OP_OUTPUT) continue;
        node->inputs[0] = node_value(quantize, 0);
        changed = true;
    }
    CHECK(changed, "there is none");
    CHECK(!made || !verify_plan(run.plan, run.diag), "taken for sound");
    CHECK(strstr(diag_text(run.diag),
                 "takes fp8, which is gathered, sliced, dequantised and multiplied only"),
          "says: %s", diag_text(run.diag));
    check_end();
    run_close(&run);
}

int main(void) {
    check_layouts("256");
    lora_rank = "128";
    check_layouts("256");
    lora_rank = "0";
    if (LAYOUT_STEP == 1) { /* these take long with sanitizers */
        check_layouts("512");
        check_bf16();
    }
    check_experts();
    check_refusals();
    check_broken();
    check_foreign_scales();
    check_given_out();
    printf("largest differences: loss %.2g, gradient norm %.2g, gradient %.2g\n", worst.loss,
           worst.norm, worst.gradient);
    return check_report();
}
