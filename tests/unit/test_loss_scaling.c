/* Loss scaling: a factor on the loss that the update takes out again.
 *
 * In f32 a power of two changes no bit, so every layout must give the bits that it gives without.
 * In f16 gradients that are too small or too large are what it is for. Would catch: a gradient that
 * bears the scale twice or not at all (clipping included), a stage or rank that skips a step alone,
 * an update in a skipped step, a scale that does not grow, fall or go into a checkpoint.
 */
#include "runtime/engine_internal.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <unistd.h>

enum { STEPS = 7, GLOBAL_BATCH = 16 };
static const double LEARNING_RATE = 2e-3;

/* Of runs started from now on. */
static const char *seq = "16", *dropout = "0.1", *optimizer = "adamw";

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
    {"p=2 in a V", {1, 1, 2, 2, 2, "zb-v", false, NULL, 0}, 0},
    {"t=2 d=2 p=2, ZeRO", {2, 2, 2, 2, 1, "1f1b", true, NULL, 0}, 1},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static bool start(Run *run, const Case *c, DType precision, LossScaling scaling) {
    run_zero = c->zero;
    run_precision = precision;
    run_loss_scaling = scaling;
    const ModelSetting tiny[] = {
        {"layers", "4"},  {"model", "32"},           {"heads", "4"},
        {"seq", seq},     {"vocab", "61"},           {"dropout", dropout},
        {"tied", "true"}, {"optimizer.eps", "1e-6"}, {"optimizer", optimizer}};
    bool fine = run_plan(run, "models/gpt.lua", tiny, sizeof(tiny) / sizeof(tiny[0]), &c->layout,
                         GLOBAL_BATCH, true);
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

static bool take_step(Run *run, int step, int batch, StepResult *out) {
    size_t n = (size_t)(run->plan->global_batch * run->plan->seq);
    int32_t *tokens = ARENA_ARRAY(run->arena, int32_t, n);
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n);
    fill_batch(run->plan, batch, tokens, labels);
    return engine_step(run->engine, step + 1, tokens, labels, LEARNING_RATE, out, run->diag);
}

/* Steps on one batch until one is an update. Their number; -1: none of 40 was. */
static int skip(Run *run, double first_scale) {
    StepResult result;
    for (int step = 0; step < 40; step++) {
        if (!take_step(run, step, 0, &result)) return -1;
        if (!result.skipped) return step;
        CHECK(isfinite(result.loss) && result.loss_scale == first_scale / pow(2, step + 1),
              "step %d: loss %g, scale %g", step + 1, result.loss, result.loss_scale);
    }
    return -1;
}

/* 2^32 is too much for any gradient in f16: the scale falls until all fit. That update is the
 * first, for Adam too: the same as of a run that began with this scale. */
static void check_falls(const Case *c, int *n_skipped) {
    static const double FIRST = 4294967296.0;
    char name[100];
    Run run, other = {0};
    snprintf(name, sizeof(name), "f16, %s, %s: the scale falls until gradients are finite", c->name,
             optimizer);
    check_begin(name);
    dropout = "0"; /* its masks are other ones in another step */
    int first = start(&run, c, DTYPE_F16, (LossScaling){FIRST, 2000}) ? skip(&run, FIRST) : -1;
    if (*n_skipped < 0) *n_skipped = first;
    CHECK(first >= 8 && abs(first - *n_skipped) <= 1, "%d steps were skipped, on one rank %d: %s",
          first, *n_skipped, diag_text(run.diag));
    bool fine = first >= 8 && start(&other, c, DTYPE_F16, (LossScaling){FIRST / pow(2, first), 0});
    fine = fine && run_steps(&other, 1, LEARNING_RATE);
    CHECK(fine, "%s", other.diag ? diag_text(other.diag) : "");
    if (fine) compare_weights(&run, &other, 0, c->name);
    dropout = "0.1";
    check_end();
    if (other.diag) run_close(&other);
    run_close(&run);
}

/* In a skipped step nothing but the scale changes, to the bit. */
static void check_skips(const Case *c) {
    char name[100];
    Run run, fresh;
    StepResult result = {0};
    snprintf(name, sizeof(name), "f16, %s: a step without finite gradients changes nothing",
             c->name);
    check_begin(name);
    bool fine = start(&run, c, DTYPE_F16, (LossScaling){4294967296.0, 2000}) &&
                take_step(&run, 0, 0, &result);
    fine = start(&fresh, c, DTYPE_F16, (LossScaling){0}) && fine;
    CHECK(fine && result.skipped, "%s%s", diag_text(run.diag), diag_text(fresh.diag));
    if (fine) compare_weights(&run, &fresh, 0, c->name);
    check_end();
    run_close(&run);
    run_close(&fresh);
}

