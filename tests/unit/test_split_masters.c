/* Copies that are halves of their parameters (--masters split): which are, that they take their
 * bytes away from the plan's memory, that no bit of training changes under any layout or optimizer,
 * nor of a checkpoint, whichever form wrote and whichever reads it, and that plans which would take
 * a parameter in halves for whole are refused.
 *
 * Would catch: a half at another place than its readers look; a parameter in halves that is read,
 * saved, loaded or gathered as f32; a copy that is rounded otherwise than a half; a shard of
 * ZeRO-1 for a half; a message or an optimizer that the order of updates has left behind.
 */
#include "ir/masters.h"
#include "planner/verify/verify.h"
#include "tests/unit/broken_text.h"
#include "tests/unit/train_compare.h"

#include <unistd.h>

enum { STEPS = 4, GLOBAL_BATCH = 16, N_SETTINGS = 9 };
static const Layout ALONE = {1, 1, 1, 8, 1, "1f1b", false, NULL, 0};

static const char *optimizer = "adamw"; /* of what is started from now on */
static const char *tied = "true";

static bool plan(Run *run, bool split, const Layout *layout, bool text) {
    const ModelSetting settings[N_SETTINGS] = {{"optimizer", optimizer},
                                               {"optimizer.eps", "1e-6"},
                                               {"model", "32"},
                                               {"heads", "4"},
                                               {"seq", "16"},
                                               {"vocab", "64"},
                                               {"layers", "4"},
                                               {"ffn", "72"},
                                               {"tied", tied}};
    run_precision = DTYPE_BF16;
    run_split_masters = split;
    bool fine = run_plan(run, "models/gpt.lua", settings, N_SETTINGS, layout, GLOBAL_BATCH, text);
    run_split_masters = false;
    return fine;
}

static bool start(Run *run, bool split, const Layout *layout) {
    return plan(run, split, layout, split) && run_start(run);
}

/* --- which are, and what they take --- */

static int count_halves(const Plan *plan) {
    int count = 0;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) count += node_is_upper(graph->nodes[n]);
    }
    return count;
}

/* Bytes of all copies in bf16 of program 0, or of those that are halves. */
static int64_t copied_bytes(const Plan *plan, bool halves) {
    const Program *program = &plan->programs[0];
    int64_t bytes = 0;
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        int64_t own =
            (program->buffers[n * MAX_OUTPUTS].bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        if (node_is_copy(node) && (!halves || node_is_upper(node))) bytes += own;
    }
    return bytes;
}

/* A block has six weights with copies that are whole halves; there are four, and an embedding. (Of
 * biases, of 32 or 72 numbers, halves would not be aligned.) */
