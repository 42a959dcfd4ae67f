/* A student that learns from a teacher: losses and gradients against PyTorch's in float64, every
 * layout against one rank, the teacher as it was, a student that is its own teacher, what a plan
 * keeps of a teacher's blocks, files and checkpoints, and plans that say otherwise than they do.
 */
#include "planner/planner.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { BATCH = 8, STEPS = 3 };
static const double RATE = 5e-3;

#define REFERENCE "tests/reference/distill.safetensors"

#define SMALL                                                                                      \
    {"layers", "2"}, {"model", "32"}, {"heads", "8"}, {"seq", "16"}, {"vocab", "63"}, {            \
        "ffn", "64"                                                                                \
    }
#define LARGER                                                                                     \
    {"layers", "3"}, {"model", "48"}, {"seq", "16"}, {"vocab", "63"}, {"heads", "4"}, {            \
        "kv_heads", "4"                                                                            \
    }
static const ModelSetting STUDENT[] = {SMALL}, TEACHER[] = {LARGER};
static const ModelSetting ADAPTED[] = {SMALL, {"lora", "3"}, {"documents", "7"}};
static const ModelSetting KEPT_APART[] = {LARGER, {"documents", "7"}};
static const ModelSetting DEEPER[] = {{"layers", "4"}, {"model", "32"}, {"heads", "8"},
                                      {"seq", "16"},   {"vocab", "63"}, {"ffn", "64"}};
enum { N_SMALL = 6, N_LARGER = 6 };

static const Layout ALONE = {1, 1, 1, BATCH, 1, "1f1b", false, NULL, 0};

/* --- PyTorch's numbers --- */

static const struct {
    const char *name;
    Distillation how; /* kind, alpha, temperature, beta */
    bool masked;
} CASES[] = {
    {"forward", {"forward", 1.0, 1.0, 0.5, true, 0, 0}, false},
    {"warm", {"forward", 0.5, 2.0, 0.5, true, 0, 0}, false},
    {"reverse", {"reverse", 0.7, 2.0, 0.5, true, 0, 0}, false},
    {"jsd", {"jsd", 0.6, 1.5, 0.3, true, 0, 0}, false},
    {"masked", {"forward", 0.4, 3.0, 0.5, true, 0, 0}, true},
    {"masked_jsd", {"jsd", 1.0, 1.0, 0.5, true, 0, 0}, true},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static const void *find(const Safetensors *file, Arena *arena, const char *name, const char *what) {
    SafetensorsInfo info;
    const char *key = what ? arena_printf(arena, "%s.%s", name, what) : name;
    if (!safetensors_find(file, key, &info)) BUG("%s has no '%s'", REFERENCE, key);
    void *copy = arena_alloc(arena, info.n_bytes);
    memcpy(copy, info.data, info.n_bytes);
    return copy;
}

static double value_of(const StepResult *result, const char *name) {
    for (int i = 0; i < result->n_values; i++) {
        if (strcmp(result->values[i].name, name) == 0) return result->values[i].value;
    }
    return NAN;
}

static double worst_number, worst_gradient; /* differences seen */

static void compare_number(const char *what, double is, const float *want) {
    double error = fabs(is - (double)*want) / fmax(1, fabs((double)*want));
    compare_note(&worst_number, error);
    CHECK(error < 2e-6, "%s is %.8f, PyTorch's %.8f", what, is, (double)*want);
}

static void check_numbers_of(int c, const Layout *layout, const Safetensors *file) {
    const ModelSetting masked[] = {{"masked", "true"}};
    const RunTeacher from = {"tests/models/distilled.lua", NULL, 0, CASES[c].how};
    static const char *const MADE[] = {"table", "head", "teacher.table", "teacher.head"};
    char name[160], title[80];
    Run run;
    snprintf(title, sizeof(title), "as PyTorch: %s", CASES[c].name);
    check_begin(layout_name(title, layout, name, sizeof(name)));
    run_teacher = &from;
    bool done =
        run_plan(&run, from.path, masked, CASES[c].masked, layout, 4, true) && run_start(&run);
    run_teacher = NULL;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        Arena *arena = run.arena;
        const char *labels = CASES[c].masked ? "masked" : "labels";
        StepResult result;
        float gradient[11 * 8];
        double loss;
        for (int i = 0; i < 4; i++) {
            const char *key = i < 2 ? arena_printf(arena, "student.%s", MADE[i]) : MADE[i];
            CHECK(engine_write_parameter(run.engine, MADE[i], find(file, arena, key, NULL)),
                  "no '%s'", MADE[i]);
        }
        const int32_t *tokens = find(file, arena, "tokens", NULL);
        const int32_t *said = find(file, arena, labels, NULL);
        CHECK(engine_evaluate(run.engine, tokens, said, &loss, run.diag), "%s",
              diag_text(run.diag));
        compare_number("loss without a step", loss, find(file, arena, CASES[c].name, "loss"));
        CHECK(engine_evaluated(run.engine, "kl", &loss), "no kl");
        compare_number("kl without a step", loss, find(file, arena, CASES[c].name, "kl"));
        CHECK(!engine_evaluated(run.engine, "none", &loss), "a number that is not there");
        CHECK(engine_step(run.engine, 1, tokens, said, 1e-3, &result, run.diag), "%s",
              diag_text(run.diag));
        compare_number("loss", result.loss, find(file, arena, CASES[c].name, "loss"));
        compare_number("kl", value_of(&result, "kl"), find(file, arena, CASES[c].name, "kl"));
        compare_number("ce", value_of(&result, "ce"), find(file, arena, CASES[c].name, "ce"));
        if (engine_read_gradient(run.engine, "head", gradient)) {
            const float *want = find(file, arena, CASES[c].name, "gradient");
            double error = compare_note(&worst_gradient, relative_distance(gradient, want, 11 * 8));
            CHECK(error < 3e-6, "the gradient differs by %.3g of its norm", error);
        }
    }
    run_close(&run);
    check_end();
}

