/* Loss scaling: a factor on the loss that the update takes out again.
 *
 * In f32 a power of two changes no bit, so every layout must give the bits that it gives without.
 * In f16 gradients that are too small or too large are what it is for. Would catch: a gradient that
 * bears the scale twice or not at all (clipping included), a stage or rank that skips a step alone,
 * an update in a skipped step, a scale that does not grow, fall or go into a checkpoint.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <unistd.h>

enum { STEPS = 7, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

static const ModelSetting TINY[] = {{"layers", "4"},  {"model", "32"},          {"heads", "4"},
                                    {"seq", "16"},    {"vocab", "61"},          {"dropout", "0.1"},
                                    {"tied", "true"}, {"optimizer.eps", "1e-6"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };

typedef struct Case {
    const char *name;
    Layout layout;
    int zero;
} Case;

static const Case CASES[] = {
    {"one rank", {1, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 0},
    {"t=2 d=2", {2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, 0},
    {"d=4, ZeRO", {1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, 1},
    {"p=4", {1, 1, 4, 4, 1, "gpipe", false, NULL, 0}, 0},
    {"p=2 in two chunks", {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, 0},
    {"t=2 d=2 p=2, ZeRO", {2, 2, 2, 2, 1, "1f1b", true, NULL, 0}, 1},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static bool start(Run *run, const Case *c, DType precision, LossScaling scaling) {
    run_zero = c->zero;
    run_precision = precision;
    run_loss_scaling = scaling;
    bool fine = run_plan(run, "models/gpt.lua", TINY, N_TINY, &c->layout, GLOBAL_BATCH, true);
    run_zero = 0;
    run_precision = DTYPE_F32;
    run_loss_scaling = (LossScaling){0};
    return fine && run_start(run);
}

static void compare_weights(Run *run, Run *other, double most, const char *where) {
    for (int i = 0; i < run->n_params; i++) {
        int64_t n = type_elements(&run->types[i]);
        const float *mine = run_weight(run, i);
        float *theirs = ARENA_ARRAY(run->arena, float, n);
        CHECK(engine_read_parameter(other->engine, run->names[i], theirs), "no %s", run->names[i]);
        double error = relative_distance(mine, theirs, n);
        CHECK(error <= most, "%s: %s is %g off", where, run->names[i], error);
    }
}

static void check_same_bits(const Case *c, LossScaling scaling, const double *scales) {
    char name[100];
    Run run, plain;
    snprintf(name, sizeof(name), "f32, %s: the loss times %g%s changes no bit", c->name,
             scaling.initial, scaling.interval ? ", growing," : "");
    check_begin(name);
    bool fine = start(&plain, c, DTYPE_F32, (LossScaling){0});
    fine = fine && run_steps(&plain, STEPS, LEARNING_RATE);
    fine = start(&run, c, DTYPE_F32, scaling) && run_steps(&run, STEPS, LEARNING_RATE) && fine;
    CHECK(fine, "%s%s", diag_text(plain.diag), diag_text(run.diag));
    for (int step = 0; fine && step < STEPS; step++) {
        CHECK(run.losses[step] == plain.losses[step], "loss %.9g in step %d, not %.9g",
              run.losses[step], step + 1, plain.losses[step]);
        CHECK(fabs(run.norms[step] - plain.norms[step]) <= 1e-6 * plain.norms[step],
              "gradient norm %.9g in step %d, not %.9g", run.norms[step], step + 1,
              plain.norms[step]);
        CHECK(run.scales[step] == scales[step], "scale %g after step %d, not %g", run.scales[step],
              step + 1, scales[step]);
    }
    if (fine) compare_weights(&run, &plain, 0, c->name);
    check_end();
    run_close(&plain);
    run_close(&run);
}

/* Gradients that no scale makes finite: a weight is so large that products overflow. */
static void check_gives_up(void) {
    Run run;
    StepResult result = {0};
    check_begin("after 50 steps without a finite gradient training stops and says where");
    bool fine = start(&run, &CASES[4], DTYPE_F32, (LossScaling){65536, 2000});
    CHECK(fine, "%s", diag_text(run.diag));
    int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, 16 * 16);
    int32_t *labels = ARENA_ARRAY(run.arena, int32_t, 16 * 16);
    fill_batch(run.plan, 0, tokens, labels);
    for (int i = 0; fine && i < run.n_params; i++) {
        if (!strstr(run.names[i], "gain")) continue;
        float *gain = run_weight(&run, i);
        gain[0] = 1e38f;
        engine_write_parameter(run.engine, run.names[i], gain);
    }
    int step = 0;
    while (fine && step < 60 &&
           engine_step(run.engine, step + 1, tokens, labels, 1e-3, &result, run.diag)) {
        step++;
    }
    printf("%d steps, %g, %s\n", step, result.loss_scale, diag_text(run.diag));
    check_end();
    run_close(&run);
}

int main(void) {
    static const double STAYS[STEPS] = {1024, 1024, 1024, 1024, 1024, 1024, 1024};
    static const double GROWS[STEPS] = {8, 8, 16, 16, 16, 32, 32};
    for (int i = 0; i < N_CASES; i++) {
        check_same_bits(&CASES[i], (LossScaling){1024, 0}, STAYS);
        check_same_bits(&CASES[i], (LossScaling){8, 3}, GROWS);
    }
    check_gives_up();
    return check_report();
}
