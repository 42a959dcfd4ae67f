/* Averages of weights (--ema) and steps that are left out for their norm (--skip-spikes): averages
 * against ones made by hand of the weights after each step, under every optimizer and layout; that
 * exchanging them for the weights changes no bit of a run, and is what a file of them is; that a
 * step that was left out might as well not have been; plans that are wrong.
 *
 * Would catch: an average of the weights before their update, of a shard of another rank's, or one
 * that follows a step that was left out; copies in 16 bits that stay those of the other weights; a
 * moment, loss scale or count of updates that a spike moves.
 */
#include "planner/verify/verify.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 9, GLOBAL_BATCH = 8, N_SETTINGS = 9 };

#define DECAY 0.3 /* the warm-up's from the sixth update on: 5 / 14 */

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};

typedef struct Kind {
    const char *optimizer;
    double rate;
} Kind;
static const Kind KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05},
                             {"lamb", 5e-3},  {"muon", 2e-3}, {"ademamix", 2e-3}};
enum { N_KINDS = sizeof(KINDS) / sizeof(KINDS[0]) };

static bool start(Run *run, const char *optimizer, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "61"},
                                               {"layers", "2"},
                                               {"ffn", "70"},
                                               {"optimizer.momentum", "0.9"}};
    return run_plan(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH, text) &&
           run_start(run);
}

/* --- averages --- */

/* Equation and numbers of optimizer_ema_take, in f64, of the weights after each step. */
static void follow(Run *run, int step, double *const *averages) {
    double keep = step ? fmin(DECAY, step / (step + 9.0)) : 0;
    for (int i = 0; i < run->n_params; i++) {
        const float *w = run_weight(run, i);
        for (int64_t k = 0; k < type_elements(&run->types[i]); k++) {
            averages[i][k] = keep * averages[i][k] + (1 - keep) * (double)w[k];
        }
    }
}

static void compare_averages(Run *run, double *const *averages) {
    for (int i = 0; i < run->n_params; i++) {
        int64_t n = type_elements(&run->types[i]);
        float *expected = ARENA_ARRAY(run->arena, float, n);
        for (int64_t k = 0; k < n; k++) expected[k] = (float)averages[i][k];
        double error = relative_distance(run_weight(run, i), expected, n);
        CHECK(error < 3e-7, "the average of '%s' is off by %.3g of its norm", run->names[i], error);
    }
}

/* Beside a run without averages: no bit of training changes. */
static void test_by_hand(const Kind *kind) {
    Run run, plain;
    char name[100];
    snprintf(name, sizeof(name), "averages of weights made by %s", kind->optimizer);
    check_begin(name);
    bool fine = start(&plain, kind->optimizer, &ALONE, false);
    run_ema_decay = DECAY;
    fine = start(&run, kind->optimizer, &ALONE, true) && fine;
    run_ema_decay = 0;
    double **averages = fine ? ARENA_ARRAY(run.arena, double *, run.n_params) : NULL;
    for (int i = 0; fine && i < run.n_params; i++) {
        averages[i] = ARENA_ARRAY(run.arena, double, type_elements(&run.types[i]));
    }
    for (int step = 0; fine && step < STEPS; step++) {
        fine = run_steps_from(&run, step, 1, kind->rate) &&
               run_steps_from(&plain, step, 1, kind->rate);
        if (fine) follow(&run, step, averages);
        /* Exchanged on the way, too: twice is never. */
        fine = fine && (step != 4 || (engine_swap_averages(run.engine, run.diag) &&
                                      engine_swap_averages(run.engine, run.diag)));
    }
    CHECK(fine, "%s%s", diag_text(run.diag), diag_text(plain.diag));
    if (fine) {
        compare_to_the_bit(&run, &plain, 0, STEPS);
        CHECK(engine_swap_averages(run.engine, run.diag), "%s", diag_text(run.diag));
        compare_averages(&run, averages);
        CHECK(engine_swap_averages(run.engine, run.diag), "%s", diag_text(run.diag));
        compare_to_the_bit(&run, &plain, 0, STEPS);
        compare_memory(&run);
    }
    run_close(&run);
    run_close(&plain);
    check_end();
}

