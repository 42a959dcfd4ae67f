/* Losses whose logits are computed part by part (part_loss), against all at once on one rank. Would
 * catch: parts that miss or repeat positions, or are put together in another order; labels,
 * log-sum-exps or gradients of another part; a sum over positions that lacks a part; logits kept
 * from the forward, or gradients of them kept for another task; messages that complete a part
 * twice; a loss that no part can be computed of, and is cut all the same.
 */
#include "tests/unit/train_compare.h"

enum { GLOBAL_BATCH = 12 };

static const char *const MODELS[] = {
    "models/gpt.lua",         "models/bert.lua",          "models/hybrid.lua",
    "models/llama.lua",       "tests/models/gemma.lua",   "tests/models/composed.lua",
    "models/t5.lua",          "tests/models/shared.lua",  "tests/models/penalties.lua",
    "models/moe.lua",         "tests/models/experts.lua", "tests/models/all_words.lua",
    "tests/models/twice.lua",
};

static const LayoutCase CASES[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {{1, 1, 1, 12, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{1, 3, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
    {{2, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 2},
    {{1, 2, 1, 6, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 3},
    {{1, 1, 2, 3, 1, "gpipe", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{1, 1, 2, 3, 1, "zb-h1", false, NULL, 0}, RECOMPUTE_NONE, 0},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

/* No value has words for more positions than a part has, and none is kept for another task. */
static void check_values(Run *run) {
    for (int p = 0; p < run->plan->n_programs; p++) {
        const Program *program = &run->plan->programs[p];
        const Graph *graph = program->graph;
        int seq = axis_find(&graph->axes, "seq", 3);
        int rows = axis_find(&graph->axes, LOSS_ROWS, (int)strlen(LOSS_ROWS));
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            for (int o = 0; o < node->n_outputs; o++) {
                const Type *type = &node->types[o];
                if (type_find_axis(type, AXIS_VOCAB) < 0) continue;
                CHECK(type_find_axis(type, seq) < 0, "%%%d has words for all positions", n);
                int at = type_find_axis(type, rows);
                if (at < 0) continue;
                CHECK(type->dims[at] * run_loss_parts < run->plan->seq + run_loss_parts,
                      "%%%d has words for %lld positions", n, (long long)type->dims[at]);
                CHECK(program->buffers[n * MAX_OUTPUTS + o].region == REGION_SCRATCH,
                      "%%%d is kept", n);
            }
        }
    }
}

static Run *all_at_once; /* the same model, trained alike */

/* Forward-only work makes the loss as training does. */
static void check_evaluation(Run *run) {
    int64_t n_labels = run->plan->global_batch * run->plan->seq;
    int32_t *tokens =
        ARENA_ARRAY(run->arena, int32_t, run->plan->global_batch * plan_row(run->plan));
    int32_t *labels = ARENA_ARRAY(run->arena, int32_t, n_labels);
    double ours = 0, theirs = 0;
    fill_batch(run->plan, 99, tokens, labels);
    bool done = engine_evaluate(run->engine, tokens, labels, &ours, run->diag) &&
                engine_evaluate(all_at_once->engine, tokens, labels, &theirs, all_at_once->diag);
    CHECK(done, "%s%s", diag_text(run->diag), diag_text(all_at_once->diag));
    CHECK(fabs(ours - theirs) <= 2e-5 * fabs(theirs), "evaluated: %.8f, all at once %.8f", ours,
          theirs);
    check_values(run);
}

static void check_model(const char *path, int first) {
    const TrainingSetup training = {path, GLOBAL_BATCH, 3, 5e-4};
    Run one;
    run_loss_parts = 1;
    bool done = start_on_one_rank(&one, &training) && run_training(&one, &training);
    all_at_once = &one;
    check_begin(path);
    CHECK(done, "one rank: %s", diag_text(one.diag));
    check_end();
    for (int c = first; done && c < N_CASES; c += check_shared_step()) {
        run_loss_parts = c % 2 ? 3 : 2; /* 16 or 64 positions are no multiple of 3 */
        check_case(&training, &CASES[c], &one, check_evaluation);
    }
    run_loss_parts = 1;
    run_close(&one);
}

static int64_t frame_bytes(int n_parts, int n_positions, const char *schedule, DType precision,
                           bool cuda) {
    char seq[16];
    const ModelSetting settings[] = {{"vocab", "4096"}, {"layers", "2"}, {"seq", seq}};
    const Layout layout = {1, 1, 2, 2, 1, schedule, false, NULL, 0};
    Run run;
    snprintf(seq, sizeof(seq), "%d", n_positions);
    run_loss_parts = n_parts;
    bool done =
        run_plan_for(&run, "models/gpt.lua", settings, 3, &layout, 8, true, cuda, precision);
    run_loss_parts = 1;
    CHECK(done, "%s", diag_text(run.diag));
    int64_t bytes = done ? run.plan->stages[1].arena_bytes : 0;
    run_close(&run);
    return bytes;
}

/* Of the last stage: as many logits less as the schedule keeps, but for a part's. */
static void check_memory(void) {
    static const struct {
        const char *schedule;
        int n_kept;
        DType precision;
        bool cuda;
    } KEPT[] = {
        {"1f1b", 1, DTYPE_F32, false},
        {"gpipe", 4, DTYPE_BF16, false},
        {"zb-h1", 2, DTYPE_BF16, true},
    };
    enum { POSITIONS = 256, PARTS = 16 };
    for (size_t i = 0; i < sizeof(KEPT) / sizeof(KEPT[0]); i++) {
        check_begin(KEPT[i].schedule);
        int64_t logits = 2 * POSITIONS * 4096 * (int64_t)dtype_bytes(KEPT[i].precision);
        int64_t all = frame_bytes(1, POSITIONS, KEPT[i].schedule, KEPT[i].precision, KEPT[i].cuda);
        int64_t parts =
            frame_bytes(PARTS, POSITIONS, KEPT[i].schedule, KEPT[i].precision, KEPT[i].cuda);
        int64_t least = KEPT[i].n_kept * logits - logits / 4;
        CHECK(all - parts > least, "%lld bytes less, of %lld for logits", (long long)(all - parts),
              (long long)(KEPT[i].n_kept * logits));
        check_end();
    }
}

/* `n_parts` against one, on one rank. */
static void check_settings(const char *name, const char *path, const ModelSetting settings[2],
                           const int *n_parts, int n) {
    const Layout alone = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    Run one;
    bool done = run_plan(&one, path, settings, 2, &alone, 4, false) && run_start(&one) &&
                run_steps_keeping(&one, 2, 5e-4);
    CHECK(done, "%s", diag_text(one.diag));
    for (int i = 0; done && i < n; i++) {
        char text[64];
        Run run;
        snprintf(text, sizeof(text), "%s in %d parts", name, n_parts[i]);
        check_begin(text);
        run_loss_parts = n_parts[i];
        bool ran = run_plan(&run, path, settings, 2, &alone, 4, true) && run_start(&run) &&
                   run_steps_keeping(&run, 2, 5e-4);
        CHECK(ran, "%s", diag_text(run.diag));
        all_at_once = &one;
        if (ran) compare_runs(&run, &one, 2);
        if (ran) check_evaluation(&run);
        run_loss_parts = 1;
        run_close(&run);
        check_end();
    }
    run_close(&one);
}

/* Two levels of concat, and as many parts as there may be; losses that read what all of a row's
 * positions gave. */
static void check_losses(void) {
    static const int PARTS[] = {7, 9, 63, 64}, FEW[] = {3};
    static const char *const PREFERENCES[] = {"dpo", "ipo", "simpo", "orpo", "kto"};
    const ModelSetting small[2] = {{"vocab", "61"}, {"layers", "1"}};
    check_settings("a loss", "models/gpt.lua", small, PARTS, 4);
    for (size_t i = 0; i < sizeof(PREFERENCES) / sizeof(PREFERENCES[0]); i++) {
        const ModelSetting of[2] = {{"preference", PREFERENCES[i]}, {"layers", "2"}};
        check_settings(PREFERENCES[i], "models/llama.lua", of, FEW, 1);
    }
    const ModelSetting smooth[2] = {{"label_smoothing", "0.1"}, {"layers", "2"}};
    check_settings("smoothed labels", "models/llama.lua", smooth, FEW, 1);
}

static void check_refused(void) {
    static const struct {
        const char *name, *path, *why;
        int n_parts, c;
    } CASES_REFUSED[] = {
        {"more parts than positions", "tests/models/shared.lua", "there are not as many positions",
         9, 1},
        {"positions that c divides", "models/gpt.lua",
         "c divides the positions already; leave one of both out", 2, 2},
        {"logits that are read once more", "tests/models/over_rows.lua",
         "logits are read once more, with what was made of all", 2, 1},
        {"logits of which each needs all", "tests/models/whole_logits.lua",
         "what is made of logits here needs all positions", 2, 1},
    };
    const Layout alone = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    for (size_t i = 0; i < sizeof(CASES_REFUSED) / sizeof(CASES_REFUSED[0]); i++) {
        Run run;
        check_begin(CASES_REFUSED[i].name);
        run_loss_parts = CASES_REFUSED[i].n_parts;
        run_context = CASES_REFUSED[i].c;
        bool done = run_plan(&run, CASES_REFUSED[i].path, NULL, 0, &alone, 2, true);
        run_loss_parts = run_context = 1;
        CHECK(!done, "it was planned");
        CHECK(strstr(diag_text(run.diag), CASES_REFUSED[i].why), "%s", diag_text(run.diag));
        run_close(&run);
        check_end();
    }
}

int main(void) {
    check_refused();
    check_memory();
    check_losses();
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        check_model(MODELS[i], (int)i % check_shared_step());
    }
    compare_print_worst();
    return check_report();
}
