/* Engines of CUDA on the fake (fake_cuda.h), for tests: all ranks of a plan on one device,
 * captured, proved and run without a GPU, against the CPU backend with the same plan.
 *
 * For each layout: what is captured is what was emitted, node for node; every stream is joined and
 * whatever touches the same memory is ordered (dag_check.h); a few steps, each in another random
 * order that the graph allows, give the losses and weights of the CPU backend. Some layouts also
 * run in pieces and without graphs: the same bits.
 *
 * f32 differs from the CPU only where sums have another order (train_compare.h: losses to 1e-5,
 * weights to 1e-4 of their norm). bf16 rounds intermediate results at other places: losses to 2e-3.
 *
 * The emulator is slow: without TEST_LONG every third layout is run, and with AddressSanitizer,
 * which makes all this ten times slower, every sixteenth.
 */
#ifndef TESTS_UNIT_CUDA_GRAPH_H
#define TESTS_UNIT_CUDA_GRAPH_H

#include "runtime/cuda/driver/device.h"
#include "runtime/engine_internal.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/generated_run.h"
#include "tests/unit/equivalence_layouts.h"
#include "tests/unit/train_compare.h"

#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
enum { EACH = 16 };
#else
enum { EACH = 1 };
#endif

enum { STEPS = 2 };
static const double LEARNING_RATE = 2e-3;

typedef struct Variant {
    const char *name, *path;
    int most_t; /* what its heads allow */
    DType precision;
    ModelSetting settings[16]; /* up to the first without a key */
} Variant;

/* clang-format off */
#define SIZES_OF(heads) {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", heads}, {"seq", "8"}
#define SIZES SIZES_OF("4")
#define COMMON SIZES, {"layers", "5"}
/* clang-format on */
static LossScaling f16_scaling = {1024, 1}; /* of plans made from now on in f16 */
static int fake_cudnn_version;              /* of fakes made from now on; 0: none */
static bool fake_own_products;              /* of engines on them; the fake has no cuBLASLt then */
static bool short_batches;                  /* see batch_of */
static int n_layouts_run, half;             /* half: see run_in_halves */
static bool graph_alone;                    /* no layout runs in other modes */

/* Enough micro-batches for a pipeline to fill up and go on; with short_batches: to fill up. */
static inline int64_t batch_of(const Layout *layout) {
    int n_micro = layout->p > 1 ? layout->p + !short_batches : 1;
    int64_t least = (int64_t)layout->micro_batch * layout->d * n_micro;
    return least <= 8 ? 8 : 16;
}

static inline bool plan(Run *run, const Variant *variant, const Layout *layout) {
    int count = 0;
    while (variant->settings[count].key) count++;
    run_loss_scaling = variant->precision == DTYPE_F16 ? f16_scaling : (LossScaling){0};
    return run_plan_for(run, variant->path, variant->settings, count, layout, batch_of(layout),
                        false, true, variant->precision);
}

static inline bool start_on_cpu(Run *run, const Variant *variant, const Layout *layout) {
    EngineOptions options = {.n_threads = 1, .timeout_seconds = 60};
    return plan(run, variant, layout) && run_start_on(run, &options);
}

typedef enum Mode { GRAPH, SEGMENTED, EAGER } Mode;

static inline bool start_on_fake(Run *run, const Variant *variant, const Layout *layout,
                                 Mode mode) {
    EngineOptions options = {.device = DEVICE_CUDA,
                             .virtual_ranks = true,
                             .no_graph = mode == EAGER,
                             .segmented = mode == SEGMENTED,
                             .own_products = fake_own_products};
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true,
                                                     .seed = 1 + (uint64_t)n_layouts_run,
                                                     .cudnn_version = fake_cudnn_version,
                                                     .no_blas = fake_own_products}));
    return plan(run, variant, layout) && run_start_on(run, &options);
}

/* Closes the engine, then the fake, which must have nothing to say. */
static inline void close_on_fake(Run *run) {
    run_close(run);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%d defects: %s", fake_cuda_n_defects(), fake_cuda_defect(0));
    cuda_api_replace(NULL);
    fake_cuda_destroy();
}