/* Divided weights have divided averages, which are those of one rank. */
static void test_layouts(const char *optimizer, double rate) {
    static const LayoutCase CASES[] = {
        {{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
        {{2, 1, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    };
    Run one;
    run_ema_decay = DECAY;
    bool ready = start(&one, optimizer, &ALONE, false) && run_steps(&one, STEPS, rate) &&
                 engine_swap_averages(one.engine, one.diag);
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += VARIANT_STEP) {
        char title[200];
        Run run = {0};
        run_zero = CASES[k].zero;
        int length = snprintf(title, sizeof(title), "averages, ");
        layout_name(optimizer, &CASES[k].layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done = ready && start(&run, optimizer, &CASES[k].layout, true) &&
                    run_steps(&run, STEPS, rate) && engine_swap_averages(run.engine, run.diag);
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) {
            CHECK(engine_check_copies(run.engine, STEPS, run.diag), "%s", diag_text(run.diag));
            compare_weights(&run, &one);
            compare_memory(&run);
        }
        if (ready) run_close(&run);
        check_end();
    }
    run_ema_decay = 0;
    run_close(&one);
}

/* In bf16, whose copies have to follow: evaluated in the weights' place, and from a file, by an
 * engine that never knew of averages. Then training goes on as if nothing had been. */
static void test_exchange(int zero, const Layout *layout) {
    char path[] = "/tmp/perilune-average-XXXXXX", name[100];
    int file = mkstemp(path);
    double averaged = NAN, loaded = NAN, plain = NAN;
    int32_t tokens[GLOBAL_BATCH * 16], labels[GLOBAL_BATCH * 16];
    Run run, other, beside;
    snprintf(name, sizeof(name), "bf16, zero %d: averages in the weights' place, and in a file",
             zero);
    check_begin(name);
    run_precision = DTYPE_BF16;
    bool fine = start(&other, "adamw", &ALONE, false);
    run_ema_decay = 0.9;
    run_zero = zero;
    fine = start(&run, "adamw", layout, false) && fine;
    fine = start(&beside, "adamw", layout, false) && fine;
    run_ema_decay = run_zero = 0;
    run_precision = DTYPE_F32;
    fine = fine && run_steps(&run, STEPS, 3e-3) && run_steps(&beside, STEPS, 3e-3);
    if (fine) fill_batch(run.plan, STEPS, tokens, labels);
    fine = fine && engine_evaluate(run.engine, tokens, labels, &plain, run.diag) &&
           engine_swap_averages(run.engine, run.diag) &&
           engine_evaluate(run.engine, tokens, labels, &averaged, run.diag) &&
           engine_save(run.engine, path, run.diag) && engine_swap_averages(run.engine, run.diag) &&
           engine_load(other.engine, path, other.diag) &&
           engine_evaluate(other.engine, tokens, labels, &loaded, other.diag) &&
           run_steps_from(&run, STEPS, 3, 3e-3) && run_steps_from(&beside, STEPS, 3, 3e-3);
    CHECK(fine, "%s%s%s", diag_text(run.diag), diag_text(other.diag), diag_text(beside.diag));
    if (fine) {
        CHECK(fabs(averaged - loaded) < 1e-5 * loaded, "%.9g, from its file %.9g", averaged,
              loaded);
        CHECK(fabs(averaged - plain) > 1e-4, "%.9g, as with the weights", averaged);
        compare_to_the_bit(&run, &beside, STEPS, STEPS + 3);
    }
    run_close(&run);
    run_close(&other);
    run_close(&beside);
    if (file >= 0) close(file);
    unlink(path);
    check_end();
}

/* From a checkpoint, under another layout; the same under its own, to the bit. */
static void test_checkpoint(void) {
    static const Layout TO = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    for (int same = 0; same < 2; same++) {
        TrainingPlace found = {0};
        char path[] = "/tmp/perilune-average-XXXXXX";
        int file = mkstemp(path);
        Run whole, first, second;
        check_begin(same ? "averages go on from a checkpoint, to the bit"
                         : "averages go on from a checkpoint under another layout");
        run_ema_decay = DECAY;
        bool fine = start(&whole, "adamw", &ALONE, false) && run_steps(&whole, STEPS, 1e-3);
        fine = start(&first, "adamw", &ALONE, false) && run_steps(&first, 3, 1e-3) && fine;
        fine = fine && run_save(&first, path, 3, same);
        run_zero = !same;
        fine = start(&second, "adamw", same ? &ALONE : &TO, false) && fine;
        run_zero = 0;
        run_ema_decay = 0;
        fine = fine && engine_load_state(second.engine, path, &found, second.diag) &&
               run_steps_from(&second, 3, STEPS - 3, 1e-3) &&
               engine_swap_averages(second.engine, second.diag) &&
               engine_swap_averages(whole.engine, whole.diag);
        CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
        if (fine && same) compare_to_the_bit(&second, &whole, 3, STEPS);
        if (fine && !same) compare_weights(&second, &whole);
        run_close(&whole);
        run_close(&first);
        run_close(&second);
        if (file >= 0) close(file);
        unlink(path);
        check_end();
    }
}

/* From a checkpoint without averages, whose weights they begin with; and from one with them. */
static void test_begin_later(void) {
    static const Layout TO = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    TrainingPlace found = {0};
    char path[] = "/tmp/perilune-average-XXXXXX";
    int file = mkstemp(path);
    Run plain, run;
    check_begin("averages begin on the way, and end there");
    bool fine = start(&plain, "adamw", &ALONE, false) && run_steps(&plain, 3, 1e-3) &&
                run_save(&plain, path, 3, true);
    run_ema_decay = 0.5;
    run_zero = 1;
    fine = start(&run, "adamw", &TO, false) && fine;
    run_ema_decay = run_zero = 0;
    fine = fine && engine_load_state(run.engine, path, &found, run.diag);
    CHECK(fine && found.averages_begun == run.n_params && !found.averages_left, "%d begin%s",
          found.averages_begun, diag_text(run.diag));
    double **averages = fine ? ARENA_ARRAY(run.arena, double *, run.n_params) : NULL;
    for (int i = 0; fine && i < run.n_params; i++) {
        const int64_t n = type_elements(&run.types[i]);
        const float *w = run_weight(&run, i);
        averages[i] = ARENA_ARRAY(run.arena, double, n);
        for (int64_t k = 0; k < n; k++) averages[i][k] = (double)w[k];
    }
    for (int step = 3; fine && step < 5; step++) {
        fine = run_steps_from(&run, step, 1, 1e-2);
        const double keep = fmin(0.5, step / (step + 9.0));
        for (int i = 0; fine && i < run.n_params; i++) {
            const float *w = run_weight(&run, i);
            for (int64_t k = 0; k < type_elements(&run.types[i]); k++) {
                averages[i][k] = keep * averages[i][k] + (1 - keep) * (double)w[k];
            }
        }
    }
    fine = fine && engine_swap_averages(run.engine, run.diag);
    if (fine) compare_averages(&run, averages);
    fine = fine && engine_swap_averages(run.engine, run.diag) && run_save(&run, path, 5, true) &&
           engine_load_state(plain.engine, path, &found, plain.diag);
    CHECK(fine && found.averages_left && !found.averages_begun, "%s%s", diag_text(plain.diag),
          diag_text(run.diag));
    run_close(&plain);
    run_close(&run);
    if (file >= 0) close(file);
    unlink(path);
    check_end();
}

/* --- steps that are left out --- */

/* Step number `step` with a batch of its own. */
static bool take(Run *run, int step, int batch, double rate, bool spike) {
    int32_t tokens[GLOBAL_BATCH * 16], labels[GLOBAL_BATCH * 16];
    StepResult result;
    fill_batch(run->plan, batch, tokens, labels);
    if (!engine_step(run->engine, step, tokens, labels, rate, &result, run->diag)) return false;
    run->losses[step - 1] = result.loss;
    run->norms[step - 1] = result.grad_norm;
    run->scales[step - 1] = result.loss_scale;
    CHECK(result.spike == spike, "step %d is %sa spike, of norm %g", step,
          result.spike ? "" : "not ", result.grad_norm);
    CHECK(!result.skipped, "step %d has gradients that are not finite", step);
    return true;
}

/* What a run would be that never saw the batches that were left out. */
static void test_left_out(const Kind *kind, const Layout *layout, int zero, DType precision) {
    Run run, other;
    char name[160];
    bool scaled = precision == DTYPE_F16;
    snprintf(name, sizeof(name), "a step left out, %s, zero %d, %s", kind->optimizer, zero,
             dtype_name(precision));
    check_begin(name);
    run_zero = zero;
    run_precision = precision;
    run_ema_decay = 0.9;
    if (scaled) run_loss_scaling = (LossScaling){1024, 3};
    bool fine = start(&other, kind->optimizer, layout, false);
    run_skips_spikes = true;
    fine = start(&run, kind->optimizer, layout, true) && fine;
    run_skips_spikes = false;
    run_zero = 0;
    run_precision = DTYPE_F32;
    run_ema_decay = 0;
    run_loss_scaling = (LossScaling){0};
    for (int step = 1, updates = 0; fine && step <= 6; step++) {
        const bool out = step == 3 || step == 4;
        engine_set_most_norm(run.engine, out ? run.norms[1] / 100 : run.norms[1] * 100 + 1e3);
        fine = take(&run, step, step, kind->rate, out);
        if (out) continue;
        fine = fine && take(&other, ++updates, step, kind->rate, false);
        if (!fine) continue;
        CHECK(run.losses[step - 1] == other.losses[updates - 1],
              "loss of step %d is %.9g, not %.9g", step, run.losses[step - 1],
              other.losses[updates - 1]);
        CHECK(run.scales[step - 1] == other.scales[updates - 1],
              "loss scale of step %d is %g, not %g", step, run.scales[step - 1],
              other.scales[updates - 1]);
    }
    CHECK(fine, "%s%s", diag_text(run.diag), diag_text(other.diag));
    if (fine) compare_to_the_bit(&run, &other, 0, 0);
    fine = fine && engine_swap_averages(run.engine, run.diag) &&
           engine_swap_averages(other.engine, other.diag);
    if (fine) compare_to_the_bit(&run, &other, 0, 0);
    run_close(&run);
    run_close(&other);
    check_end();
}

/* --- plans that are wrong --- */

static Node *find(const Plan *plan, OpKind op) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op) return graph->nodes[n];
    }
    return NULL;
}

