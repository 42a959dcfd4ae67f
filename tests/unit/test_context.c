/* Context parallelism: what is trained with c, which divides sequences, against one rank. Catches a
 * query that sees other keys than its own, a position counted from the rank's first, gradients of
 * keys or weights that lack a rank's share, tokens and labels of other positions, a chunk that
 * comes back to another place; a state that begins at a rank's first position, or is another
 * head's.
 *
 * fp32; five steps. train_compare.h says what must agree and how closely. Every plan is made,
 * proved, printed, parsed, printed again, proved again, and run as parsed.
 */
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 4, GLOBAL_BATCH = 4 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    DType precision;
    ModelSetting settings[16]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "24"}, \
              {"layers", "3"}
static const Variant VARIANTS[] = {
    {"gpt dropout", "models/gpt.lua", DTYPE_F32,
     {SIZES, {"vocab", "61"}, {"ffn", "64"}, {"dropout", "0.1"}, {"attention_dropout", "0.2"}}},
    {"llama window", "models/llama.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"kv_heads", "2"}, {"ffn", "64"}, {"window", "9"}}},
    {"sinks", "tests/models/sinks.lua", DTYPE_F32, {SIZES}},
    {"llama, two tokens ahead", "tests/models/context.lua", DTYPE_F32, {SIZES}},
    {"llama 4", "models/llama4.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"kv_heads", "2"}, {"experts", "4"}, {"expert_ffn", "24"},
      {"rotary_skip", "2"}, {"temperature_every", "5"}}},
    {"attention beside a state space", "models/hybrid.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"kv_heads", "2"}, {"ffn", "24"}, {"pattern", "P"},
      {"state_groups", "2"}, {"state_heads", "2"}, {"state_keys", "6"}, {"state_values", "5"},
      {"state_normed", "false"}, {"state_scales", "1,2,1,0.5,1"}}},
    {"decays of keys, c divides groups", "models/hybrid.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"ffn", "24"}, {"pattern", "GK"}, {"state_groups", "4"},
      {"state_heads", "1"}, {"state_keys", "6"}, {"state_values", "5"}}},
    {"short convolutions", "models/hybrid.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"kv_heads", "2"}, {"ffn", "24"}, {"pattern", "CAC"}}},
    {"states, c divides groups, or heads where t divides groups", "models/hybrid.lua", DTYPE_F32,
     {SIZES, {"vocab", "64"}, {"kv_heads", "2"}, {"ffn", "24"}, {"pattern", "MDA"},
      {"state_groups", "2"}, {"state_heads", "2"}, {"state_keys", "6"}, {"state_values", "5"}}},
    {"states, c divides heads of one group, within documents", "models/hybrid.lua", DTYPE_F32,
     {SIZES, {"vocab", "16"}, {"documents", "5"}, {"pattern", "MD"}, {"feed", "none"},
      {"state_groups", "1"}, {"state_heads", "8"}, {"state_keys", "6"}, {"state_values", "4"},
      {"state_norm", "all"}}},
};
/* clang-format on */
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]), GROUPS = N_VARIANTS - 2 };

/* Ideas from papers (models/README.md): each under some of the cases. Losses and norms of gradients
 * are compared: gradients of single numbers, as mHC and Dynamic Tanh have, are sums that cancel to
 * a thousandth of their terms. */
/* clang-format off */
#define IDEAS "tests/models/ideas.lua", DTYPE_F32
#define BIASES "tests/models/biases.lua", DTYPE_F32
static const Variant PAPERS[] = {
    {"mHC, Canon layers", IDEAS, {SIZES, {"streams", "true"}, {"feed", "canon"}}},
    {"values of the first block, Mixture-of-Depths", IDEAS,
     {SIZES, {"attention", "values"}, {"feed", "depths"}}},
    {"differential attention, embeddings of each layer, Dynamic Tanh", IDEAS,
     {SIZES, {"attention", "differential"}, {"feed", "embedded"}, {"tanh", "true"}}},
    {"n-grams, a block's weights in others", IDEAS,
     {SIZES, {"grams", "50"}, {"layers", "2"}, {"loops", "2"}}},
    {"Softpick", IDEAS, {SIZES, {"attention", "softpick"}}},
    {"keys chosen by an indexer", IDEAS, {SIZES, {"attention", "indexed"}}},
    {"forget gates", BIASES, {SIZES, {"idea", "forget"}, {"kv_heads", "2"}}},
    {"ALiBi", BIASES, {SIZES, {"idea", "alibi"}, {"kv_heads", "2"}}},
    {"biases by head", BIASES, {SIZES, {"idea", "own"}}},
};
/* clang-format on */
enum { N_PAPERS = sizeof(PAPERS) / sizeof(PAPERS[0]), PAPER_STEP = 3 };

