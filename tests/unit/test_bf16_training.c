/* Training in bf16: the same on every layout and as in f32, but for rounding; in f16 on some.
 *
 * Would catch: a copy of a weight that is not refreshed (after a step, a load, a write) or is
 * another shard's, a gradient or a loss added up in bf16, a message that takes bf16 for f32, a
 * product that is computed otherwise where the CPU has no bf16.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "runtime/cpu/gemm.h"

#include <unistd.h>

enum { STEPS = 5, GLOBAL_BATCH = 16, LONG_STEPS = 100 };
static const double LEARNING_RATE = 2e-3;

/* A layout changes where values are rounded to bf16 (parts of a sum before they are sent, other
 * micro-batches, other fused programs), each time by up to 2^-9 of a value. Seen over the layouts
 * below: losses 7e-5 apart, gradient norms 3e-3, gradients of the first step 0.015 of a tensor's
 * norm. Weights come out less close, 0.08 for a bias that began at zero: AdamW divides a gradient
 * by its own size, so that an element whose gradient is rounding moves by up to the learning rate
 * either way. A missing message or a stale copy gives differences of order 1. */
static const double LOSS_TOLERANCE = 5e-4, NORM_TOLERANCE = 0.02, GRADIENT_TOLERANCE = 0.05;
static const double WEIGHT_TOLERANCE = 0.2;
static struct { double loss, norm, gradient, weight; } worst;

#define SIZES                                                                                      \
    {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"layers", "4"}, {  \
        "kv_heads", "4"                                                                            \
    }

typedef struct Variant {
    const char *name, *path;
    ModelSetting settings[12];
    int n_settings, n_layouts;
} Variant;

static const Variant VARIANTS[] = {
    {"gpt", "models/gpt.lua", {SIZES, {"vocab", "61"}, {"ffn", "70"}, {"dropout", "0.1"}}, 9, 14},
    {"llama", "models/llama.lua", {SIZES, {"vocab", "64"}, {"ffn", "88"}, {"tied", "true"}}, 9, 14},
    {"gpt muon",
     "models/gpt.lua",
     {SIZES, {"vocab", "64"}, {"optimizer", "muon"}, {"tied", "false"}},
     9,
     3},
    {"gpt sgd",
     "models/gpt.lua",
     {SIZES, {"vocab", "64"}, {"optimizer", "sgd"}, {"momentum", "0.9"}, {"tied", "false"}},
     10,
     3},
};

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
static const Layout LAYOUTS[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},       {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},
    {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},        {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 4, 1, "1f1b", false, NULL, 0},       {1, 4, 1, 2, 1, "gpipe", false, NULL, 0},
    {1, 1, 2, 4, 1, "1f1b", false, NULL, 0},       {1, 1, 2, 2, 2, "interleaved", false, NULL, 0},
    {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},       {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},        {1, 2, 2, 2, 1, "gpipe", false, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0}, {4, 2, 1, 2, 1, "1f1b", false, NULL, 0},
};

static double note(double *most, double error) {
    if (!(error <= *most)) *most = error;
    return error;
}

static bool plan(Run *run, const Variant *variant, const Layout *layout, DType precision,
                 bool text) {
    run_precision = precision;
    return run_plan(run, variant->path, variant->settings, variant->n_settings, layout,
                    GLOBAL_BATCH, text) &&
           run_start(run);
}

static bool train(Run *run) {
    return run_steps_keeping(run, STEPS, LEARNING_RATE);
}

static bool is_key_bias(const char *name) {
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".bk") == 0;
}

static void compare_parameters(Run *run, Run *one) {
    CHECK(run->n_params == one->n_params, "%d parameters, on one rank %d", run->n_params,
          one->n_params);
    for (int i = 0; i < run->n_params; i++) {
        int k = 0;
        while (k < one->n_params && strcmp(one->names[k], run->names[i]) != 0) k++;
        if (k == one->n_params || is_key_bias(run->names[i])) continue;
        int64_t n = type_elements(&run->types[i]);
        double error = relative_distance(run_weight(run, i), run_weight(one, k), n);
        CHECK(note(&worst.weight, error) < WEIGHT_TOLERANCE, "'%s' differs by %.3g of its norm",
              run->names[i], error);
        if (!run->gradients[i] || !one->gradients[k]) continue;
        error = relative_distance(run->gradients[i], one->gradients[k], n);
        CHECK(note(&worst.gradient, error) < GRADIENT_TOLERANCE,
              "gradient of '%s' differs by %.3g of its norm", run->names[i], error);
    }
}

