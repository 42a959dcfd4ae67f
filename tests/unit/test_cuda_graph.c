/* Captured steps, proved and run without a GPU: engines of CUDA on the fake (fake_cuda.h), all
 * ranks of a plan on one device, over the layouts of test_equivalence.
 *
 * For each layout: what is captured is what was emitted, node for node; every stream is joined and
 * whatever touches the same memory is ordered (dag_check.h); a few steps, each in another random
 * order that the graph allows, give the losses and weights of the CPU backend, which runs the same
 * plan. Some layouts also run in pieces and without graphs: the same bits. In one, each wait is
 * left out in turn: whatever then has no order must be found. In two, every operation's accesses
 * are compared with what it does.
 *
 * f32 differs from the CPU only where sums have another order (train_compare.h: losses to 1e-5,
 * weights to 1e-4 of their norm). bf16 rounds intermediate results at other places: losses to 2e-3.
 *
 * With AddressSanitizer, which makes all this ten times slower, every tenth layout is run.
 */
#include "tests/unit/equivalence_layouts.h"
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "runtime/engine_internal.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/generated_run.h"

#ifdef __SANITIZE_ADDRESS__
enum { EACH = 10 };
#else
enum { EACH = 1 };
#endif

enum { STEPS = 2, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t; /* what its heads allow */
    DType precision;
    ModelSetting settings[16]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "8"}