static void set_attr(Node *node, AttrKey key, Attr value) {
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key == key) node->attrs[i] = value;
    }
}

typedef enum Damage {
    OTHER_DECAY,
    OF_MOMENTS,
    OTHER_STATE,
    NO_AVERAGE,
    OTHER_FACTOR,
    UNSKIPPED,
    OTHER_SCALAR,
    OTHER_NORM
} Damage;

static void damage(const Plan *plan, Damage how) {
    Node *ema = find(plan, OP_EMA), *skip = find(plan, OP_SKIP_SPIKE);
    Node *adamw = find(plan, OP_ADAMW);
    switch (how) {
    case OTHER_DECAY: set_attr(ema, ATTR_decay, attr_float(ATTR_decay, 0.75)); break;
    case OF_MOMENTS: ema->inputs[1].output = 1; break;
    case OTHER_STATE:
        set_attr(ema->inputs[0].node, ATTR_name, attr_string(ATTR_name, "mean/wte"));
        break;
    case NO_AVERAGE: plan->programs[0].graph->n_nodes--; break;
    case OTHER_FACTOR: ema->inputs[2] = skip->inputs[0]; break;
    case UNSKIPPED: adamw->inputs[4] = skip->inputs[0]; break;
    case OTHER_SCALAR:
        set_attr(skip->inputs[2].node, ATTR_name, attr_string(ATTR_name, "another"));
        break;
    case OTHER_NORM: skip->inputs[1] = skip->inputs[0]; break;
    }
}

