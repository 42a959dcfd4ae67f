/* Optimizers that keep their states in bf16: that second moments follow what a beta2 near 1 would
 * have them follow, that training goes as with f32, under every layout, in the memory that was
 * planned; that a checkpoint goes from one to the other, and that plans with states of other dtypes
 * are refused.
 *
 * Would catch: second moments that stand still; a state that is rounded twice, or in another way on
 * another layout; a state of f32 where bf16 is asked for; a shard of one that is read as f32.
 */
#include "planner/verify/verify.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/engine_internal.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 6, LONG_STEPS = 60, GLOBAL_BATCH = 8, N_SETTINGS = 9 };

static const Layout ALONE = {1, 1, 1, GLOBAL_BATCH, 1, "1f1b", false, NULL, 0};

static bool start(Run *run, const char *optimizer, DType state, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "61"},
                                               {"layers", "4"},
                                               {"ffn", "70"},
                                               {"optimizer.momentum", "0.9"}};
    run_state_dtype = state;
    bool fine = run_plan(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH, text);
    run_state_dtype = DTYPE_F32;
    return fine && run_start(run);
}

/* --- second moments --- */

static float wide(const uint16_t *x, int i) {
    return vec_get(x, DTYPE_BF16, i);
}

/* With gradients of a size, from a second moment far off, after `n_steps`: its mean over elements
 * that differ a little. */
static double second_moment(double beta2, float begin, float gradient, int n_steps) {
    enum { N = 512 };
    const AdamwConfig config = {0.9, beta2, 1e-8, 0, 1, DTYPE_F32, DTYPE_BF16, DTYPE_F32};
    const float lr = 0, clip = 1;
    float g[N], p[N] = {0};
    uint16_t m[N] = {0}, v[N];
    double sum = 0;
    for (int i = 0; i < N; i++) {
        float size = 1 + (float)i / N; /* all that there may be below the last bit */
        g[i] = gradient * sqrtf(size);
        v[i] = vec_bf16_round(begin * size);
    }
    for (int step = 1; step <= n_steps; step++) {
        const float number = (float)step;
        optimizer_adamw(&config, N, &lr, &number, &clip, g, p, m, v, NULL);
    }
    for (int i = 0; i < N; i++) sum += (double)wide(v, i) / (1 + (double)i / N);
    return sum / N;
}

/* Rounded to nearest, a change of a thousandth or less is none: 1 would stay 1. */
static void test_second_moments(void) {
    static const struct {
        double beta2;
        float begin, gradient;
        int n_steps;
    } CASES[] = {
        {0.999, 1, 0, 3000},  /* falls to e^-3 */
        {0.999, 0, 1, 6000},  /* rises to almost 1 */
        {0.9999, 1, 2, 8000}, /* from 1 towards 4 */
        {0.95, 4, 1, 200},    /* falls to 1 */
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[120];
        double left = pow(CASES[i].beta2, CASES[i].n_steps), g = (double)CASES[i].gradient;
        double expected = left * (double)CASES[i].begin + (1 - left) * g * g;
        snprintf(name, sizeof(name), "a second moment in bf16, beta2 %g, from %g with gradients %g",
                 CASES[i].beta2, (double)CASES[i].begin, g);
        check_begin(name);
        double found =
            second_moment(CASES[i].beta2, CASES[i].begin, CASES[i].gradient, CASES[i].n_steps);
        CHECK(fabs(found / expected - 1) < 0.12, "%g, not %g", found, expected);
        check_end();
    }
}

/* As good as random: in each 16th of the range as often, and no step like the one before. */
static void test_thresholds(void) {
    enum { N = 16000 };
    int counts[16] = {0}, rises = 0;
    uint32_t before = 0;
    check_begin("thresholds of steps are spread evenly");
    for (int step = 1; step <= N; step++) {
        uint32_t threshold = optimizer_threshold((float)step);
        CHECK(threshold < 65536, "%u", threshold);
        counts[threshold >> 12]++;
        rises += threshold > before;
        before = threshold;
    }
    for (int i = 0; i < 16; i++) CHECK(abs(counts[i] - N / 16) < 150, "%d in one", counts[i]);
    CHECK(abs(rises - N / 2) < 400, "%d rises", rises);
    check_end();
}

/* --- training --- */

