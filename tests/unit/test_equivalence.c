/* Training does not depend on the layout: models under many meshes, schedules and options against
 * one rank. Catches a wrong or missing collective, a gradient scaled or counted twice, a mask or an
 * initial weight that knows its shard, a frame used too early, a block dropped.
 *
 * fp32; five AdamW steps. Losses agree to 1e-5 relative, weights to 1e-4 of each tensor's norm:
 * what sums in another order cost. A key bias (attn.bk) has a gradient of zero in exact arithmetic,
 * so AdamW turns its rounding into steps of the size of the learning rate: its gradient is compared
 * with zero instead.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <time.h>

enum { STEPS = 5, GLOBAL_BATCH = 16, LARGEST_LAYERS = 5 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[16]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define COMMON \
    {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, \
    {"seq", "16"}, {"layers", "5"}
/* clang-format on */
static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", {COMMON, {"vocab", "61"}, {"ffn", "64"}}},
    {"gpt dropout", "models/gpt.lua", {COMMON, {"vocab", "64"}, {"dropout", "0.1"}}},
    {"gpt untied rmsnorm",
     "models/gpt.lua",
     {COMMON, {"vocab", "50"}, {"tied", "false"}, {"norm", "rmsnorm"}, {"ffn", "70"}}},
    {"gpt sgd relu",
     "models/gpt.lua",
     {COMMON, {"vocab", "64"}, {"optimizer", "sgd"}, {"momentum", "0.9"}, {"act", "relu"}}},
    {"llama gqa", "models/llama.lua", {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"llama dropout",
     "models/llama.lua",
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"dropout", "0.1"}, {"ffn", "88"}}},
    {"llama tied",
     "models/llama.lua",
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"tied", "true"}, {"ffn", "64"}}},
};
enum { N_VARIANTS = sizeof(VARIANTS) / sizeof(VARIANTS[0]) };

static const int UNEVEN_2[] = {1, 4}, UNEVEN_4[] = {1, 2, 1, 1};
static const Layout LAYOUTS[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},       {1, 1, 1, 2, 1, "gpipe", false, NULL, 0},
    {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},       {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {4, 1, 1, 16, 1, "1f1b", false, NULL, 0},      {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 8, 1, "1f1b", false, NULL, 0},       {1, 2, 1, 1, 1, "gpipe", false, NULL, 0},
    {1, 4, 1, 2, 1, "1f1b", false, NULL, 0},       {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 4, 1, "gpipe", false, NULL, 0},      {1, 1, 2, 2, 2, "interleaved", false, NULL, 0},
    {1, 1, 2, 4, 1, "1f1b", false, UNEVEN_2, 2},   {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 4, 4, 1, "gpipe", false, UNEVEN_4, 4},  {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},        {2, 1, 2, 2, 2, "interleaved", true, NULL, 0},
    {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},       {1, 2, 4, 2, 1, "1f1b", false, NULL, 0},
    {2, 1, 4, 2, 1, "gpipe", true, NULL, 0},       {2, 2, 2, 2, 1, "1f1b", false, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0}, {4, 1, 2, 2, 1, "1f1b", true, NULL, 0},
    {1, 4, 2, 1, 1, "gpipe", false, NULL, 0},      {4, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {2, 4, 1, 2, 1, "1f1b", true, NULL, 0},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static bool is_key_bias(const char *name) {
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".bk") == 0;
}

/* What a variant's grouped heads do not allow: 2 key/value heads over t=4. */
static bool is_refused(const Variant *variant, const Layout *layout) {
    return strcmp(variant->name, "llama gqa") == 0 && layout->t == 4;
}

static int count_settings(const Variant *variant) {
    int count = 0;
    while (variant->settings[count].key) count++;
    return count;
}

static bool train(Run *run, const Variant *variant, const Layout *layout) {
    return run_plan(run, variant->path, variant->settings, count_settings(variant), layout,
                    GLOBAL_BATCH, true) &&
           run_start(run) && run_steps(run, STEPS, LEARNING_RATE);
}

static void compare_losses(const Run *run, const Run *one) {
    for (int step = 0; step < STEPS; step++) {
        double error = fabs(run->losses[step] - one->losses[step]) / one->losses[step];
        CHECK(error < 1e-5, "loss of step %d is %.8f, on one rank %.8f", step + 1,
              run->losses[step], one->losses[step]);
        error = fabs(run->norms[step] - one->norms[step]) / one->norms[step];
        CHECK(error < 1e-4, "gradient norm of step %d is %.8f, on one rank %.8f", step + 1,
              run->norms[step], one->norms[step]);
    }
}

static void compare_weights(Run *run, Run *one) {
    CHECK(run->n_params == one->n_params, "%d parameters, on one rank %d", run->n_params,
          one->n_params);
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        const float *theirs = run_weight(one, i);
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        if (is_key_bias(one->names[i])) {
            CHECK(engine_read_gradient(run->engine, one->names[i], ours), "no gradient of '%s'",
                  one->names[i]);
            CHECK(largest(ours, n) < 1e-6, "gradient of '%s' is %g, not zero", one->names[i],
                  largest(ours, n));
            continue;
        }
        double error = relative_distance(ours, theirs, n);
        CHECK(error < 1e-4, "'%s' differs by %.3g of its norm", one->names[i], error);
    }
}

