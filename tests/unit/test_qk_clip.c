/* QK-clip in whole models: by how much which weights are scaled, against factors worked out here
 * from heads' largest scores; that layouts, precisions and devices agree; what is refused. Largest
 * scores against float64 are test_kernels_attention's, test_ops' and test_cuda_attention's.
 *
 * Would catch: factors of other heads, of keys that heads share, of values; a maximum of one rank,
 * micro-batch, lane or stage alone, or a sum; factors before the step, or twice; shards that have
 * another shard's factors; a copy in 16 bits that is left as it was; averages of weights (--ema)
 * that are taken before they are scaled.
 */
#include "runtime/engine_internal.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

#ifdef HAVE_CUDA
#include "tests/emulate/emulate.h"
#include "tests/support/generated_run.h"
#include "tests/unit/fake_check.h"
#endif

enum { STEPS = 3, GLOBAL_BATCH = 8 };
static const double LEARNING_RATE = 4e-3;

/* Which power of a head's factor a weight is multiplied by. */
typedef struct Expected {
    const char *suffix;
    double power;
} Expected;

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[12]; /* up to the first without a key */
    Expected expected[6];      /* likewise; all others stay as they are */
} Variant;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"heads", "4"}, {"seq", "16"}, {"layers", "2"}, \
              {"vocab", "61"}, {"ffn", "48"}
#define WIDTH {"model", "32"}
static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", {SIZES, WIDTH},
     {{".wq", 0.5}, {".bq", 0.5}, {".wk", 0.5}, {".bk", 0.5}}},
    {"llama by muon", "models/llama.lua", {SIZES, WIDTH, {"kv_heads", "2"}, {"optimizer", "muon"}},
     {{".wq", 1}}},
    {"deepseek", "models/deepseek.lua", {{"optimizer.eps", "1e-6"}, {"seq", "16"}},
     {{".wq_b_nope", 0.5}, {".wq_nope", 0.5}, {".wk", 0.5}, {".wq_b_rope", 1}, {".wq_rope", 1}}},
    {"heads over d", "models/llama.lua",
     {SIZES, {"model", "34"}, {"head", "8"}, {"kv_heads", "4"}}, {{".wq", 0.5}, {".wk", 0.5}}},
    {"one key", "models/llama.lua", {SIZES, WIDTH, {"kv_heads", "1"}}, {{".wq", 1}}},
};
/* clang-format on */
enum { GPT, LLAMA, DEEPSEEK, OVER_D, ONE_KEY, N_VARIANTS };
static const Layout ALONE = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};

static bool plan(Run *run, int variant, const Layout *layout, double tau) {
    const Variant *of = &VARIANTS[variant];
    int n = 0;
    while (n < 12 && of->settings[n].key) n++;
    run_qk_clip = tau;
    run_max_logit = tau == 0;
    bool planned = run_plan(run, of->path, of->settings, n, layout, GLOBAL_BATCH, true);
    run_qk_clip = 0;
    run_max_logit = false;
    return planned;
}

static bool start(Run *run, int variant, const Layout *layout, double tau) {
    return plan(run, variant, layout, tau) && run_start(run);
}

/* The step's largest score, as it is told of. */
static double max_logit(const Run *run) {
    for (int i = 0; i < run->engine->n_values; i++) {
        if (strcmp(run->engine->values[i].name, OUTPUT_MAX_LOGIT) == 0)
            return run->engine->values[i].value;
    }
    return NAN;
}

/* Largest scores of a block's heads, of a run on one rank without clipping, which has use for their
 * memory; their type. */
static const float *heads_of(const Run *run, int block, Type *out) {
    const Graph *graph = run->plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_ACCUMULATOR || node->block != block) continue;
        if (strcmp(node_string(node, ATTR_name), "max_logit.#.0") != 0) continue;
        *out = node->types[0];
        return engine_view(run->engine, &run->engine->ranks[0], node_value(node, 0));
    }
    return NULL;
}

/* Between the least and the greatest of all heads, so that some are above it. */
static double middle_score(const Run *run) {
    double least = INFINITY, most = -INFINITY;
    Type type;
    for (int block = 0; block < run->plan->n_blocks; block++) {
        const float *heads = heads_of(run, block, &type);
        for (int64_t i = 0; heads && i < type_elements(&type); i++) {
            least = fmin(least, (double)heads[i]);
            most = fmax(most, (double)heads[i]);
        }
    }
    return (least + most) / 2;
}