static inline void prove(const Run *run) {
    char why[512] = "";
    CHECK(fake_cuda_n_graphs() == 3, "%d graphs", fake_cuda_n_graphs());
    for (int g = 0; g < fake_cuda_n_graphs(); g++) {
        CHECK(dag_check(fake_cuda_graph(g), why, sizeof(why)), "graph %d: %s", g, why);
    }
    CHECK(fake_cuda_graph(0)->n_nodes == engine_call_count(run->engine),
          "%d nodes, %lld were emitted", fake_cuda_graph(0)->n_nodes,
          (long long)engine_call_count(run->engine));
    CHECK((engine_host_bytes(run->engine) > 0) == (run_offload + run_offload_activations > 0),
          "%lld bytes of the host's", (long long)engine_host_bytes(run->engine));
}

static inline void compare_bits(Run *run, const Run *other, float *const *weights) {
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
static inline void check_modes(const Variant *variant, const Layout *layout, const Run *run,
                               float *const *weights) {
    for (Mode mode = SEGMENTED; mode <= EAGER; mode++) {
        Run other;
        bool done =
            start_on_fake(&other, variant, layout, mode) && run_steps(&other, STEPS, LEARNING_RATE);
        CHECK(done, "%s: %s", mode == EAGER ? "eager" : "segmented", diag_text(other.diag));
        if (done) {
            CHECK(mode == EAGER ? fake_cuda_n_graphs() == 0 : fake_cuda_n_graphs() > 0, "%d graphs",
                  fake_cuda_n_graphs());
            compare_bits(&other, run, weights);
        }
        close_on_fake(&other);
    }
}

static inline void compare_forward(Run *run, Run *cpu) {
    int64_t batch = run->plan->global_batch;
    int64_t rows = engine_forward_batch(run->engine) * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, batch * plan_row(run->plan));
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, batch * run->plan->seq);
    float *ours = ARENA_ARRAY(run->arena, float, rows * run->plan->vocab);
    float *theirs = ARENA_ARRAY(run->arena, float, rows * run->plan->vocab);
    double loss = 0, expected = 0;
    int64_t texts, width, n_numbers = rows * run->plan->vocab;
    engine_vectors_shape(cpu->engine, &texts,
                         &width); /* fewer numbers than logits, in their place */
    bool logits = run_loss_parts == 1 && run_lanes == 1; /* else there are none */
    fill_batch(run->plan, 99, tokens, labels);
    bool done = engine_evaluate(run->engine, tokens, labels, &loss, run->diag) &&
                engine_evaluate(cpu->engine, tokens, labels, &expected, cpu->diag);
    if (texts > 0) {
        n_numbers = engine_forward_batch(run->engine) * texts * width;
        done = done && engine_vectors(run->engine, tokens, labels, ours, run->diag) &&
               engine_vectors(cpu->engine, tokens, labels, theirs, cpu->diag);
    } else {
        done = done && (!logits || (engine_logits(run->engine, tokens, ours, run->diag) &&
                                    engine_logits(cpu->engine, tokens, theirs, cpu->diag)));
    }
    CHECK(done, "forward: %s%s", diag_text(run->diag), diag_text(cpu->diag));
    if (!done) return;
    double limit = run->plan->precision == DTYPE_F32 ? 1e-5 : 2e-3;
    CHECK(fabs((loss - expected) / expected) < limit, "evaluation: %.8f, on the CPU %.8f", loss,
          expected);
    double error = logits ? relative_distance(ours, theirs, n_numbers) : 0;
    CHECK(error < (run->plan->precision == DTYPE_F32 ? 1e-4 : 5e-2), "logits differ by %.3g",
          error);
}

/* What labels score in a forward pass that reads no numbers: as such engines stage zeros. */
static inline void compare_token_scores(Run *run, Run *cpu) {
    int64_t rows = engine_forward_batch(run->engine) * run->plan->seq;
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, run->plan->global_batch * run->plan->seq);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, run->plan->global_batch * run->plan->seq);
    float *ours = ARENA_ARRAY(run->arena, float, rows),
          *theirs = ARENA_ARRAY(run->arena, float, rows);
    fill_batch(run->plan, 77, tokens, labels);
    bool done = engine_token_scores(run->engine, tokens, labels, ours, run->diag) &&
                engine_token_scores(cpu->engine, tokens, labels, theirs, cpu->diag);
    CHECK(done, "scores: %s%s", diag_text(run->diag), diag_text(cpu->diag));
    double error = done ? relative_distance(ours, theirs, rows) : 0;
    CHECK(error < (run->plan->precision == DTYPE_F32 ? 1e-5 : 2e-2), "scores differ by %.3g",
          error);
}

