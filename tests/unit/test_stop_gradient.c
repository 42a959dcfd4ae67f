/* Parameters that ops.stop_gradient holds, under layouts against one rank: they stay as they were
 * made, others learn the same everywhere. A shared weight then has an accumulator on a stage that
 * adds nothing to it; catches one whose memory something else uses, in the planner and the
 * verifier.
 */
#include "planner/planner.h"
#include "tests/unit/train_compare.h"

static const TrainingSetup TRAINING = {"tests/models/held.lua", 8, 4, 5e-3};

static const LayoutCase CASES[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {{2, 1, 1, 4, 1, "1f1b", true, NULL, 0}, RECOMPUTE_SELECTIVE, 0},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_FULL, 1},
    {{1, 1, 4, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 0},
    {{1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, RECOMPUTE_NONE, 1},
    {{2, 2, 2, 1, 2, "interleaved", true, NULL, 0}, RECOMPUTE_FULL, 1},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static bool is_held(const char *name) {
    bool block = strncmp(name, "blocks.0.", 9) == 0 || strncmp(name, "blocks.1.", 9) == 0;
    return block || strcmp(name, "places") == 0;
}

static int param_number(const Run *run, const char *name) {
    for (int i = 0; i < run->n_params; i++) {
        if (strcmp(run->names[i], name) == 0) return i;
    }
    BUG("no parameter '%s'", name);
}

static void check_held(Run *run) {
    Run made = {0};
    bool done = start_on_one_rank(&made, &TRAINING);
    int n_held = 0;
    CHECK(done && made.n_params == run->n_params, "%s", diag_text(made.diag));
    for (int i = 0; done && i < run->n_params; i++) {
        size_t bytes = (size_t)type_elements(&run->types[i]) * sizeof(float);
        int first = param_number(&made, run->names[i]);
        bool same = memcmp(run_weight(&made, first), run_weight(run, i), bytes) == 0;
        CHECK(same == is_held(run->names[i]), "'%s' %s", run->names[i],
              same ? "did not learn" : "has changed");
        n_held += same;
    }
    CHECK(n_held == 11, "%d parameters are held", n_held);
    run_close(&made);
}

static Buffer *buffer_of(Program *program, const Node *node) {
    return &program->buffers[node->id * MAX_OUTPUTS];
}

/* A shard of a gradient moved to where the table's accumulator lies, on the stage that adds nothing
 * to it. */
static void check_borrowed(void) {
    Run run;
    check_begin("refused: memory of an accumulator that nothing is added to");
    run_zero = 1;
    bool done =
        run_plan(&run, TRAINING.path, NULL, 0, &CASES[3].layout, TRAINING.global_batch, false);
    run_zero = 0;
    CHECK(done, "%s", diag_text(run.diag));
    Program *program = done ? &run.plan->programs[run.plan->stages[0].program] : NULL;
    const Node *table = NULL, *update = NULL;
    for (int n = 0; done && n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        bool gradient = node->op == OP_ACCUMULATOR && buffer_of(program, node)->bytes > 0;
        if (gradient && strcmp(node_string(node, ATTR_of), "wte") == 0) table = node;
        if (node->op == OP_CLIP_SCALE) update = node;
    }
    CHECK(table && update, "the stage's accumulator or update is not there");
    if (table && update) {
        /* Read by the update, long after the accumulator was. */
        Buffer *factor = buffer_of(program, update);
        factor->region = REGION_PERSISTENT;
        factor->class = CLASS_GRADIENT;
        factor->offset_bytes = buffer_of(program, table)->offset_bytes;
        CHECK(!verify_plan(run.plan, run.diag), "accepted");
        CHECK(strstr(diag_text(run.diag), "grad/wte"), "says: %s", diag_text(run.diag));
    }
    run_close(&run);
    check_end();
}

int main(void) {
    Run one;
    bool done = start_on_one_rank(&one, &TRAINING) && run_training(&one, &TRAINING);
    check_begin("held on one rank");
    CHECK(done, "%s", diag_text(one.diag));
    if (done) check_held(&one);
    check_end();
    for (int c = 0; done && c < N_CASES; c++) check_case(&TRAINING, &CASES[c], &one, check_held);
    run_close(&one);
    check_borrowed();
    return check_report();
}