static void compare_runs(Run *run, Run *one) {
    for (int step = 0; step < STEPS; step++) {
        double error = fabs(run->losses[step] - one->losses[step]) / one->losses[step];
        CHECK(note(&worst.loss, error) < LOSS_TOLERANCE,
              "loss of step %d is %.6f, on one rank %.6f", step + 1, run->losses[step],
              one->losses[step]);
        error = fabs(run->norms[step] - one->norms[step]) / one->norms[step];
        CHECK(note(&worst.norm, error) < NORM_TOLERANCE,
              "gradient norm of step %d is %.6f, on one rank %.6f", step + 1, run->norms[step],
              one->norms[step]);
    }
    compare_parameters(run, one);
}

static void check_layout(const Variant *variant, const Layout *layout, DType precision, Run *one) {
    Run run;
    char name[100];
    snprintf(name, sizeof(name), "%s %s: t=%d d=%d p=%d %s%s zero %d, micro-batch %d",
             dtype_name(precision), variant->name, layout->t, layout->d, layout->p,
             layout->schedule, layout->sequence_parallel ? " seq" : "", run_zero,
             layout->micro_batch);
    check_begin(name);
    bool ran = plan(&run, variant, layout, precision, true) && train(&run);
    CHECK(ran, "%s", diag_text(run.diag));
    if (ran) compare_runs(&run, one);
    run_close(&run);
}

/* Every `step`th layout. */
static void check_variant(const Variant *variant, DType precision, int step) {
    Run one;
    check_begin(variant->name);
    bool done = plan(&one, variant, &ALONE, precision, false) && train(&one);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    for (int l = 0; done && l < variant->n_layouts; l += step) {
        check_layout(variant, &LAYOUTS[l], precision, &one);
    }
    for (run_zero = 1; run_zero < N_ZERO_STAGES; run_zero++) {
        for (int l = 0; done && l < variant->n_layouts; l += step) {
            if (LAYOUTS[l].d > 1) check_layout(variant, &LAYOUTS[l], precision, &one);
        }
    }
    run_zero = 0;
    check_end();
    run_close(&one);
}

/* Products widened block by block, as on a CPU without bf16. */
static void check_widened(void) {
    const Layout layout = {2, 1, 2, 4, 1, "1f1b", false, NULL, 0};
    Run one, run;
    bool done = plan(&one, &VARIANTS[0], &layout, DTYPE_BF16, false) && train(&one);
    gemm_refuse_native_low(true);
    done &= plan(&run, &VARIANTS[0], &layout, DTYPE_BF16, false) && train(&run);
    gemm_refuse_native_low(false);
    check_begin("without bf16 in the matrix library");
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(run.diag));
    if (done) compare_runs(&run, &one);
    check_end();
    run_close(&one);
    run_close(&run);
}

static double mean(const double *values, int first, int end) {
    double sum = 0;
    for (int i = first; i < end; i++) sum += values[i] / (end - first);
    return sum;
}

/* The same batch again and again, so that there is something to learn. */
static bool train_long(Run *run) {
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    for (int step = 0; step < LONG_STEPS; step++) {
        StepResult result;
        fill_batch(run->plan, step % 4, tokens, labels);
        if (!engine_step(run->engine, step + 1, tokens, labels, LEARNING_RATE, &result,
                         run->diag)) {
            return false;
        }
        run->losses[step] = result.loss;
    }
    return true;
}

/* 100 steps of GPT: the loss falls as in f32. */
static void check_against_f32(void) {
    const Layout layout = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};
    Run low, wide;
    bool done = plan(&low, &VARIANTS[0], &layout, DTYPE_BF16, false) && train_long(&low);
    done &= plan(&wide, &VARIANTS[0], &layout, DTYPE_F32, false) && train_long(&wide);
    check_begin("100 steps in bf16 end where f32 ends");
    CHECK(done, "%s%s", diag_text(low.diag), diag_text(wide.diag));
    if (done) {
        double low_end = mean(low.losses, 90, 100), wide_end = mean(wide.losses, 90, 100);
        double most = 0;
        for (int i = 0; i < LONG_STEPS; i++) {
            note(&most, fabs(low.losses[i] - wide.losses[i]) / wide.losses[i]);
        }
        printf("f32 %.4f, bf16 %.4f; a step's loss differs by %.2g at most\n", wide_end, low_end,
               most);
        CHECK(wide_end < 0.9 * wide.losses[0], "f32 did not learn: %g, at first %g", wide_end,
              wide.losses[0]);
        CHECK(fabs(low_end - wide_end) < 0.005 * wide_end, "mean of the last ten losses %g, f32 %g",
              low_end, wide_end);
        CHECK(most < 0.02, "a step's loss differs by %g", most);
        CHECK(low.plan->stages[0].arena_bytes < wide.plan->stages[0].arena_bytes,
              "bf16 takes %lld bytes, f32 %lld", (long long)low.plan->stages[0].arena_bytes,
              (long long)wide.plan->stages[0].arena_bytes);
    }
    check_end();
    run_close(&low);
    run_close(&wide);
}