static int64_t optimizer_bytes(const Run *run) {
    const Program *program = &run->plan->programs[0];
    int64_t bytes = 0;
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        if (node->op != OP_STATE || node_is_copy(node)) continue;
        bytes += program->buffers[n * MAX_OUTPUTS].bytes;
    }
    return bytes;
}

/* Losses as with f32, half of the states' bytes, planned and taken. */
static void test_training(const char *optimizer, double rate) {
    Run full, half;
    char name[100];
    snprintf(name, sizeof(name), "%s with states in bf16 trains as with f32", optimizer);
    check_begin(name);
    bool done = start(&full, optimizer, DTYPE_F32, &ALONE, true);
    done = start(&half, optimizer, DTYPE_BF16, &ALONE, true) && done;
    done = done && run_steps(&full, LONG_STEPS, rate) && run_steps(&half, LONG_STEPS, rate);
    CHECK(done, "%s%s", diag_text(full.diag), diag_text(half.diag));
    if (done) {
        double ours = mean_loss(&half, LONG_STEPS - 10, LONG_STEPS),
               theirs = mean_loss(&full, LONG_STEPS - 10, LONG_STEPS);
        CHECK(fabs(ours - theirs) < 4e-3 * theirs, "loss %.5f, with f32 %.5f", ours, theirs);
        int64_t n = type_elements(&half.types[0]);
        double apart = relative_distance(run_weight(&half, 0), run_weight(&full, 0), n);
        CHECK(apart > 1e-7, "nothing was rounded");
        double share = (double)optimizer_bytes(&half) / (double)optimizer_bytes(&full);
        CHECK(share > 0.49 && share < 0.6, "states take %.3f of f32's", share);
        compare_memory(&half);
    }
    run_close(&full);
    run_close(&half);
    check_end();
}

/* A state that another order of sums rounds the other way moves its weight by a 256th of a step. */
static void compare_rounded_weights(Run *run, Run *one) {
    for (int i = 0; i < one->n_params; i++) {
        int64_t n = type_elements(&one->types[i]);
        float *ours = ARENA_ARRAY(run->arena, float, n);
        const float *theirs = run_weight(one, i);
        CHECK(engine_read_parameter(run->engine, one->names[i], ours), "no '%s'", one->names[i]);
        if (is_key_bias(one, one->names[i])) continue;
        double error = relative_distance(ours, theirs, n);
        CHECK(error < 1e-3, "'%s' differs by %.3g of its norm", one->names[i], error);
    }
}