static void test_which(void) {
    static const struct {
        const char *name, *optimizer, *tied;
        Layout layout;
        int zero, halves;
    } CASES[] = {
        {"one rank", "adamw", "true", {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 25},
        {"a head", "adamw", "false", {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 0, 26},
        {"muon, t", "muon", "true", {2, 1, 1, 8, 1, "1f1b", true, NULL, 0}, 0, 25},
        {"lion, d", "lion", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 0, 25},
        {"lamb: of what AdamW updates",
         "lamb",
         "true",
         {1, 1, 1, 8, 1, "1f1b", false, NULL, 0},
         0,
         0},
        {"ZeRO-1", "adamw", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 1, 0},
        {"ZeRO-2", "adamw", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 2, 0},
        {"ZeRO-3", "sgd", "true", {1, 2, 1, 4, 1, "1f1b", false, NULL, 0}, 3, 25},
        {"ZeRO-1 of one", "adamw", "true", {1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, 1, 25},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Run split, whole;
        run_zero = CASES[k].zero;
        tied = CASES[k].tied;
        optimizer = CASES[k].optimizer;
        check_begin(CASES[k].name);
        bool fine = plan(&split, true, &CASES[k].layout, true);
        fine = plan(&whole, false, &CASES[k].layout, true) && fine;
        CHECK(fine, "%s%s", diag_text(split.diag), diag_text(whole.diag));
        if (fine) {
            int halves = count_halves(split.plan);
            int64_t less = whole.plan->stages[0].arena_bytes - split.plan->stages[0].arena_bytes;
            CHECK(halves == CASES[k].halves, "%d are halves, not %d", halves, CASES[k].halves);
            CHECK(count_halves(whole.plan) == 0, "some are though nobody asked");
            CHECK(plan_splits_masters(split.plan) == (halves > 0), "the plan says otherwise");
            CHECK(less == copied_bytes(split.plan, true), "%d bytes less, not %d", (int)less,
                  (int)copied_bytes(split.plan, true));
            CHECK(copied_bytes(split.plan, false) == copied_bytes(whole.plan, false),
                  "copies of another size");
        }
        run_close(&split);
        run_close(&whole);
        check_end();
    }
    run_zero = 0;
    tied = "true";
}

/* --- training --- */

static void test_training(const char *with, double rate) {
    static const LayoutCase CASES[] = {
        {{1, 1, 1, 8, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
        {{2, 2, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_NONE, 3},
        {{1, 2, 2, 2, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 2},
        {{2, 1, 2, 4, 2, "interleaved", false, NULL, 0}, RECOMPUTE_FULL, 0},
        {{1, 4, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_SELECTIVE, 3},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k += VARIANT_STEP) {
        char title[200];
        Run split, whole;
        run_recompute = CASES[k].recompute;
        run_zero = CASES[k].zero;
        optimizer = with;
        int length = snprintf(title, sizeof(title), "halves, ZeRO-%d, ", run_zero);
        layout_name(optimizer, &CASES[k].layout, title + length, sizeof(title) - (size_t)length);
        check_begin(title);
        bool done = start(&split, true, &CASES[k].layout) && run_steps(&split, STEPS, rate);
        done = start(&whole, false, &CASES[k].layout) && run_steps(&whole, STEPS, rate) && done;
        CHECK(done, "%s%s", diag_text(split.diag), diag_text(whole.diag));
        if (done) {
            compare_to_the_bit(&split, &whole, 0, STEPS);
            compare_memory(&split);
        }
        run_close(&split);
        run_close(&whole);
        check_end();
    }
    run_recompute = RECOMPUTE_NONE;
    run_zero = 0;
}

/* --- checkpoints --- */

/* Two steps, a checkpoint, and two more steps from it, in the other form and under another layout
 * too: as if none of it had been. */
static void test_checkpoint(bool from, bool to, bool behind) {
    static const Layout OTHER = {2, 2, 1, 4, 1, "1f1b", false, NULL, 0};
    char path[64], title[120];
    Run whole, first, second;
    TrainingPlace place;
    snprintf(path, sizeof(path), "/tmp/perilune_halves_%d.st", (int)getpid());
    snprintf(title, sizeof(title), "a checkpoint of %s parameters%s, read as %s ones",
             from ? "split" : "whole", behind ? ", behind training" : "", to ? "split" : "whole");
    check_begin(title);
    optimizer = "adamw";
    bool fine = start(&whole, false, &ALONE) && run_steps(&whole, STEPS, 2e-3);
    fine = start(&first, from, &ALONE) && run_steps(&first, 2, 2e-3) && fine;
    fine = fine && run_save(&first, path, 2, behind);
    fine = start(&second, to, &ALONE) && fine;
    fine = fine && engine_load_state(second.engine, path, &place, second.diag) &&
           run_steps_from(&second, 2, STEPS - 2, 2e-3);
    CHECK(fine, "%s%s%s", diag_text(whole.diag), diag_text(first.diag), diag_text(second.diag));
    if (fine) compare_to_the_bit(&second, &whole, 2, STEPS);
    run_close(&second);
    run_zero = 3;
    fine = start(&second, to, &OTHER) && fine;
    run_zero = 0;
    fine = fine && engine_load_state(second.engine, path, &place, second.diag);
    CHECK(fine, "%s", diag_text(second.diag));
    for (int i = 0; fine && i < first.n_params; i++) {
        size_t bytes = (size_t)type_elements(&first.types[i]) * sizeof(float);
        CHECK(memcmp(run_weight(&second, i), run_weight(&first, i), bytes) == 0,
              "'%s' differs under another layout", first.names[i]);
    }
    unlink(path);
    run_close(&whole);
    run_close(&first);
    run_close(&second);
    check_end();
}

/* A weight that is not finite is found and named, in halves, too; lower halves that look like no
 * number are not. */
static void test_not_finite(void) {
    Run run;
    optimizer = "adamw";
    check_begin("a weight that is not finite is named");
    bool fine = start(&run, true, &ALONE) && run_steps(&run, 1, 1e-3);
    CHECK(fine, "%s", diag_text(run.diag));
    for (int i = 0; fine && i < run.n_params; i++) {
        if (strcmp(run.names[i], "blocks.1.mlp.w1") != 0) continue;
        int64_t n = type_elements(&run.types[i]);
        float *values = run_weight(&run, i);
        for (int64_t j = 0; j < n; j++) values[j] = 1.5f + 0x1p-8f - 0x1p-23f * (float)(j % 128);
        CHECK(engine_write_parameter(run.engine, run.names[i], values), "cannot be written");
        CHECK(run_steps_from(&run, 1, 1, 1e-3), "%s", diag_text(run.diag));
        values[5] = NAN;
        engine_write_parameter(run.engine, run.names[i], values);
        CHECK(!run_steps_from(&run, 2, 1, 1e-3) &&
                  strstr(diag_text(run.diag), "parameter 'blocks.1.mlp.w1' is not"),
              "not said: %s", diag_text(run.diag));
        break;
    }
    run_close(&run);
    check_end();
}

/* --- plans that are wrong --- */

/* The first upper half, and its parameter. */
static Node *find_half(const Plan *plan, Node **out_param) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (!node_is_upper(node)) continue;
        *out_param = (Node *)master_pairs(graph, plan->arena)[node->id];
        return node;
    }
    return NULL;
}

typedef enum Damage { ELSEWHERE, IN_F16, READ_WHOLE, IN_SHARDS, NO_PARAMETER, N_DAMAGES } Damage;

static void damage(const Plan *plan, Damage how) {
    Node *param = NULL, *half = find_half(plan, &param);
    if (!param) return;
    Buffer *buffer = &plan->programs[0].buffers[half->id * MAX_OUTPUTS];
    switch (how) {
    case ELSEWHERE: buffer->offset_bytes += buffer->bytes; break;
    case IN_F16: half->types[0].dtype = DTYPE_F16; break;
    case READ_WHOLE: /* the optimizer knows of no copy any more */
        for (int n = 0; n < plan->programs[0].graph->n_nodes; n++) {
            Node *node = plan->programs[0].graph->nodes[n];
            if (!op_is_optimizer(node->op) || node->inputs[0].node != param) continue;
            node->n_inputs--;
            node->n_outputs--;
        }
        break;
    case IN_SHARDS:
        half->shardings[0].mesh[0] = half->shardings[0].mesh[0] == MESH_T ? -1 : MESH_T;
        break;
    default:
        for (int i = 0; i < param->n_attrs; i++) {
            if (param->attrs[i].key == ATTR_name) param->attrs[i].s = "another";
        }
    }
}

static void test_refused(void) {
    static const struct {
        Damage how;
        const char *name, *expected;
    } CASES[] = {
        {ELSEWHERE, "a half beside its place", "does not begin its parameter's memory"},
        {IN_F16, "a half in f16", "f16"},
        {READ_WHOLE, "an optimizer without the half", "which is in halves"},
        {IN_SHARDS, "a half that is divided otherwise", "but whole in 'wte.bf16'"},
        {NO_PARAMETER, "a half of nothing", "has no parameter in f32"},
    };
    optimizer = "adamw";
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        static const Layout LAYOUT = {2, 1, 1, 8, 1, "1f1b", false, NULL, 0};
        Run run;
        check_begin(CASES[k].name);
        bool fine = plan(&run, true, &LAYOUT, false);
        CHECK(fine, "%s", diag_text(run.diag));
        if (fine) {
            damage(run.plan, CASES[k].how);
            check_broken_plan(run.plan, CASES[k].expected);
        }
        run_close(&run);
        check_end();
    }
}

int main(void) {
    static const struct {
        const char *optimizer;
        double rate;
    } KINDS[] = {{"adamw", 2e-3}, {"lion", 3e-4}, {"sgd", 0.05}, {"lamb", 5e-3}, {"muon", 2e-3}};
    test_which();
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i += VARIANT_STEP) {
        test_training(KINDS[i].optimizer, KINDS[i].rate);
    }
    for (int i = 0; i < 8; i++) {
        if (i & 3) test_checkpoint(i & 1, i & 2, i & 4);
    }
    test_not_finite();
    test_refused();
    return check_report();
}