static void check_refusal(const Variant *variant, const Layout *layout) {
    Run run;
    bool planned = run_plan(&run, variant->path, variant->settings, count_settings(variant), layout,
                            GLOBAL_BATCH, false);
    CHECK(!planned && strstr(diag_text(run.diag), "kv_heads"), "not refused by its axis: %s",
          diag_text(run.diag));
    run_close(&run);
}

static const char *layout_name(const Variant *variant, const Layout *l, char *text, size_t size) {
    snprintf(text, size, "%s: t=%d d=%d p=%d %s%s%s, micro-batch %d%s", variant->name, l->t, l->d,
             l->p, l->schedule, l->n_chunks > 1 ? " x2" : "", l->sequence_parallel ? " seq" : "",
             l->micro_batch, l->split ? ", uneven" : "");
    return text;
}

static void check_layout(const Variant *variant, const Layout *layout, Run *one) {
    char name[160];
    Run run;
    check_begin(layout_name(variant, layout, name, sizeof(name)));
    if (is_refused(variant, layout)) {
        check_refusal(variant, layout);
        check_end();
        return;
    }
    bool done = train(&run, variant, layout);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_losses(&run, one);
        compare_weights(&run, one);
    }
    run_close(&run);
    check_end();
}

/* The same plan twice: the same bits. */
static void check_repeats(const Variant *variant) {
    const Layout layout = {2, 1, 2, 2, 1, "1f1b", true, NULL, 0};
    Run first, second;
    check_begin("the same plan run twice gives the same bits");
    bool done = train(&first, variant, &layout);
    done &= train(&second, variant, &layout);
    CHECK(done, "%s", diag_text(first.diag));
    for (int step = 0; done && step < STEPS; step++) {
        CHECK(first.losses[step] == second.losses[step], "step %d", step + 1);
    }
    for (int i = 0; done && i < first.n_params; i++) {
        size_t bytes = (size_t)type_elements(&first.types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(&first, i), run_weight(&second, i), bytes) == 0, "'%s' differs",
              first.names[i]);
    }
    run_close(&first);
    run_close(&second);
}

/* TEST_LONG: random layouts of random variants from a seed (TEST_SEED, or the clock), printed. */
static void check_random(int count) {
    const char *given = getenv("TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("random layouts: TEST_SEED=%u\n", seed);
    Run one[N_VARIANTS] = {{0}};
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    static const int DEGREES[] = {1, 2, 4};
    static const char *const SCHEDULES[] = {"gpipe", "1f1b", "interleaved"};
    for (int tried = 0; tried < count;) {
        int v = rand_r(&seed) % N_VARIANTS;
        Layout l = {.t = DEGREES[rand_r(&seed) % 3], .d = DEGREES[rand_r(&seed) % 3]};
        l.p = DEGREES[rand_r(&seed) % 3];
        l.micro_batch = 1 << rand_r(&seed) % 5;
        l.schedule = SCHEDULES[rand_r(&seed) % 3];
        l.n_chunks = strcmp(l.schedule, "interleaved") == 0 ? 2 : 1;
        l.sequence_parallel = rand_r(&seed) % 2;
        int n_micro = GLOBAL_BATCH / (l.micro_batch * l.d);
        bool fits = l.t * l.d * l.p <= 16 && n_micro > 0 && l.p * l.n_chunks <= LARGEST_LAYERS;
        if (l.n_chunks > 1 && (l.p == 1 || n_micro % l.p != 0)) fits = false;
        if (!fits) continue;
        tried++;
        if (!one[v].engine && !train(&one[v], &VARIANTS[v], &alone)) break;
        check_layout(&VARIANTS[v], &l, &one[v]);
    }
    for (int v = 0; v < N_VARIANTS; v++) {
        if (one[v].arena) run_close(&one[v]);
    }
}

int main(void) {
    const Layout alone = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    for (int v = 0; v < N_VARIANTS; v++) {
        Run one;
        if (!train(&one, &VARIANTS[v], &alone)) {
            check_begin(VARIANTS[v].name);
            CHECK(false, "one rank: %s", diag_text(one.diag));
        } else {
            for (int l = 0; l < N_LAYOUTS; l++) check_layout(&VARIANTS[v], &LAYOUTS[l], &one);
        }
        run_close(&one);
    }
    check_repeats(&VARIANTS[1]);
    if (getenv("TEST_LONG")) check_random(300);
    return check_report();
}