static double expected_power(const Variant *variant, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < 6 && variant->expected[i].suffix; i++) {
        size_t n = strlen(variant->expected[i].suffix);
        bool ends = length > n && strcmp(name + length - n, variant->expected[i].suffix) == 0;
        if (ends && strstr(name, "attn")) return variant->expected[i].power;
    }
    return 0;
}

/* The head that element i of a weight belongs to: places along the heads' axes that it has. */
static int64_t head_of(const Type *weight, const Type *heads, int64_t i) {
    int64_t at[MAX_RANK], head = 0;
    for (int d = weight->rank - 1; d >= 0; d--) {
        at[d] = i % weight->dims[d];
        i /= weight->dims[d];
    }
    for (int h = 0; h < heads->rank; h++) {
        int d = type_find_axis(weight, heads->axes[h]);
        head = head * heads->dims[h] + (d >= 0 ? at[d] : 0);
    }
    return head;
}

/* Names are the same in all plans of a model, numbers of axes may not be. */
static Type in_axes_of(const Type *heads, const Graph *from, const Graph *to) {
    Type type = *heads;
    for (int i = 0; i < heads->rank; i++) {
        const char *name = from->axes.names[heads->axes[i]];
        type.axes[i] = axis_find(&to->axes, name, (int)strlen(name));
    }
    return type;
}

static int compare_scaled(const Variant *variant, Run *clipped, Run *free_run, double tau) {
    int n_scaled = 0;
    for (int i = 0; i < clipped->n_params; i++) {
        const char *name = clipped->names[i];
        const float *have = run_weight(clipped, i), *before = run_weight(free_run, i);
        double power = expected_power(variant, name);
        int block = -1, wrong = 0;
        Type heads = {0};
        const float *scores = NULL;
        if (sscanf(name, "blocks.%d.", &block) == 1) scores = heads_of(free_run, block, &heads);
        if (scores)
            heads = in_axes_of(&heads, free_run->plan->programs[0].graph,
                               clipped->plan->programs[0].graph);
        CHECK(have && before && (scores || power == 0), "'%s' cannot be read", name);
        if (!have || !before || (!scores && power != 0)) continue;
        for (int64_t k = 0; k < type_elements(&clipped->types[i]); k++) {
            double factor = 1;
            if (power != 0) {
                double s = (double)scores[head_of(&clipped->types[i], &heads, k)];
                factor = pow(fmin(1, tau / s), power);
                n_scaled += factor < 1;
            }
            double want = factor * (double)before[k];
            wrong += !(fabs((double)have[k] - want) <= 4e-7 * fabs(want));
        }
        CHECK(wrong == 0, "'%s': %d elements are not what they were, scaled", name, wrong);
    }
    return n_scaled;
}

/* Averages that keep a millionth of themselves are the weights, as they are scaled. */
static void compare_averages(Run *run) {
    Arena *arena = arena_create();
    float **weights = ARENA_ARRAY(arena, float *, run->n_params);
    for (int i = 0; i < run->n_params; i++) {
        int64_t n = type_elements(&run->types[i]);
        weights[i] = ARENA_ARRAY(arena, float, n);
        memcpy(weights[i], run_weight(run, i), (size_t)n * sizeof(float));
    }
    CHECK(engine_swap_averages(run->engine, run->diag), "%s", diag_text(run->diag));
    for (int i = 0; i < run->n_params; i++) {
        double error =
            relative_distance(run_weight(run, i), weights[i], type_elements(&run->types[i]));
        CHECK(error < 1e-6, "the average of '%s' is off by %.3g", run->names[i], error);
    }
    CHECK(engine_swap_averages(run->engine, run->diag), "%s", diag_text(run->diag));
    arena_destroy(arena);
}

/* One step with and one without, from the same weights: the same numbers, times factors. */
static void test_factors(int variant, double *out_tau) {
    char name[80];
    Run free_run, clipped = {0};
    snprintf(name, sizeof(name), "which weights are scaled: %s", VARIANTS[variant].name);
    check_begin(name);
    bool ready = start(&free_run, variant, &ALONE, 0) && run_steps(&free_run, 1, LEARNING_RATE);
    CHECK(ready, "%s", diag_text(free_run.diag));
    if (ready) {
        *out_tau = middle_score(&free_run);
        double told = max_logit(&free_run);
        run_ema_decay = 1e-6;
        ready = start(&clipped, variant, &ALONE, *out_tau) && run_steps(&clipped, 1, LEARNING_RATE);
        run_ema_decay = 0;
        CHECK(ready, "%s", diag_text(clipped.diag));
        CHECK(told == max_logit(&clipped), "the largest is %g, or %g", told, max_logit(&clipped));
        int n = ready ? compare_scaled(&VARIANTS[variant], &clipped, &free_run, *out_tau) : 0;
        CHECK(n > 0, "no head is above %g", *out_tau);
        if (ready) compare_averages(&clipped);
        run_close(&clipped);
    }
    run_close(&free_run);
    check_end();
}