static void check_gives_up(void) {
    Run run;
    StepResult result = {0};
    int step = 0;
    check_begin("after 50 steps without finite gradients training stops and says where");
    bool fine = start(&run, &CASES[4], DTYPE_F16, (LossScaling){4294967296.0, 0});
    CHECK(fine, "%s", diag_text(run.diag));
    while (fine && step < 60 && take_step(&run, step, step, &result)) step++;
    CHECK(step == ENGINE_MOST_SKIPPED - 1, "it took %d steps", step);
    const char *says = diag_text(run.diag);
    CHECK(strstr(says, "50 steps in a row had gradients that are not finite") &&
              strstr(says, "the loss scale is fixed at 4294967296: plan with a smaller") &&
              strstr(says, "first value that is not finite"),
          "it says %s", says);
    check_end();
    run_close(&run);
}

/* Gradients of a loss over many tokens are small: without a scale f16 loses part of them. */
static void check_small_gradients(void) {
    static const LossScaling SCALINGS[3] = {{0, 0}, {0, 0}, {65536, 0}};
    double errors[2] = {0};
    Run runs[3];
    check_begin("f16: small gradients are lost without a scale, kept with one");
    bool fine = true;
    seq = "256";
    for (int i = 0; i < 3; i++) {
        fine = start(&runs[i], &CASES[0], i ? DTYPE_F16 : DTYPE_F32, SCALINGS[i]) &&
               run_steps(&runs[i], 1, 0) && fine;
        if (fine) run_keep_gradients(&runs[i]);
    }
    seq = "16";
    CHECK(fine, "%s%s%s", diag_text(runs[0].diag), diag_text(runs[1].diag),
          diag_text(runs[2].diag));
    for (int p = 0; fine && p < runs[0].n_params; p++) {
        int64_t n = type_elements(&runs[0].types[p]);
        if (!strstr(runs[0].names[p], "wte")) continue;
        for (int64_t k = 0; k < n; k++) runs[2].gradients[p][k] /= 65536;
        for (int i = 0; i < 2; i++) {
            errors[i] = relative_distance(runs[i + 1].gradients[p], runs[0].gradients[p], n);
        }
    }
    printf("gradient of the embedding: %.2g of its norm off without a scale, %.2g with\n",
           errors[0], errors[1]);
    CHECK(errors[1] > 0 && errors[1] < 2e-3 && errors[0] > 3 * errors[1], "%g and %g", errors[0],
          errors[1]);
    check_end();
    for (int i = 0; i < 3; i++) run_close(&runs[i]);
}

static char checkpoint[64]; /* file of this process */

/* A checkpoint has the scale and the number of updates; one made without a scale is gone on from
 * as if every step had been an update. */
static void check_checkpoint(void) {
    const LossScaling growing = {8, 3};
    TrainingPlace place = {.step = 4, .samples = 4 * GLOBAL_BATCH, .data = "x"};
    for (int i = 0; i < 2; i++) {
        Run whole, early, late;
        check_begin(i ? "a checkpoint without a loss scale is gone on from with one"
                      : "a checkpoint holds the loss scale");
        bool fine =
            start(&whole, &CASES[1], DTYPE_F32, growing) && run_steps(&whole, STEPS, LEARNING_RATE);
        fine = start(&early, &CASES[1], DTYPE_F32, i ? (LossScaling){0} : growing) &&
               run_steps(&early, 4, LEARNING_RATE) &&
               engine_save_state(early.engine, checkpoint, &place, early.diag) && fine;
        fine = start(&late, &CASES[1], DTYPE_F32, growing) && fine &&
               engine_load_state(late.engine, checkpoint, &place, late.diag) &&
               run_steps_from(&late, 4, STEPS - 4, LEARNING_RATE);
        CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(early.diag), diag_text(late.diag));
        if (fine) compare_weights(&late, &whole, 0, "gone on");
        double scale = i ? 16 : whole.scales[STEPS - 1]; /* three steps without, four with */
        CHECK(!fine || late.scales[STEPS - 1] == scale, "the scale is %g, not %g",
              late.scales[STEPS - 1], scale);
        check_end();
        run_close(&whole), run_close(&early), run_close(&late);
    }
    unlink(checkpoint);
}

/* Four steps on one rank. */
static bool train_writer(Run *run, LossScaling scaling) {
    bool fine = start(run, &CASES[0], DTYPE_F32, scaling) && run_steps(run, 4, LEARNING_RATE);
    CHECK(fine, "%s", diag_text(run->diag));
    return fine;
}

static void set_variable(Run *run, const char *name, float value) {
    const Graph *graph = run->plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_VARIABLE || strcmp(node_string(node, ATTR_name), name) != 0) continue;
        engine_set_variable(run->engine, &run->engine->ranks[0], node, value);
    }
}

static bool write_checkpoint(Run *run) {
    const TrainingPlace place = {.step = 4, .samples = 4 * GLOBAL_BATCH, .data = "x"};
    bool fine = engine_save_state(run->engine, checkpoint, &place, run->diag);
    CHECK(fine, "%s", diag_text(run->diag));
    return fine;
}