#define COMMON SIZES, {"layers", "5"}
/* clang-format on */
static const Variant GPT = {
    "gpt", "models/gpt.lua", 4, DTYPE_F32, {COMMON, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant DEEP = {"gpt of 8 blocks",
                             "models/gpt.lua",
                             4,
                             DTYPE_F32,
                             {SIZES, {"layers", "8"}, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant LLAMA = {"llama gqa",
                              "models/llama.lua",
                              2,
                              DTYPE_F32,
                              {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}};
static const Variant OTHERS[] = {
    {"gpt dropout", "models/gpt.lua", 4, DTYPE_F32, {COMMON, {"vocab", "64"}, {"dropout", "0.1"}}},
    {"gpt untied sgd",
     "models/gpt.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "50"}, {"tied", "false"}, {"optimizer", "sgd"}, {"momentum", "0.9"}}},
    {"llama tied",
     "models/llama.lua",
     4,
     DTYPE_F32,
     {COMMON, {"vocab", "64"}, {"kv_heads", "4"}, {"tied", "true"}, {"ffn", "64"}}},
    {"gpt bf16", "models/gpt.lua", 4, DTYPE_BF16, {COMMON, {"vocab", "61"}, {"ffn", "64"}}},
    {"llama bf16",
     "models/llama.lua",
     2,
     DTYPE_BF16,
     {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
};
static const Layout OTHER_LAYOUTS[] = {
    {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 2, 4, 1, "1f1b", false, NULL, 0},
    {2, 2, 2, 4, 1, "1f1b", true, NULL, 0},
};

static int n_layouts_run;

static bool plan(Run *run, const Variant *variant, const Layout *layout) {
    int count = 0;
    while (variant->settings[count].key) count++;
    return run_plan_for(run, variant->path, variant->settings, count, layout, GLOBAL_BATCH, false,
                        true, variant->precision);
}

static bool start_on_cpu(Run *run, const Variant *variant, const Layout *layout) {
    return plan(run, variant, layout) && run_start(run);
}

typedef enum Mode { GRAPH, SEGMENTED, EAGER } Mode;

static bool start_on_fake(Run *run, const Variant *variant, const Layout *layout, Mode mode) {
    EngineOptions options = {.device = DEVICE_CUDA,
                             .virtual_ranks = true,
                             .no_graph = mode == EAGER,
                             .segmented = mode == SEGMENTED};
    cuda_api_replace(
        fake_cuda_create(&(FakeOptions){.poison = true, .seed = 1 + (uint64_t)n_layouts_run}));
    return plan(run, variant, layout) && run_start_on(run, &options);
}

/* Closes the engine, then the fake, which must have nothing to say. */
static void close_on_fake(Run *run) {
    run_close(run);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%d defects: %s", fake_cuda_n_defects(), fake_cuda_defect(0));
    cuda_api_replace(NULL);
    fake_cuda_destroy();
}

static void prove(const Run *run) {
    char why[512] = "";
    CHECK(fake_cuda_n_graphs() == 3, "%d graphs", fake_cuda_n_graphs());
    for (int g = 0; g < fake_cuda_n_graphs(); g++) {
        CHECK(dag_check(fake_cuda_graph(g), why, sizeof(why)), "graph %d: %s", g, why);
    }
    CHECK(fake_cuda_graph(0)->n_nodes == engine_call_count(run->engine),
          "%d nodes, %lld were emitted", fake_cuda_graph(0)->n_nodes,
          (long long)engine_call_count(run->engine));
}

static void compare_bits(Run *run, const Run *other, float *const *weights) {
    for (int step = 0; step < STEPS; step++) {
        CHECK(run->losses[step] == other->losses[step], "loss of step %d", step + 1);
    }
    for (int i = 0; i < run->n_params; i++) {
        size_t bytes = (size_t)type_elements(&run->types[i]) * sizeof(float);
        const float *weight = run_weight(run, i);
        CHECK(weight && memcmp(weight, weights[i], bytes) == 0, "'%s' differs", run->names[i]);
    }
}

/* The same in pieces and command by command. `run` is closed; its arena is not. */
static void check_modes(const Variant *variant, const Layout *layout, const Run *run,
                        float *const *weights) {
    for (Mode mode = SEGMENTED; mode <= EAGER; mode++) {
        Run other;
        bool done =
            start_on_fake(&other, variant, layout, mode) && run_steps(&other, STEPS, LEARNING_RATE);
        CHECK(done, "%s: %s", mode == EAGER ? "eager" : "segmented", diag_text(other.diag));
        if (done) {
            CHECK((fake_cuda_n_graphs() > 3) == (mode == SEGMENTED), "%d graphs",
                  fake_cuda_n_graphs());
            compare_bits(&other, run, weights);
        }
        close_on_fake(&other);
    }
}

static void compare_forward(Run *run, Run *cpu) {
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int64_t rows = engine_forward_batch(run->engine) * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    float *ours = ARENA_ARRAY(run->arena, float, rows * run->plan->vocab);
    float *theirs = ARENA_ARRAY(run->arena, float, rows * run->plan->vocab);
    double loss = 0, expected = 0;
    fill_batch(run->plan, 99, tokens, labels);
    bool done = engine_evaluate(run->engine, tokens, labels, &loss, run->diag) &&
                engine_evaluate(cpu->engine, tokens, labels, &expected, cpu->diag) &&
                engine_logits(run->engine, tokens, ours, run->diag) &&
                engine_logits(cpu->engine, tokens, theirs, cpu->diag);
    CHECK(done, "forward: %s%s", diag_text(run->diag), diag_text(cpu->diag));
    if (!done) return;
    double limit = run->plan->precision == DTYPE_F32 ? 1e-5 : 2e-3;
    CHECK(fabs(loss - expected) / expected < limit, "evaluation: %.8f, on the CPU %.8f", loss,
          expected);
    double error = relative_distance(ours, theirs, rows * run->plan->vocab);
    CHECK(error < (run->plan->precision == DTYPE_F32 ? 1e-4 : 5e-2), "logits differ by %.3g",
          error);
}

static void compare_with_cpu(Run *run, Run *cpu) {
    if (run->plan->precision == DTYPE_F32) {
        compare_losses(run, cpu, STEPS);
        compare_weights(run, cpu);
    }
    for (int step = 0; step < STEPS; step++) {
        double error = fabs(run->losses[step] - cpu->losses[step]) / cpu->losses[step];
        CHECK(error < 2e-3, "loss of step %d is %.8f, on the CPU %.8f", step + 1, run->losses[step],
              cpu->losses[step]);
    }
    compare_forward(run, cpu);
}

static void check_layout(const Variant *variant, const Layout *layout) {
    char name[160];
    Run run = {0}, cpu;
    float *weights[TF_MAX_PARAMS];
    Arena *kept = arena_create();
    bool modes = n_layouts_run % 6 == 0;
    check_begin(layout_name(variant->name, layout, name, sizeof(name)));
    if (!start_on_cpu(&cpu, variant, layout) || !run_steps(&cpu, STEPS, LEARNING_RATE)) {
        CHECK(false, "on the CPU: %s", diag_text(cpu.diag));
        run_close(&cpu);
        return;
    }
    bool done = start_on_fake(&run, variant, layout, GRAPH);
    if (done) prove(&run);
    done = done && run_steps(&run, STEPS, LEARNING_RATE);
    CHECK(done, "%s", diag_text(run.diag));
    for (int i = 0; done && i < run.n_params; i++) {
        int64_t n = type_elements(&run.types[i]);
        weights[i] = ARENA_ARRAY(kept, float, n);
        CHECK(engine_read_parameter(run.engine, run.names[i], weights[i]), "no parameter %d", i);
    }
    if (done) compare_with_cpu(&run, &cpu);
    Run results = run; /* the losses; the rest goes */
    close_on_fake(&run);
    n_layouts_run++;
    if (done && modes) check_modes(variant, layout, &results, weights);
    run_close(&cpu);
    arena_destroy(kept);
    check_end();
}

static void check_layouts(const Variant *variant, const Layout *layouts, int count) {
    static int n;
    for (int l = 0; l < count; l++) {
        if (layouts[l].t > variant->most_t) continue;
        if (n++ % EACH == 0) check_layout(variant, &layouts[l]);
    }
}

/* Does the CPU have all kernels in this precision? */
static bool cpu_has(const Variant *variant) {
    Run run;
    bool there = start_on_cpu(&run, variant, &LAYOUTS[0]);
    if (!there) printf("skip %s: %s\n", variant->name, diag_text(run.diag));
    run_close(&run);
    return there;
}

int main(void) {
    const char *missing = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (missing) {
        printf("skip captured steps: %s\n", missing);
        return 0;
    }
    /* No cache of kernels: the fake's are of no use to others. */
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    check_layouts(&GPT, LAYOUTS, N_LAYOUTS);
    check_layouts(&LLAMA, LAYOUTS, N_LAYOUTS);
    check_layouts(&DEEP, DEEP_LAYOUTS, N_DEEP_LAYOUTS);
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cpu_has(&OTHERS[i])) continue;
        check_layouts(&OTHERS[i], OTHER_LAYOUTS, sizeof(OTHER_LAYOUTS) / sizeof(OTHER_LAYOUTS[0]));
    }
    printf("%d layouts\n", n_layouts_run);
    compare_print_worst();
    return check_report();
}
#endif