typedef struct Case {
    int variant, c, zero, lanes;
    Recompute recompute;
    Layout layout;
} Case;

static const Case CASES[] = {
    {GPT, 1, 1, 1, RECOMPUTE_NONE, {2, 2, 1, 2, 1, "1f1b", true, NULL, 0}},
    {GPT, 1, 2, 1, RECOMPUTE_NONE, {1, 4, 1, 2, 1, "1f1b", false, NULL, 0}}, /* one micro-batch */
    {GPT, 1, 0, 2, RECOMPUTE_FULL, {1, 1, 2, 2, 1, "1f1b", false, NULL, 0}},
    {LLAMA, 1, 1, 1, RECOMPUTE_NONE, {2, 2, 1, 2, 1, "1f1b", false, NULL, 0}},
    {LLAMA, 2, 3, 1, RECOMPUTE_NONE, {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {DEEPSEEK, 1, 2, 1, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}},
    {OVER_D, 1, 2, 1, RECOMPUTE_NONE, {1, 4, 1, 1, 1, "1f1b", false, NULL, 0}},  /* factors' shards
                                                                                  */
    {ONE_KEY, 1, 3, 1, RECOMPUTE_NONE, {2, 2, 1, 1, 1, "1f1b", false, NULL, 0}}, /* t: group */
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void set_case(const Case *of) {
    run_context = of ? of->c : 1;
    run_zero = of ? of->zero : 0;
    run_lanes = of ? of->lanes : 1;
    run_recompute = of ? of->recompute : RECOMPUTE_NONE;
}

static void test_layout(const Case *of, Run *one, double tau) {
    char name[160];
    Run run;
    set_case(of);
    check_begin(layout_name(VARIANTS[of->variant].name, &of->layout, name, sizeof(name)));
    bool done =
        start(&run, of->variant, &of->layout, tau) && run_steps_keeping(&run, STEPS, LEARNING_RATE);
    set_case(NULL);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        double most = max_logit(&run), want = max_logit(one);
        compare_runs(&run, one, STEPS);
        CHECK(fabs(most - want) < 2e-4 * fabs(want), "the largest score is %g, on one rank %g",
              most, want);
    }
    run_close(&run);
    check_end();
}

static void test_layouts(const double *tau) {
    for (int v = 0; v < N_VARIANTS; v++) {
        Run one;
        bool ready =
            start(&one, v, &ALONE, tau[v]) && run_steps_keeping(&one, STEPS, LEARNING_RATE);
        for (int k = 0; ready && k < N_CASES; k++) {
            if (CASES[k].variant == v) test_layout(&CASES[k], &one, tau[v]);
        }
        check_begin("on one rank");
        CHECK(ready, "%s", diag_text(one.diag));
        check_end();
        run_close(&one);
    }
}

/* In bf16: halves of masters hold the bits that whole ones have, and copies are theirs. */
static void test_low(double tau) {
    Run whole, halves;
    run_precision = DTYPE_BF16;
    check_begin("in bf16, masters whole and in halves");
    bool ready = start(&whole, GPT, &ALONE, tau) && run_steps(&whole, STEPS, LEARNING_RATE);
    run_split_masters = true;
    ready = start(&halves, GPT, &ALONE, tau) && run_steps(&halves, STEPS, LEARNING_RATE) && ready;
    run_split_masters = false;
    run_precision = DTYPE_F32;
    CHECK(ready, "%s%s", diag_text(whole.diag), diag_text(halves.diag));
    for (int i = 0; ready && i < whole.n_params; i++) {
        size_t bytes = (size_t)type_elements(&whole.types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(&whole, i), run_weight(&halves, i), bytes) == 0,
              "'%s' has other bits", whole.names[i]);
    }
    CHECK(!ready || max_logit(&whole) == max_logit(&halves), "other scores");
    run_close(&whole);
    run_close(&halves);
    check_end();
}

