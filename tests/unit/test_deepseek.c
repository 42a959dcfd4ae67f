/* models/deepseek.lua under layouts against one rank, and the biases that balance its experts
 * against counts made by hand. Catches latents, shared keys or values of another size that a mesh
 * axis divides wrongly, tallies that a rank, a micro-batch or a chunk adds twice or not, a bias
 * that follows the loss or the clipping factor, a loss of the second next token that sees it.
 *
 * fp32; four steps. train_compare.h says what must agree and how closely; biases move by whole
 * steps, so they are the same bits wherever choices are.
 */
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 4, GLOBAL_BATCH = 8, MOST_SETTINGS = 24, EXPERTS = 8 };
static const double LEARNING_RATE = 2e-3, BIAS_RATE = 0.03125;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "32"}, {"seq", "16"}, {"vocab", "61"},          \
    {"ffn", "48"}, {"experts", "8"}, {"expert_ffn", "16"}, {"shared_ffn", "16"},                   \
    {"bias_rate", "0.03125"}, {"kv_rank", "16"}, {"layers", "3"}, {"nope", "6"}, {"rope", "4"},    \
    {"value", "7"}
/* clang-format on */
typedef struct Variant {
    const char *name;
    ModelSetting settings[MOST_SETTINGS]; /* up to the first without a key */
} Variant;
static const Variant VARIANTS[] = {
    {"v3", {SIZES, {"mtp", "1"}}},
    {"v2 with documents",
     {SIZES,
      {"scores", "softmax"},
      {"bias", "false"},
      {"group_best", "1"},
      {"normalize", "false"},
      {"q_rank", "0"},
      {"documents", "5"},
      {"rotary_scaling", "yarn"},
      {"rotary_context", "8"},
      {"balance", "0.01"}}},
};

typedef struct Case {
    int variant, c, e, zero;
    Recompute recompute;
    Layout layout;
} Case;
static const Case CASES[] = {
    {0, 1, 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {0, 2, 1, 0, RECOMPUTE_NONE, {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}},
    {0, 1, 2, 1, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {0, 1, 2, 3, RECOMPUTE_FULL, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {0, 1, 1, 2, RECOMPUTE_NONE, {1, 2, 2, 1, 1, "1f1b", false, NULL, 0}},
    {0, 1, 1, 0, RECOMPUTE_SELECTIVE, {1, 1, 2, 1, 2, "zb-chunked", false, NULL, 0}},
    {1, 2, 1, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {1, 1, 2, 1, RECOMPUTE_FULL, {1, 1, 2, 1, 1, "1f1b", false, NULL, 0}},
};

static bool plan(Run *run, int variant, const Layout *layout) {
    const Variant *of = &VARIANTS[variant];
    int count = 0;
    while (of->settings[count].key) count++;
    return run_plan(run, "models/deepseek.lua", of->settings, count, layout, GLOBAL_BATCH, true);
}

static bool train(Run *run, int steps) {
    return run_start(run) && run_steps_keeping(run, steps, LEARNING_RATE);
}

static void set_case(const Case *of) {
    run_context = of ? of->c : 1;
    run_experts = of ? of->e : 1;
    run_zero = of ? of->zero : 0;
    run_recompute = of ? of->recompute : RECOMPUTE_NONE;
}

static void compare_biases(Run *run, Run *one) {
    float here[EXPERTS], there[EXPERTS];
    for (int block = 1; block <= 3; block++) {
        const char *name = arena_printf(run->arena, "blocks.%d.moe.bias", block);
        bool read = engine_read_parameter(run->engine, name, here) &&
                    engine_read_parameter(one->engine, name, there);
        CHECK(read && memcmp(here, there, sizeof(here)) == 0, "%s differs", name);
    }
}

static void check_layout(const Case *of, Run *one) {
    char name[160];
    Run run;
    set_case(of);
    check_begin(layout_name(VARIANTS[of->variant].name, &of->layout, name, sizeof(name)));
    bool done = plan(&run, of->variant, &of->layout) && train(&run, STEPS);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) compare_runs(&run, one, STEPS);
    if (done && of->variant == 0) compare_biases(&run, one);
    run_close(&run);
    check_end();
    set_case(NULL);
}

/* After one step each bias is the rate with the sign of what the expert's tally lacks to the mean;
 * tallies are whole numbers, of all choices in the global batch. */
static void check_biases(void) {
    const Layout layout = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    float tally[EXPERTS], bias[EXPERTS];
    Run run;
    check_begin("biases move by their rate, against what was tallied");
    bool done = plan(&run, 0, &layout) && train(&run, 1) &&
                engine_read_gradient(run.engine, "blocks.1.moe.bias", tally) &&
                engine_read_parameter(run.engine, "blocks.1.moe.bias", bias);
    CHECK(done, "%s", diag_text(run.diag));
    double total = 0;
    for (int i = 0; done && i < EXPERTS; i++) total += (double)tally[i];
    CHECK(!done || total == GLOBAL_BATCH * 16 * 4, "%g choices", total);
    for (int i = 0; done && i < EXPERTS; i++) {
        double lacks = total / EXPERTS - (double)tally[i];
        double want = BIAS_RATE * ((lacks > 0) - (lacks < 0));
        CHECK(tally[i] == (float)(int)tally[i] && (double)bias[i] == want,
              "expert %d: %g after %g choices", i, (double)bias[i], (double)tally[i]);
    }
    run_close(&run);
    check_end();
}

/* Along an axis that t would divide: all ranks have all of it, as it moves against its mean. */
static void check_divided_axis(void) {
    const Layout layouts[] = {{1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0},
                              {2, 2, 1, 1, 1, "1f1b", true, NULL, 0}};
    enum { HEADS = 4 };
    float biases[2][HEADS] = {{0}};
    check_begin("a balanced parameter along an axis that t divides");
    for (int i = 0; i < 2; i++) {
        Run run;
        bool done =
            run_plan(&run, "tests/models/balanced.lua", NULL, 0, &layouts[i], GLOBAL_BATCH, true) &&
            train(&run, 3) && engine_read_parameter(run.engine, "blocks.1.b", biases[i]);
        CHECK(done, "%s", diag_text(run.diag));
        run_close(&run);
    }
    CHECK(memcmp(biases[0], biases[1], sizeof(biases[0])) == 0 && biases[0][0] != 0,
          "%g %g %g on one rank, %g on four", (double)biases[0][0], (double)biases[0][1],
          (double)biases[0][2], (double)biases[1][0]);
    check_end();
}

static void check_broken(const char *what, const char *from, const char *to) {
    const Layout layout = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin(what);
    bool made = plan(&run, 0, &layout);
    CHECK(made, "%s", diag_text(run.diag));
    if (made) check_broken_text(&run, &(BrokenText){from, from, to, ""});
    run_close(&run);
    check_end();
}

int main(void) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    for (int v = 0; v < 2; v++) {
        Run one;
        bool done = plan(&one, v, &alone) && train(&one, STEPS);
        check_begin(VARIANTS[v].name);
        CHECK(done, "one rank: %s", diag_text(one.diag));
        check_end();
        for (size_t i = 0; done && i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            if (CASES[i].variant == v) check_layout(&CASES[i], &one);
        }
        run_close(&one);
    }
    check_biases();
    check_divided_axis();
    check_broken("refused: a parameter that is balanced, though its plan says no",
                 ", balance=0.03125} : f32[routes", "} : f32[routes");
    return check_report();
}