/* Weights alone say nothing of a scale: it begins as the plan says. */
static void check_loaded_weights(void) {
    Run run, other;
    bool fine = start(&run, &CASES[1], DTYPE_F32, (LossScaling){8, 3});
    check_begin("weights without a checkpoint begin with the plan's loss scale");
    fine =
        fine && run_steps(&run, 4, LEARNING_RATE) && engine_save(run.engine, checkpoint, run.diag);
    fine = start(&other, &CASES[1], DTYPE_F32, (LossScaling){64, 1}) && fine &&
           engine_load(other.engine, checkpoint, other.diag) && run_steps(&other, 2, LEARNING_RATE);
    CHECK(fine, "%s%s", diag_text(run.diag), diag_text(other.diag));
    CHECK(!fine || (other.scales[0] == 128 && other.scales[1] == 256), "%g, %g", other.scales[0],
          other.scales[1]);
    run_close(&run), run_close(&other);
    unlink(checkpoint);
    check_end();
}

/* What a checkpoint says is not believed. */
static void check_damaged(void) {
    static const struct {
        const char *name;
        float value;
        float right; /* after four steps */
        const char *says;
    } CASE[] = {
        {LOSS_SCALE_NAME, NAN, 16,
         "tensor 'loss_scale/scale' is nan; it must be a number from 1 to "
         "4294967296"},
        {LOSS_SCALE_NAME, INFINITY, 16, "is inf; it must be a number"},
        {LOSS_SCALE_NAME, 0, 16, "is 0; it must be a number"},
        {LOSS_SCALE_NAME, -4, 16, "is -4; it must be a number"},
        {LOSS_SCALE_NAME, 8.6e9f, 16, "is 8.6e+09; it must be a number"},
        {UPDATES_NAME, -1, 4,
         "tensor 'loss_scale/updates' is -1; it must be a whole number from 0 to 4"},
        {UPDATES_NAME, 5, 4, "is 5; it must be a whole number"},
        {UPDATES_NAME, NAN, 4, "is nan; it must be a whole number"},
        {FINITE_STEPS_NAME, 1.5f, 1, "is 1.5; it must be a whole number"},
    };
    check_begin("a checkpoint's loss scale and counts are looked at");
    Run writer;
    bool trained = train_writer(&writer, (LossScaling){8, 3});
    for (size_t i = 0; trained && i < sizeof(CASE) / sizeof(CASE[0]); i++) {
        Run run;
        TrainingPlace place;
        set_variable(&writer, CASE[i].name, CASE[i].value);
        bool written = write_checkpoint(&writer);
        set_variable(&writer, CASE[i].name, CASE[i].right);
        if (!written) continue;
        bool started = start(&run, &CASES[0], DTYPE_F32, (LossScaling){8, 3});
        CHECK(started && !engine_load_state(run.engine, checkpoint, &place, run.diag),
              "%s %g was taken", CASE[i].name, (double)CASE[i].value);
        CHECK(strstr(diag_text(run.diag), CASE[i].says), "it says %s", diag_text(run.diag));
        run_close(&run);
    }
    run_close(&writer);
    unlink(checkpoint);
    check_end();
}

/* A fixed scale is what the plan says, a dynamic one goes on. */
static void check_resumed_scale(void) {
    static const struct {
        LossScaling from, to;
        double scale; /* after one more step */
    } CASE[] = {
        {{1024, 0}, {8, 0}, 8}, {{1024, 2000}, {8, 2000}, 1024}, {{1024, 0}, {8, 2000}, 1024}};
    check_begin("which loss scale a run goes on with");
    for (size_t i = 0; i < sizeof(CASE) / sizeof(CASE[0]); i++) {
        Run writer, run;
        TrainingPlace place;
        bool written = train_writer(&writer, CASE[i].from) && write_checkpoint(&writer);
        run_close(&writer);
        if (!written) continue;
        bool fine = start(&run, &CASES[0], DTYPE_F32, CASE[i].to) &&
                    engine_load_state(run.engine, checkpoint, &place, run.diag) &&
                    run_steps_from(&run, 4, 1, LEARNING_RATE);
        CHECK(fine && run.scales[4] == CASE[i].scale, "%s%g, not %g", diag_text(run.diag),
              run.scales[4], CASE[i].scale);
        run_close(&run);
    }
    unlink(checkpoint);
    check_end();
}

int main(void) {
    static const double STAYS[STEPS] = {1024, 1024, 1024, 1024, 1024, 1024, 1024};
    static const double GROWS[STEPS] = {8, 8, 16, 16, 16, 32, 32};
    int n_skipped = -1;
    snprintf(checkpoint, sizeof(checkpoint), "/tmp/perilune-loss_scaling-%d.safetensors",
             (int)getpid());
    for (int i = 0; i < N_CASES; i += VARIANT_STEP) {
        check_same_bits(&CASES[i], (LossScaling){1024, 0}, STAYS);
        check_same_bits(&CASES[i], (LossScaling){8, 3}, GROWS);
        check_falls(&CASES[i], &n_skipped);
        if (i % 4 != VARIANT_STEP) continue;
        optimizer = "muon"; /* a skipped step leaves its momentum, too */
        check_falls(&CASES[i], &n_skipped);
        optimizer = "adamw";
        check_skips(&CASES[i]);
    }
    check_gives_up();
    check_small_gradients();
    check_checkpoint();
    check_loaded_weights();
    check_damaged();
    check_resumed_scale();
    return check_report();
}