typedef struct Case {
    int c, zero;
    Recompute recompute;
    Layout layout;
} Case;

/* seq 24: c is 2, 3 or 4 (chunks of 6, 4 or 3); with t 3 the middle part of t crosses chunks */
static const Case CASES[] = {
    {2, 0, RECOMPUTE_NONE, {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}},
    {3, 0, RECOMPUTE_NONE, {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}},
    {4, 0, RECOMPUTE_FULL, {1, 1, 2, 1, 1, "1f1b", false, NULL, 0}},
    {2, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {2, 2, RECOMPUTE_SELECTIVE, {2, 2, 1, 1, 1, "1f1b", true, NULL, 0}},
    {2, 3, RECOMPUTE_NONE, {1, 2, 2, 1, 1, "1f1b", false, NULL, 0}},
    {2, 3, RECOMPUTE_NONE, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}},
    {2, 0, RECOMPUTE_SELECTIVE, {1, 1, 2, 1, 2, "zb-v", false, NULL, 0}},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static int count_settings(const Variant *variant) {
    int count = 0;
    while (variant->settings[count].key) count++;
    return count;
}

static bool plan(Run *run, const Variant *variant, const Layout *layout) {
    return run_plan(run, variant->path, variant->settings, count_settings(variant), layout,
                    GLOBAL_BATCH, true);
}

static bool train(Run *run) {
    return run_start(run) && run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static void check_with_c(const Variant *variant, const Case *of, Run *one, bool is_paper) {
    char name[160];
    Run run;
    run_context = of->c;
    run_zero = of->zero;
    run_recompute = of->recompute;
    check_begin(layout_name(variant->name, &of->layout, name, sizeof(name)));
    bool done = plan(&run, variant, &of->layout) && train(&run);
    CHECK(done, "%s", diag_text(run.diag));
    if (done && is_paper) compare_losses(&run, one, STEPS);
    if (done && !is_paper) compare_runs(&run, one, STEPS);
    run_close(&run);
    check_end();
    run_context = 1;
    run_zero = 0;
    run_recompute = RECOMPUTE_NONE;
}

static void check_variant(const Variant *variant, int first, int step) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = plan(&one, variant, &alone) && train(&one);
    check_begin(variant->name);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int i = first; done && i < N_CASES; i += step) {
        check_with_c(variant, &CASES[i], &one, step > 1);
    }
    run_close(&one);
}

/* Biases are columns of queries and keys in nn.attention; of explicit scores they are added. In
 * 16 bits both round queries, keys and scores, each in its own way. */
static void check_biases(const char *idea, const char *kv_heads, DType precision,
                         double most_apart) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    ModelSetting settings[3] = {{"idea", idea}, {"kv_heads", kv_heads}, {"composed", "false"}};
    const char *path = "tests/models/biases.lua";
    Run runs[2];
    bool done = true;
    char name[80];
    snprintf(name, sizeof(name), "biases are added to scores: %s, %s, %s", idea, kv_heads,
             dtype_name(precision));
    check_begin(name);
    run_precision = precision;
    for (int i = 0; i < 2; i++) {
        settings[2].value = i ? "true" : "false";
        done &= run_plan(&runs[i], path, settings, 3, &alone, GLOBAL_BATCH, false) &&
                run_start(&runs[i]) && run_steps(&runs[i], STEPS, LEARNING_RATE);
        CHECK(done, "%s", diag_text(runs[i].diag));
    }
    run_precision = DTYPE_F32;
    for (int step = 0; done && step < STEPS; step++) {
        double apart = fabs(runs[0].losses[step] - runs[1].losses[step]);
        CHECK(apart < most_apart, "step %d: %.8f, added %.8f", step + 1, runs[0].losses[step],
              runs[1].losses[step]);
    }
    for (int i = 0; i < 2; i++) run_close(&runs[i]);
    check_end();
}