/* The device's are the CPU's; exchanged twice nothing has changed. */
static inline void compare_averages(Run *run, Run *cpu) {
    float *before = run_weight(run, 0);
    bool done = engine_swap_averages(run->engine, run->diag) &&
                engine_swap_averages(cpu->engine, cpu->diag);
    CHECK(done, "%s%s", diag_text(run->diag), diag_text(cpu->diag));
    if (done) compare_weights(run, cpu);
    done = done && engine_swap_averages(run->engine, run->diag);
    size_t bytes = (size_t)type_elements(&run->types[0]) * sizeof(float);
    CHECK(done && memcmp(before, run_weight(run, 0), bytes) == 0, "'%s' is another one",
          run->names[0]);
}

/* One more step of the same captured graph, whose norm may be nothing. */
static inline void check_left_out(Run *run) {
    float *before = run_weight(run, 0);
    size_t bytes = (size_t)type_elements(&run->types[0]) * sizeof(float);
    engine_set_most_norm(run->engine, 1e-9);
    CHECK(run_steps_from(run, STEPS, 1, LEARNING_RATE), "%s", diag_text(run->diag));
    CHECK(memcmp(before, run_weight(run, 0), bytes) == 0, "a step left out changes '%s'",
          run->names[0]);
    engine_set_most_norm(run->engine, (double)INFINITY);
    CHECK(run_steps_from(run, STEPS + 1, 1, LEARNING_RATE), "%s", diag_text(run->diag));
    CHECK(memcmp(before, run_weight(run, 0), bytes) != 0, "no step changes '%s'", run->names[0]);
}

static inline void compare_with_cpu(Run *run, Run *cpu) {
    if (run->plan->precision == DTYPE_F32) {
        compare_losses(run, cpu, STEPS);
        compare_weights(run, cpu);
    }
    for (int step = 0; step < STEPS; step++) {
        double error = fabs((run->losses[step] - cpu->losses[step]) / cpu->losses[step]);
        CHECK(error < 2e-3, "loss of step %d is %.8f, on the CPU %.8f", step + 1, run->losses[step],
              cpu->losses[step]);
        CHECK(run->scales[step] == cpu->scales[step], "the loss scale is %g, on the CPU %g",
              run->scales[step], cpu->scales[step]);
    }
    compare_forward(run, cpu);
    if (plan_ema_decay(run->plan) > 0) compare_averages(run, cpu);
    if (plan_reads_numbers(run->plan, TOKEN_OLD_SCORES)) compare_token_scores(run, cpu);
}

/* Some run in all modes: who hands the commands over differs, not what they compute, so of those in
 * 16 bits, whose products the emulator takes longest for, the second of each precision does. */
static inline bool runs_in_modes(const Variant *variant) {
    static int n_of[N_DTYPES];
    int n = n_of[variant->precision]++;
    if (graph_alone) return false;
    return variant->precision == DTYPE_F32 ? n % 8 == 0 : n == 1;
}

static inline void check_layout(const Variant *variant, const Layout *layout) {
    char name[160];
    Run run = {0}, cpu;
    float *weights[TF_MAX_PARAMS];
    Arena *kept = arena_create();
    bool modes = runs_in_modes(variant);
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
    if (done && plan_skips_spikes(run.plan)) check_left_out(&run);
    Run results = run; /* the losses; the rest goes */
    close_on_fake(&run);
    n_layouts_run++;
    if (done && modes) check_modes(variant, layout, &results, weights);
    run_close(&cpu);
    arena_destroy(kept);
    check_end();
}

static inline void check_layouts(const Variant *variant, const Layout *layouts, int count) {
    static int n;
    for (int l = 0; l < count; l++) {
        if (layouts[l].t > variant->most_t) continue;
        int each = EACH > 1 ? EACH : getenv("TEST_LONG") ? 1 : 3;
        if (n % each == 0 && n / each % 2 == half) check_layout(variant, &layouts[l]);
        n++;
    }
}

/* Why nothing can be run here; NULL: it can. */
static inline const char *fake_missing(void) {
    return emulate_missing() ? emulate_missing() : generated_host_missing();
}

/* Two processes, each with every other layout: the emulator runs on one core. */
static inline int run_in_halves(void (*run)(void)) {
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    half = child == 0;
    run();
    check_end();
    compare_print_worst();
    fflush(stdout);
    if (child == 0) _exit(check_report());
    bool fine = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    return check_report() || !fine;
}

/* No cache of kernels: the fake's are of no use to others. */
static inline void forget_cache(void) {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
}

#endif