static void check_numbers(void) {
    static const Layout WAYS[] = {{1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
                                  {2, 1, 1, 4, 1, "1f1b", false, NULL, 0}, /* 11 words over 2 */
                                  {1, 2, 1, 1, 1, "1f1b", false, NULL, 0}};
    Diag *diag = diag_create();
    Safetensors *file = safetensors_open(REFERENCE, diag);
    if (!file) BUG("%s", diag_text(diag));
    for (int c = 0; c < N_CASES; c++) {
        for (int w = 0; w < 3; w++) {
            check_numbers_of(c, &WAYS[w], file);
        }
        run_loss_parts = 3;
        check_numbers_of(c, &WAYS[0], file);
        run_loss_parts = 1;
    }
    safetensors_close(file);
    diag_destroy(diag);
}

/* --- layouts --- */

static const struct {
    Layout layout; /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    int c, zero;
    Recompute recompute;
    int loss_parts, lanes;
} LAYOUTS[] = {
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 1},
    {{2, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 4, 1},
    {{4, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 1}, /* 2 kv_heads, 4 */
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 2, 3, RECOMPUTE_FULL, 1, 1},
    {{1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 1, 0, RECOMPUTE_SELECTIVE, 1, 1},
    {{1, 1, 2, 2, 2, "zb-v", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 1},
    {{2, 2, 2, 1, 1, "1f1b", false, NULL, 0}, 1, 1, RECOMPUTE_NONE, 1, 1},
    {{1, 2, 4, 2, 1, "gpipe", false, NULL, 0}, 1, 2, RECOMPUTE_NONE, 2, 1},
    {{1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 1},
    {{2, 1, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 0, RECOMPUTE_NONE, 1, 2},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static const struct {
    const char *name, *path, *teacher;
    const ModelSetting *settings;
    int n_settings;
    const ModelSetting *teacher_settings;
    int n_teacher_settings;
    Distillation how;
} TRIED[] = {
    {"llama from llama",
     "models/llama.lua",
     "models/llama.lua",
     STUDENT,
     N_SMALL,
     TEACHER,
     N_LARGER,
     {"forward", 0.5, 2.0, 0.5, true, 0, 0}},
    {"gpt from gpt, reverse",
     "models/gpt.lua",
     "models/gpt.lua",
     STUDENT,
     N_SMALL,
     TEACHER,
     N_LARGER,
     {"reverse", 1.0, 1.0, 0.5, true, 0, 0}},
    {"adapters from gpt, jsd, documents",
     "models/llama.lua",
     "models/gpt.lua",
     ADAPTED,
     N_SMALL + 2,
     KEPT_APART,
     N_LARGER + 1,
     {"jsd", 0.7, 1.0, 0.3, true, 0, 0}},
    {"llama from what is stored",
     "models/llama.lua",
     NULL,
     DEEPER,
     N_SMALL,
     NULL,
     0,
     {"forward", 0.6, 1.0, 0.5, true, 5, 63}},
};
/* Its attention has sinks, of which a gradient reads more than the result. */
static const ModelSetting SUNK[] = {{"layers", "2"}, {"seq", "16"}, {"vocab", "63"}};
enum { N_TRIED = sizeof(TRIED) / sizeof(TRIED[0]) };

static bool start(Run *run, int of, const Layout *layout) {
    const RunTeacher from = {TRIED[of].teacher, TRIED[of].teacher_settings,
                             TRIED[of].n_teacher_settings, TRIED[of].how};
    run_teacher = &from;
    bool done = run_plan(run, TRIED[of].path, TRIED[of].settings, TRIED[of].n_settings, layout,
                         BATCH, true);
    run_teacher = NULL;
    return done && run_start(run);
}

/* `made` is untrained. */
static void check_teacher_stays(Run *run, Run *made) {
    int n_teachers = 0;
    for (int i = 0; i < made->n_params; i++) {
        if (strncmp(made->names[i], "teacher.", 8) != 0) continue;
        int64_t n = type_elements(&made->types[i]);
        float *now = ARENA_ARRAY(run->arena, float, n);
        CHECK(engine_read_parameter(run->engine, made->names[i], now), "no '%s'", made->names[i]);
        CHECK(memcmp(now, run_weight(made, i), (size_t)n * sizeof(float)) == 0, "'%s' has changed",
              made->names[i]);
        n_teachers++;
    }
    CHECK(n_teachers > 10 || plan_stored_words(run->plan), "%d parameters of the teacher",
          n_teachers);
}

static void check_layout(int of, int l, Run *one, Run *made) {
    char name[160];
    Run run;
    run_zero = LAYOUTS[l].zero;
    run_context = LAYOUTS[l].c;
    run_recompute = LAYOUTS[l].recompute;
    run_loss_parts = LAYOUTS[l].loss_parts;
    run_lanes = LAYOUTS[l].lanes;
    check_begin(layout_name(TRIED[of].name, &LAYOUTS[l].layout, name, sizeof(name)));
    bool done = start(&run, of, &LAYOUTS[l].layout) && run_steps_keeping(&run, STEPS, RATE);
    run_zero = 0;
    run_context = run_loss_parts = run_lanes = 1;
    run_recompute = RECOMPUTE_NONE;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_runs(&run, one, STEPS);
        check_teacher_stays(&run, made);
    }
    run_close(&run);
    check_end();
}

static void check_layouts(int of) {
    Run one, made;
    check_begin(TRIED[of].name);
    bool done = start(&one, of, &ALONE) && run_steps_keeping(&one, STEPS, RATE);
    done = start(&made, of, &ALONE) && done;
    CHECK(done, "%s%s", diag_text(one.diag), diag_text(made.diag));
    if (done) check_teacher_stays(&one, &made);
    check_end();
    for (int l = of % VARIANT_STEP; done && l < N_LAYOUTS; l += VARIANT_STEP) {
        check_layout(of, l, &one, &made);
    }
    run_close(&one);
    run_close(&made);
}

/* --- what follows from the definition --- */

/* Weights of one model under two names: nothing is to be learned. */
static void check_own_teacher(void) {
    const RunTeacher from = {
        "models/llama.lua", STUDENT, N_SMALL, {"forward", 1, 2, 0.5, true, 0, 0}};
    Run run;
    check_begin("a student that is its own teacher has nothing to learn");
    run_teacher = &from;
    bool done = run_plan(&run, from.path, STUDENT, N_SMALL, &ALONE, BATCH, true) && run_start(&run);
    run_teacher = NULL;
    for (int i = 0; done && i < run.n_params; i++) {
        if (strncmp(run.names[i], "teacher.", 8) == 0) continue;
        const char *its = arena_printf(run.arena, "teacher.%s", run.names[i]);
        CHECK(engine_write_parameter(run.engine, its, run_weight(&run, i)), "no '%s'", its);
    }
    done = done && run_steps(&run, 1, 0);
    CHECK(done, "%s", diag_text(run.diag));
    CHECK(fabs(run.losses[0]) < 1e-6, "the loss is %g", run.losses[0]);
    CHECK(run.norms[0] < 1e-5, "the gradient's norm is %g", run.norms[0]);
    run_close(&run);
    check_end();
}

static void check_slopes(int of) {
    static const char *const NAMES[] = {"blocks.1.attn.wv", "blocks.0.attn.wo", "wte"};
    static const char *const ADAPTERS[] = {"blocks.1.attn.wv.lora_b", "blocks.0.mlp.wup.lora_b"};
    const bool adapted = TRIED[of].settings == ADAPTED;
    char name[160];
    int32_t tokens[BATCH * 16], labels[BATCH * 16];
    Run run;
    snprintf(name, sizeof(name), "the gradient is the loss's slope: %s", TRIED[of].name);
    check_begin(name);
    bool done = start(&run, of, &ALONE);
    if (done) fill_batch(run.plan, 0, tokens, labels);
    for (int i = 0; done && i < (adapted ? 2 : 3); i++) {
        double norm, slope;
        done = run_steps(&run, 1, 0);
        if (!run_slope(&run, adapted ? ADAPTERS[i] : NAMES[i], tokens, labels, &norm, &slope))
            continue;
        CHECK(fabs(slope - norm) < 1e-2 * norm,
              "%s: the loss's slope is %g, the gradient's norm %g",
              adapted ? ADAPTERS[i] : NAMES[i], slope, norm);
    }
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

/* --- memory and precision --- */

/* A stage of a teacher's blocks alone has no gradients, no states, no backward; and no frame keeps
 * what such a block makes. */
static void check_memory(void) {
    static const int SPLIT[] = {3, 2};
    const Layout layout = {1, 1, 2, 2, 1, "1f1b", false, SPLIT, 2};
    Run run;
    check_begin("nothing is kept of a teacher's blocks");
    bool done = start(&run, 0, &layout);
    CHECK(done, "%s", diag_text(run.diag));
    const Program *program = done ? &run.plan->programs[run.plan->stages[0].program] : NULL;
    for (int n = 0; done && n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        const char *op = OPS[node->op].name, *of = node_string(node, ATTR_of);
        CHECK(node->op != OP_STATE && !of[0], "%s of '%s' on the teacher's stage", op, of);
        CHECK(node->phase != PHASE_BACKWARD, "%s in its backward", op);
        for (int o = 0; o < node->n_outputs; o++) {
            const Buffer *buffer = &program->buffers[n * MAX_OUTPUTS + o];
            bool keeps = buffer->region == REGION_FRAME && node->op != OP_INPUT;
            CHECK(!keeps, "a frame keeps what %s makes", op);
        }
    }
    if (done) {
        int64_t teacher = plan_count_teacher(run.plan);
        CHECK(teacher == run.plan->n_parameters - run.plan->n_trained,
              "%ld are the teacher's, %ld frozen", (long)teacher,
              (long)(run.plan->n_parameters - run.plan->n_trained));
    }
    run_close(&run);
    check_end();
}

static void check_precisions(void) {
    Run wide, run;
    check_begin("in bf16, with the teacher in 8 bits");
    bool done = start(&wide, 0, &ALONE) && run_steps(&wide, STEPS, RATE);
    run_precision = DTYPE_BF16;
    run_frozen_bits = 8;
    done = start(&run, 0, &ALONE) && run_steps(&run, STEPS, RATE) && done;
    run_precision = DTYPE_F32;
    run_frozen_bits = 0;
    CHECK(done, "%s%s", diag_text(wide.diag), diag_text(run.diag));
    int n_packed = 0;
    for (int n = 0; done && n < run.plan->programs[0].graph->n_nodes; n++) {
        const Node *node = run.plan->programs[0].graph->nodes[n];
        n_packed += node->op == OP_PARAM && node->types[0].dtype == DTYPE_INT8;
    }
    CHECK(!done || n_packed == 3 * 7, "%d weights are packed", n_packed);
    for (int i = 0; done && i < STEPS; i++) {
        double error = fabs(run.losses[i] / wide.losses[i] - 1);
        CHECK(error < 1e-2, "loss %g, in f32 %g", run.losses[i], wide.losses[i]);
    }
    run_close(&wide);
    run_close(&run);
    check_end();
}

/* --- files --- */

#define FILE_OF(name) "build/test_distill_" name ".safetensors"

/* A teacher's file is a model's own. */
static bool make_teacher(const char *path, int64_t seed_steps) {
    Run run;
    bool done = run_plan(&run, "models/llama.lua", TEACHER, N_LARGER, &ALONE, BATCH, false) &&
                run_start(&run) && run_steps(&run, (int)seed_steps, RATE) &&
                engine_save(run.engine, path, run.diag);
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    return done;
}

static void check_files(void) {
    const Layout two = {1, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    Run run, again;
    TrainingPlace place;
    check_begin("a checkpoint without the teacher goes on with it, under another layout");
    bool done = make_teacher(FILE_OF("teacher"), 1) && make_teacher(FILE_OF("other"), 2);
    done = done && start(&run, 0, &ALONE) &&
           engine_load_teacher(run.engine, FILE_OF("teacher"), run.diag);
    CHECK(done, "%s", done ? "" : diag_text(run.diag));
    if (!done) return;
    engine_init_parameters(run.engine); /* of the student's */
    CHECK(run_steps(&run, 2, RATE) && run_save(&run, FILE_OF("run"), 2, false), "%s",
          diag_text(run.diag));
    CHECK(run_save(&run, FILE_OF("behind"), 2, true), "%s", diag_text(run.diag));
    CHECK(run_steps_from(&run, 2, 2, RATE), "%s", diag_text(run.diag));
    Safetensors *file = safetensors_open(FILE_OF("run"), run.diag);
    for (int i = 0; file && i < safetensors_count(file); i++) {
        CHECK(!strstr(safetensors_at(file, i)->name, "teacher."), "a checkpoint has '%s'",
              safetensors_at(file, i)->name);
    }
    if (file) safetensors_close(file);
    done =
        start(&again, 0, &two) && engine_load_teacher(again.engine, FILE_OF("teacher"), again.diag);
    done = done && engine_load_state(again.engine, FILE_OF("behind"), &place, again.diag) &&
           run_steps_from(&again, 2, 2, RATE);
    CHECK(done, "%s", diag_text(again.diag));
    for (int i = 2; done && i < 4; i++) {
        CHECK(fabs(again.losses[i] / run.losses[i] - 1) < 1e-5, "step %d: %.8f, then %.8f", i + 1,
              run.losses[i], again.losses[i]);
    }
    done = done && engine_load_teacher(again.engine, FILE_OF("other"), again.diag);
    CHECK(done && !engine_load_state(again.engine, FILE_OF("run"), &place, again.diag) &&
              strstr(diag_text(again.diag), "was trained with another teacher's weights"),
          "another teacher: %s", diag_text(again.diag));
    CHECK(!engine_load_teacher(again.engine, FILE_OF("run"), again.diag) &&
              strstr(diag_text(again.diag), "the teacher's is f32"),
          "the student's weights for the teacher's: %s", diag_text(again.diag));
    run_close(&again);
    run_close(&run);
    const char *const made[] = {FILE_OF("teacher"), FILE_OF("other"), FILE_OF("run"),
                                FILE_OF("behind")};
    for (int i = 0; i < 4; i++) unlink(made[i]);
    check_end();
}

/* --- plans that say otherwise than they do --- */

/* "#-N" of a student's parameter takes off as many blocks as the teacher has. */
static void check_damaged(void) {
    Run run;
    check_begin("a plan whose names take off too many blocks");
    bool done = start(&run, 0, &ALONE);
    CHECK(done, "%s", diag_text(run.diag));
    StrBuf text = strbuf_create();
    if (done) plan_print(&text, run.plan);
    char *at = done ? strstr(text.text, "\"blocks.#-3.") : NULL;
    CHECK(at, "no name of a block with a teacher's before it");
    if (at) at[strlen("\"blocks.#-")] = '9';
    Plan *plan = at ? plan_parse(run.arena, "plan", text.text, run.diag) : NULL;
    bool refused = !plan || !verify_plan(plan, run.diag);
    CHECK(refused && strstr(diag_text(run.diag), "takes off more blocks than there are"), "%s",
          diag_text(run.diag));
    strbuf_destroy(&text);
    run_close(&run);
    check_end();
}

/* What has no teacher, or none that fits: said by the front end. */
static void check_refused(void) {
    static const struct {
        const char *name, *teacher;
        ModelSetting student_setting, teacher_setting;
        const char *says;
    } BAD[] = {
        {"another vocabulary",
         "models/llama.lua",
         {"vocab", "64"},
         {"vocab", "65"},
         "--teacher: its vocab is 65, the student's 64"},
        {"an encoder",
         "models/t5.lua",
         {"vocab", "64"},
         {"vocab", "64"},
         "model 't5' cannot teach 'llama': it reads "},
        {"classes", "models/llama.lua", {"classes", "2"}, {"vocab", "256"}, "no output 'logits'"},
        {"a teacher of classes",
         "models/llama.lua",
         {"vocab", "256"},
         {"classes", "2"},
         "cannot teach 'llama': its logits are not of tokens"},
        {"preferences",
         "models/llama.lua",
         {"preference", "dpo"},
         {"vocab", "256"},
         "learns from preferences or rewards"},
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        const RunTeacher from = {
            BAD[i].teacher, &BAD[i].teacher_setting, 1, {"forward", 0.5, 1, 0.5, false, 0, 0}};
        Run run;
        check_begin(BAD[i].name);
        run_teacher = &from;
        bool done =
            run_plan(&run, "models/llama.lua", &BAD[i].student_setting, 1, &ALONE, BATCH, false);
        run_teacher = NULL;
        CHECK(!done && strstr(diag_text(run.diag), BAD[i].says), "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

static void check_sinks(void) {
    const RunTeacher from = {"models/gptoss.lua", SUNK, 3, {"forward", 0.5, 1, 0.5, false, 0, 0}};
    Run run;
    check_begin("a teacher whose attention has sinks");
    run_teacher = &from;
    bool done = run_plan(&run, "models/llama.lua", STUDENT, N_SMALL, &ALONE, BATCH, true) &&
                run_start(&run) && run_steps(&run, 2, RATE);
    run_teacher = NULL;
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    check_end();
}

/* A loss that reads the teacher itself; without one there is an input that nobody gives. */
static void check_own_loss(void) {
    const ModelSetting own[] = {{"own", "forward"}};
    RunTeacher from = {
        "tests/models/distilled.lua", NULL, 0, {"forward", 0.5, 1, 0.5, false, 0, 0}};
    Run run;
    check_begin("a loss that reads the teacher itself");
    run_teacher = &from;
    bool done = run_plan(&run, from.path, own, 1, &ALONE, BATCH, true) && run_start(&run) &&
                run_steps(&run, 2, RATE);
    CHECK(done, "%s", diag_text(run.diag));
    run_close(&run);
    from.how.is_given = true;
    done = run_plan(&run, from.path, own, 1, &ALONE, BATCH, true);
    CHECK(!done && strstr(diag_text(run.diag), "the model's own loss reads the teacher"), "%s",
          diag_text(run.diag));
    run_teacher = NULL;
    run_close(&run);
    check_end();
}

int main(void) {
    check_numbers();
    for (int of = 0; of < N_TRIED; of++) {
        check_layouts(of);
        check_slopes(of);
    }
    check_own_teacher();
    check_memory();
    check_precisions();
    check_files();
    check_damaged();
    check_refused();
    check_sinks();
    check_own_loss();
    compare_print_worst();
    printf("from PyTorch's: numbers %.2g, gradients %.2g\n", worst_number, worst_gradient);
    return check_report();
}