/* Biases beyond f16's numbers, as of thousands of positions, and in f32. */
static void check_large_biases(void) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    const ModelSetting settings[] = {{"idea", "own"}, {"kv_heads", "2"}, {"times", "10000"}};
    Run runs[2];
    bool done = true;
    check_begin("large biases in f16 are those in f32");
    for (int i = 0; i < 2; i++) {
        run_precision = i ? DTYPE_F16 : DTYPE_F32;
        done &= run_plan(&runs[i], "tests/models/biases.lua", settings, 3, &alone, GLOBAL_BATCH,
                         false) &&
                run_start(&runs[i]) && run_steps(&runs[i], 1, LEARNING_RATE);
        CHECK(done, "%s", diag_text(runs[i].diag));
    }
    run_precision = DTYPE_F32;
    double apart = done ? fabs(runs[0].losses[0] - runs[1].losses[0]) : 0;
    CHECK(apart < 2e-2, "%.8f, in f32 %.8f", runs[1].losses[0], runs[0].losses[0]);
    for (int i = 0; i < 2; i++) run_close(&runs[i]);
    check_end();
}

static void check_broken(void) {
    static const struct {
        const char *from, *to;
        int variant;
    } CHANGES[] = {
        {"over=[seq], mesh=\"c\"", "over=[seq], mesh=\"h\"", GROUPS},
        {"over=[seq], mesh=\"c\"", "over=[seq], mesh=\"d\"", GROUPS},
        {"state_groups=2/h", "state_groups=2/c", GROUPS}, /* dealt out */
        {"state_groups=2/h", "state_groups=2", GROUPS},
        {"axis=state_groups, over=[seq]", "axis=seq, over=[state_groups]", GROUPS},
        {"axis=state_groups, mesh=\"h\"", "axis=state_groups, mesh=\"c\"", GROUPS},
        {"\nc=2", "\nc=4", 0},
        {"\nc=2", "\nc=1", 0},
        {"{axis=seq, mesh=\"c\"}", "{axis=seq, mesh=\"d\"}", 0}, /* keys of other samples */
        {"{axis=seq, mesh=\"c\"}", "{axis=seq, mesh=\"ct\"}", 0},
        {"all_reduce(", "stop_gradient(", 0},
        {"{mesh=\"dc\"}", "{mesh=\"c\"}", 0}, /* gradients that lack d's shares */
        {"{mesh=\"dc\"}", "{mesh=\"d\"}", 0},
        {"seq=24/c]", "seq=24]", 0}, /* tokens */
        {"seq=24/c", "seq=24/d", 0},
    };
    const Layout layout = {1, 2, 1, 1, 1, "1f1b", false, NULL, 0};
    run_context = 2;
    for (size_t i = 0; i < sizeof(CHANGES) / sizeof(CHANGES[0]); i++) {
        Run run;
        char name[128];
        snprintf(name, sizeof(name), "refused: '%s' for '%s'", CHANGES[i].to, CHANGES[i].from);
        check_begin(name[10] == '\n' ? "refused: another c than its programs have" : name);
        bool made = plan(&run, &VARIANTS[CHANGES[i].variant], &layout);
        CHECK(made, "%s", diag_text(run.diag));
        const char *from = CHANGES[i].from;
        if (made) check_broken_text(&run, &(BrokenText){from, from, CHANGES[i].to, ""});
        run_close(&run);
        check_end();
    }
    run_context = 1;
}

static void check_refusal(int c, const char *message) {
    const Layout layout = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    Run run;
    run_context = c;
    check_begin(message);
    CHECK(!plan(&run, &VARIANTS[0], &layout), "was planned");
    CHECK(strstr(diag_text(run.diag), message), "says: %s", diag_text(run.diag));
    run_context = 1;
    run_close(&run);
    check_end();
}

int main(void) {
    check_broken();
    check_refusal(5, "axis 'seq' is 24: c=5 divides it into 10 equal chunks, two a rank, which is "
                     "not possible; c=4 would do");
    for (int v = 0; v < N_VARIANTS; v++) check_variant(&VARIANTS[v], 0, 1);
    for (int v = 0; v < N_PAPERS; v++) check_variant(&PAPERS[v], v % PAPER_STEP, PAPER_STEP);
    for (int i = 0; i < 3; i++) {
        const char *idea = i == 0 ? "forget" : i == 1 ? "alibi" : "own";
        check_biases(idea, "2", DTYPE_F32, 1e-5);
        check_biases(idea, "4", DTYPE_BF16, 2e-2);
    }
    check_large_biases();
    compare_print_worst();
    return check_report();
}