static void test_refused(void) {
    static const struct {
        Damage how;
        const char *name, *expected;
    } CASES[] = {
        {OTHER_DECAY, "averages of two decays", "its decay is"},
        {OF_MOMENTS, "an average of moments", "is no new parameter"},
        {OTHER_STATE, "a state of another name", "is no average of"},
        {NO_AVERAGE, "a weight without an average", "has no average, as others have"},
        {OTHER_FACTOR, "an average of all steps", "is not the factor of the update"},
        {UNSKIPPED, "an update in spite of a spike", "although their norm may be too large"},
        {OTHER_SCALAR, "a limit that no run sets", "does not leave out steps for the norm"},
        {OTHER_NORM, "a factor below the limit", "does not leave out steps for the norm"},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run run;
        check_begin(CASES[k].name);
        run_ema_decay = 0.5;
        run_skips_spikes = true;
        bool fine = start(&run, "adamw", &ALONE, false);
        run_ema_decay = 0;
        run_skips_spikes = false;
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) {
            damage(run.plan, CASES[k].how);
            check_broken_plan(run.plan, CASES[k].expected);
        }
        run_close(&run);
        check_end();
    }
}

static void test_with_halves(void) {
    Run run;
    check_begin("averages of weights in halves");
    run_ema_decay = 0.5;
    run_split_masters = true;
    run_precision = DTYPE_BF16;
    bool fine = start(&run, "adamw", &ALONE, false);
    run_ema_decay = 0;
    run_split_masters = false;
    run_precision = DTYPE_F32;
    CHECK(!fine && strstr(diag_text(run.diag), "--ema with --masters split"), "%s",
          diag_text(run.diag));
    run_close(&run);
    check_end();
}

int main(void) {
    static const Layout DIVIDED = {2, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    static const Layout STAGES = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    for (int i = 0; i < N_KINDS; i += VARIANT_STEP) test_by_hand(&KINDS[i]);
    test_layouts("adamw", 2e-3);
    test_layouts("muon", 2e-3);
    for (int zero = 0; zero < N_ZERO_STAGES; zero += VARIANT_STEP) test_exchange(zero, &STAGES);
    test_checkpoint();
    test_begin_later();
    for (int i = 0; i < N_KINDS; i += VARIANT_STEP) {
        test_left_out(&KINDS[i], &ALONE, 0, DTYPE_F32);
    }
    test_left_out(&KINDS[0], &DIVIDED, 1, DTYPE_F32);
    test_left_out(&KINDS[0], &ALONE, 0, DTYPE_F16);
    test_left_out(&KINDS[0], &STAGES, 2, DTYPE_F16);
    test_refused();
    test_with_halves();
    compare_print_worst();
    return check_report();
}