/* Products must see what a load or a write gave the parameters: the loss says so. */
static void check_refresh(int zero, DType precision) {
    const Layout layout = {2, zero ? 2 : 1, 2, 2, 1, "1f1b", false, NULL, 0};
    char path[64];
    Run trained, fresh;
    double want, before, loaded, written;
    snprintf(path, sizeof(path), "/tmp/perilune-bf16-%d.safetensors", (int)getpid());
    run_zero = zero;
    check_begin(zero > ZERO_OPTIMIZER ? "copies follow where no rank has a whole one"
                : zero ? "copies follow a load and a write, where no rank has the whole weight"
                       : "copies follow a load and a write");
    bool done = plan(&trained, &VARIANTS[1], &layout, precision, false) &&
                run_steps(&trained, 3, LEARNING_RATE) &&
                plan(&fresh, &VARIANTS[1], &layout, precision, false);
    CHECK(done, "%s%s", diag_text(trained.diag), diag_text(fresh.diag));
    if (done) {
        size_t n = (size_t)(fresh.plan->global_batch * fresh.plan->seq);
        int32_t *tokens = ARENA_ARRAY(fresh.arena, int32_t, n);
        int32_t *labels = ARENA_ARRAY(fresh.arena, int32_t, n);
        fill_batch(fresh.plan, 9, tokens, labels);
        engine_evaluate(trained.engine, tokens, labels, &want, trained.diag);
        engine_evaluate(fresh.engine, tokens, labels, &before, fresh.diag);
        CHECK(before != want, "three steps changed nothing");
        CHECK(engine_save(trained.engine, path, trained.diag), "%s", diag_text(trained.diag));
        CHECK(engine_load(fresh.engine, path, fresh.diag), "%s", diag_text(fresh.diag));
        engine_evaluate(fresh.engine, tokens, labels, &loaded, fresh.diag);
        CHECK(loaded == want, "after loading the loss is %.9g, not %.9g", loaded, want);
        engine_init_parameters(fresh.engine);
        engine_evaluate(fresh.engine, tokens, labels, &loaded, fresh.diag);
        CHECK(loaded == before, "after initialising again it is %.9g, not %.9g", loaded, before);
        for (int i = 0; i < trained.n_params; i++) {
            engine_write_parameter(fresh.engine, trained.names[i], run_weight(&trained, i));
        }
        engine_evaluate(fresh.engine, tokens, labels, &written, fresh.diag);
        CHECK(written == want, "after writing the loss is %.9g, not %.9g", written, want);
        unlink(path);
    }
    check_end();
    run_close(&trained);
    run_close(&fresh);
    run_zero = 0;
}

/* A weight that is not finite makes activations that are not: the first is named. */
static void check_nonfinite(void) {
    Run run;
    size_t n;
    check_begin("a value that is not finite is found among bf16 ones");
    bool done = plan(&run, &VARIANTS[2], &ALONE, DTYPE_BF16, false);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        n = (size_t)(run.plan->global_batch * run.plan->seq);
        int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, n);
        StepResult result;
        /* Finite in f32 and bf16; the product overflows. */
        int i = 0;
        while (!strstr(run.names[i], "mlp.w1")) i++;
        float *huge = run_weight(&run, i);
        for (int64_t k = 0; k < type_elements(&run.types[i]); k++) huge[k] = 3e38f;
        engine_write_parameter(run.engine, run.names[i], huge);
        CHECK(!engine_step(run.engine, 1, tokens, tokens, LEARNING_RATE, &result, run.diag),
              "the step went on");
        CHECK(strstr(diag_text(run.diag), "result of matmul of block"), "it says: %s",
              diag_text(run.diag));
    }
    check_end();
    run_close(&run);
}

int main(void) {
    for (size_t v = 0; v < sizeof(VARIANTS) / sizeof(VARIANTS[0]); v++) {
        check_variant(&VARIANTS[v], DTYPE_BF16, LAYOUT_STEP);
    }
    check_variant(&VARIANTS[1], DTYPE_F16, 6);
    printf("largest differences: loss %.2g, gradient norm %.2g, gradient %.2g, weight %.2g\n",
           worst.loss, worst.norm, worst.gradient, worst.weight);
    check_widened();
    if (VARIANT_STEP == 1) check_against_f32();
    check_refresh(0, DTYPE_BF16);
    check_refresh(1, DTYPE_BF16);
    check_refresh(1, DTYPE_F16);
    check_refresh(3, DTYPE_BF16);
    check_refresh(3, DTYPE_F16);
    check_nonfinite();
    return check_report();
}