static void test_refused(void) {
    static const Layout STAGES = {1, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    static const struct {
        const char *path, *key, *value, *says;
        const Layout *layout;
    } CASES_OF[] = {
        {"models/llama.lua", "qk_norm", "true", "queries of this attention are normed", &ALONE},
        {"models/gemma.lua", "vocab", "64", "this attention has a soft cap", &ALONE},
        {"models/llama.lua", "lora", "4", "are of frozen weights", &ALONE},
        {"models/t5.lua", "vocab", "64", "--qk-clip: the model has no attention", &ALONE},
        {"tests/models/ideas.lua", "loops", "2", "which lies on another pipeline stage", &STAGES},
    };
    for (size_t i = 0; i < sizeof(CASES_OF) / sizeof(CASES_OF[0]); i++) {
        const ModelSetting setting = {CASES_OF[i].key, CASES_OF[i].value};
        Run run;
        check_begin(CASES_OF[i].says);
        run_qk_clip = 1;
        bool planned =
            run_plan(&run, CASES_OF[i].path, &setting, 1, CASES_OF[i].layout, GLOBAL_BATCH, false);
        run_qk_clip = 0;
        CHECK(!planned && strstr(diag_text(run.diag), CASES_OF[i].says), "says: %s",
              diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

static void test_broken(void) {
    static const BrokenText TEXTS[] = {
        {"= largest(", "~max(d)", "~sum(d)", "is no maximum over the ranks"},
        {"= largest(", "~max(d)", "", ""},
        {"= max_n(", "~max(t)", "~sum(t)", "is no maximum over the ranks"},
        {"= max_n(", "~max(t)", "", "is no maximum over the ranks"},
    };
    static const Layout BOTH = {2, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    check_begin("plans whose maxima are none are refused");
    bool ready = plan(&run, GPT, &BOTH, 1);
    CHECK(ready, "%s", diag_text(run.diag));
    for (size_t i = 0; ready && i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        check_broken_text(&run, &TEXTS[i]);
    }
    run_close(&run);
    check_end();
}

#ifdef HAVE_CUDA
/* Own kernels of attention, maxima, messages among ranks and scaling behind each optimizer, in a
 * captured step. bf16: as test_cuda_epilogue_train has it of losses; scores are products of what
 * is rounded by 2^-9, and largest ones differ by some of that. */
static void test_cuda(double tau) {
    static const Layout LAYOUTS[] = {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                     {2, 2, 1, 2, 1, "1f1b", false, NULL, 0}};
    for (int l = 0; l < 2; l++) {
        Run cpu, cuda;
        run_precision = DTYPE_BF16;
        run_qk_clip = tau;
        check_begin(l ? "on the fake of a GPU, t=2, d=2, states on the host"
                      : "on the fake of a GPU");
        const Variant *v = &VARIANTS[GPT];
        bool ready = run_plan_for(&cpu, v->path, v->settings, 7, &LAYOUTS[l], GLOBAL_BATCH, false,
                                  false, DTYPE_BF16) &&
                     run_start(&cpu) && run_steps(&cpu, STEPS, LEARNING_RATE);
        CHECK(ready, "%s", diag_text(cpu.diag));
        cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1}));
        run_offload = l ? 100 : 0;
        run_ema_decay = 1e-6;
        bool done =
            run_plan_for(&cuda, v->path, v->settings, 7, &LAYOUTS[l], GLOBAL_BATCH, false, true,
                         DTYPE_BF16) &&
            run_start_on(&cuda, &(EngineOptions){.device = DEVICE_CUDA, .virtual_ranks = true}) &&
            run_steps(&cuda, STEPS, LEARNING_RATE);
        run_offload = 0;
        run_ema_decay = 0;
        CHECK(done, "%s", diag_text(cuda.diag));
        if (done) compare_averages(&cuda);
        for (int s = 0; ready && done && s < STEPS; s++) {
            CHECK(fabs(cpu.losses[s] - cuda.losses[s]) < 2e-3, "loss of step %d: %g, on a CPU %g",
                  s + 1, cuda.losses[s], cpu.losses[s]);
        }
        double most = ready && done ? max_logit(&cuda) : 0, want = ready ? max_logit(&cpu) : 0;
        CHECK(fabs(most - want) <= 0.02 * fabs(want), "the largest score is %g, on a CPU %g", most,
              want);
        run_close(&cuda);
        end_fake();
        run_close(&cpu);
        run_precision = DTYPE_F32;
        run_qk_clip = 0;
        check_end();
    }
}
#endif

int main(void) {
    double tau[N_VARIANTS] = {0};
    for (int v = 0; v < N_VARIANTS; v++) test_factors(v, &tau[v]);
    test_layouts(tau);
    test_low(tau[GPT]);
    test_refused();
    test_broken();
#ifdef HAVE_CUDA
    const char *why = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (!why) test_cuda(tau[GPT]);
#endif
    return check_report();
}