static void test_layouts(const char *optimizer, double rate) {
    static const LayoutCase CASES[] = {
        {{2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 1},
        {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 2},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
        {{2, 1, 2, 2, 2, "interleaved", false, NULL, 0}, RECOMPUTE_NONE, 0},
    };
    Run one;
    bool ready =
        start(&one, optimizer, DTYPE_BF16, &ALONE, false) && run_steps_keeping(&one, STEPS, rate);
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += VARIANT_STEP) {
        char title[200];
        Run run;
        run_recompute = CASES[k].recompute;
        run_zero = CASES[k].zero;
        int length = snprintf(title, sizeof(title), "states in bf16, ");
        layout_name(optimizer, &CASES[k].layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done = ready && start(&run, optimizer, DTYPE_BF16, &CASES[k].layout, true) &&
                    run_steps_keeping(&run, STEPS, rate);
        run_recompute = RECOMPUTE_NONE;
        run_zero = 0;
        CHECK(done, "%s%s", diag_text(one.diag), ready ? diag_text(run.diag) : "");
        if (done) {
            compare_losses(&run, &one, STEPS);
            compare_gradients(&run, &one);
            compare_rounded_weights(&run, &one);
            compare_memory(&run);
        }
        if (ready) run_close(&run);
        check_end();
    }
    run_close(&one);
}

/* States of bf16 are that in files, half as long, behind all that is f32; weights are f32. */
static void check_file(const char *path, DType state, Diag *diag) {
    SafetensorsInfo info;
    Safetensors *file = safetensors_open(path, diag);
    CHECK(file, "%s", diag_text(diag));
    if (!file) return;
    SafetensorsDtype wanted = state == DTYPE_BF16 ? SAFETENSORS_BF16 : SAFETENSORS_F32;
    CHECK(safetensors_find(file, "adam_v/wte", &info) && info.dtype == wanted, "adam_v/wte");
    CHECK(safetensors_find(file, "wte", &info) && info.dtype == SAFETENSORS_F32, "wte");
    for (int i = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *at = safetensors_at(file, i);
        uintptr_t each = at->dtype == SAFETENSORS_F32 ? 4 : 2;
        CHECK((uintptr_t)at->data % each == 0, "'%s' is not aligned", at->name);
    }
    safetensors_close(file);
}

/* From f32 to bf16, and back, under other layouts: as the run that was bf16 from the beginning. */
static void test_checkpoint(void) {
    static const Layout TO = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0};
    const TrainingPlace place = {.step = 3, .samples = 3 * GLOBAL_BATCH, .data = "a text"};
    for (int back = 0; back < 2; back++) {
        TrainingPlace found = {0};
        char path[] = "/tmp/perilune-state-XXXXXX";
        int file = mkstemp(path);
        Run whole, first, second;
        DType from = back ? DTYPE_BF16 : DTYPE_F32, to = back ? DTYPE_F32 : DTYPE_BF16;
        check_begin(back ? "a checkpoint goes from bf16 to f32"
                         : "a checkpoint goes from f32 to bf16");
        bool fine = start(&whole, "adamw", to, &ALONE, false) && run_steps(&whole, STEPS, 1e-3);
        fine = start(&first, "adamw", from, &ALONE, false) && run_steps(&first, 3, 1e-3) && fine;
        fine = fine && engine_save_state(first.engine, path, &place, first.diag);
        if (fine) check_file(path, from, first.diag);
        run_zero = 1;
        fine = start(&second, "adamw", to, &TO, false) && fine;
        run_zero = 0;
        fine = fine && engine_load_state(second.engine, path, &found, second.diag) &&
               run_steps_from(&second, 3, STEPS - 3, 1e-3);
        CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
        for (int step = 3; fine && step < STEPS; step++) {
            double error = fabs(second.losses[step] - whole.losses[step]) / whole.losses[step];
            CHECK(error < 1e-4, "loss of step %d is %.7f, not %.7f", step + 1, second.losses[step],
                  whole.losses[step]);
        }
        run_close(&whole);
        run_close(&first);
        run_close(&second);
        if (file >= 0) close(file);
        unlink(path);
        check_end();
    }
}

/* --- plans that are wrong --- */

/* What is wrong with the plan's text after `from` became `to` once; "": nothing. */
static void check_refused(const char *title, const char *from, const char *to,
                          const char *expected) {
    Run run;
    check_begin(title);
    bool fine = start(&run, "adamw", DTYPE_BF16, &ALONE, false);
    CHECK(fine, "%s", diag_text(run.diag));
    StrBuf text = strbuf_create(), broken = strbuf_create();
    if (fine) plan_print(&text, run.plan);
    const char *at = fine ? strstr(text.text, from) : NULL;
    CHECK(at, "there is no '%s'", from);
    if (at) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        strbuf_printf(&broken, "%.*s%s%s", (int)(at - text.text), text.text, to, at + strlen(from));
        const Plan *plan = plan_parse(arena, "plan", broken.text, diag);
        bool sound = plan && verify_plan(plan, diag);
        CHECK(!sound && strstr(diag_text(diag), expected), "not said: %s; but: %s", expected,
              diag_text(diag));
        diag_destroy(diag);
        arena_destroy(arena);
    }
    strbuf_destroy(&text);
    strbuf_destroy(&broken);
    run_close(&run);
    check_end();
}

static void test_refused(void) {
    check_refused("one state in bf16, the other in f32", "{name=\"adam_v/wte\", of=\"wte\"} : bf16",
                  "{name=\"adam_v/wte\", of=\"wte\"} : f32", "it must be bf16");
    check_refused("a state in f16", "{name=\"adam_m/wte\", of=\"wte\"} : bf16",
                  "{name=\"adam_m/wte\", of=\"wte\"} : f16", "it must be f32");
}

int main(void) {
    static const struct {
        const char *optimizer;
        double rate;
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05}, {"lamb", 5e-3}, {"muon", 2e-3}};
    test_second_moments();
    test_thresholds();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i += VARIANT_STEP) {
        test_training(KINDS[i].optimizer, KINDS[i].rate);
        test_layouts(KINDS[i].optimizer, KINDS[i].rate);
    }
    test_checkpoint();
    test_refused();
    compare_print_worst();
    return check_report();
}
