/* Schedules with backwards in two: the bits of those that cut nothing, what is in which part, and
 * plans broken on purpose. Catches a share of a gradient that is lost, added twice or in another
 * order, a value that is gone before its W, and a proof that lets such a plan pass. */
#include "planner/plan/schedule.h"
#include "tests/unit/broken_plan.h"
#include "tests/unit/small_plan.h"
#include "tests/unit/train_compare.h"

enum { STEPS = 3, GLOBAL_BATCH = 12 };

static const int BARE_3[] = {0, 4, 0};
typedef struct BitsCase {
    const char *model;
    ModelSetting settings[8]; /* up to the first without a key */
    Layout layout;            /* with a schedule that cuts nothing */
    const char *schedule;     /* the one that does */
    Recompute recompute;
    int zero;
    DType precision;
} BitsCase;

/* clang-format off */
#define SMALL {"layers", "4"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}
#define LARGER {"layers", "9"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}
#define UNCLIPPED {"optimizer.max_norm", "1e9"}
/* clang-format on */
static const BitsCase BITS[] = {
    /* tied weights on the first and last stage; more stages than micro-batches */
    {"models/gpt.lua",
     {SMALL, {"vocab", "61"}},
     {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    {"models/gpt.lua",
     {SMALL, {"dropout", "0.1"}, {"attention_dropout", "0.2"}},
     {1, 1, 4, 6, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    /* messages that only gradients of weights need; gathers again; shards of gradients, weights */
    {"models/gpt.lua",
     {SMALL, {"vocab", "61"}},
     {2, 2, 2, 1, 1, "1f1b", true, NULL, 0},
     "zb-h1",
     RECOMPUTE_SELECTIVE,
     2,
     DTYPE_F32},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}},
     {2, 2, 2, 1, 1, "1f1b", true, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     3,
     DTYPE_BF16},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}},
     {1, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_SELECTIVE,
     1,
     DTYPE_F32},
    /* several chunks a stage, and sums to which two of them add */
    {"models/gpt.lua",
     {SMALL, {"vocab", "61"}},
     {1, 1, 2, 2, 2, "interleaved", false, NULL, 0},
     "zb-chunked",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}},
     {2, 2, 2, 1, 2, "interleaved", true, NULL, 0},
     "zb-chunked",
     RECOMPUTE_SELECTIVE,
     3,
     DTYPE_BF16},
    {"tests/models/shared.lua",
     {{NULL, NULL}},
     {1, 1, 2, 3, 2, "interleaved", false, NULL, 0},
     "zb-chunked",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    /* chunks without a block; one stage: then everything follows at once */
    {"models/gpt.lua",
     {SMALL},
     {1, 1, 3, 2, 1, "1f1b", false, BARE_3, 3},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    {"models/gpt.lua",
     {SMALL},
     {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    /* weights that blocks share, and penalties on weights; values that skip blocks; no blocks */
    {"tests/models/shared.lua",
     {{NULL, NULL}},
     {1, 1, 4, 3, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    {"tests/models/penalties.lua",
     {{NULL, NULL}},
     {1, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     2,
     DTYPE_F32},
    {"tests/models/skips.lua",
     {{NULL, NULL}},
     {1, 1, 4, 3, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_SELECTIVE,
     0,
     DTYPE_F32},
    {"tests/models/parts.lua",
     {{NULL, NULL}},
     {1, 1, 2, 3, 1, "1f1b", false, NULL, 0},
     "zb-h1",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    /* down the stages and back: turns, fewer micro-batches than stages, all that divides. Stages
     * have other blocks then, and the norm is summed in another order: none clips. */
    {"models/gpt.lua",
     {LARGER, {"tied", "false"}, {"dropout", "0.1"}, UNCLIPPED},
     {1, 1, 4, 1, 1, "1f1b", false, NULL, 0},
     "zb-v",
     RECOMPUTE_NONE,
     0,
     DTYPE_F32},
    {"models/gpt.lua",
     {LARGER, {"tied", "false"}, UNCLIPPED},
     {1, 1, 3, 6, 1, "1f1b", false, NULL, 0},
     "zb-v",
     RECOMPUTE_SELECTIVE,
     0,
     DTYPE_F32},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}, UNCLIPPED},
     {2, 2, 2, 1, 1, "1f1b", true, NULL, 0},
     "zb-v",
     RECOMPUTE_SELECTIVE,
     3,
     DTYPE_BF16},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}, UNCLIPPED},
     {1, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     "zb-v",
     RECOMPUTE_NONE,
     1,
     DTYPE_F32},
    {"models/gpt.lua",
     {LARGER, {"tied", "false"}, {"dropout", "0.1"}, UNCLIPPED},
     {1, 1, 4, 1, 1, "1f1b", false, NULL, 0},
     "v-half",
     RECOMPUTE_SELECTIVE,
     0,
     DTYPE_F32},
    {"models/llama.lua",
     {SMALL, {"kv_heads", "2"}, UNCLIPPED},
     {1, 2, 2, 1, 1, "1f1b", false, NULL, 0},
     "v-half",
     RECOMPUTE_NONE,
     3,
     DTYPE_BF16},
};

static bool train(Run *run, const BitsCase *c, const Layout *layout) {
    int n_settings = 0;
    while (n_settings < 8 && c->settings[n_settings].key) n_settings++;
    return run_plan(run, c->model, c->settings, n_settings, layout, GLOBAL_BATCH, true) &&
           run_start(run) && run_steps(run, STEPS, 2e-3);
}

/* Sums of the norm go from stage to stage: with other stages they are others. */
static bool same_norm(const Run *whole, const Run *split, int step) {
    double a = whole->norms[step], b = split->norms[step];
    return split->plan->path == PATH_V ? fabs(a - b) < 1e-6 * a : a == b;
}

static void compare_bits(Run *whole, Run *split) {
    for (int step = 0; step < STEPS; step++) {
        CHECK(whole->losses[step] == split->losses[step], "loss of step %d: %.9g, not %.9g",
              step + 1, split->losses[step], whole->losses[step]);
        CHECK(same_norm(whole, split, step), "norm of step %d", step + 1);
    }
    for (int i = 0; i < whole->n_params; i++) {
        size_t bytes = (size_t)type_elements(&whole->types[i]) * sizeof(float);
        float *theirs = ARENA_ARRAY(split->arena, float, type_elements(&whole->types[i]));
        CHECK(engine_read_parameter(split->engine, whole->names[i], theirs), "no '%s'",
              whole->names[i]);
        CHECK(memcmp(run_weight(whole, i), theirs, bytes) == 0, "'%s' differs", whole->names[i]);
    }
}

static void check_bits(const BitsCase *c) {
    char name[160];
    Layout layout = c->layout;
    Run whole, split;
    run_recompute = c->recompute, run_zero = c->zero, run_precision = c->precision;
    bool done = train(&whole, c, &layout);
    layout.schedule = c->schedule;
    if (schedule_path(schedule_find(c->schedule)) == PATH_V) layout.n_chunks = 2;
    check_begin(layout_name(c->model, &layout, name, sizeof(name)));
    bool also = train(&split, c, &layout);
    CHECK(done && also, "%s%s", diag_text(whole.diag), diag_text(split.diag));
    if (done && also) compare_bits(&whole, &split);
    run_close(&whole);
    run_close(&split);
    run_recompute = RECOMPUTE_NONE, run_zero = 0, run_precision = DTYPE_F32;
    check_end();
}

/* ---- What is in which part ---- */

static bool adds_product(const Node *node) {
    return node->op == OP_MATMUL && node->n_inputs == 3;
}

static void check_parts(void) {
    const ModelSetting settings[] = {SMALL};
    const Layout layout = {2, 1, 4, 2, 1, "zb-h1", true, NULL, 0};
    Run run;
    bool done = run_plan(&run, "models/gpt.lua", settings, 4, &layout, GLOBAL_BATCH, false);
    check_begin("products for gradients of weights are in the W, what is sent is not");
    CHECK(done, "%s", diag_text(run.diag));
    for (int s = 0; done && s < 4; s++) {
        const Graph *graph = run.plan->programs[run.plan->stages[s].program].graph;
        int n_products = 0, n_gathers = 0, n_attentions = 0;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            CHECK(!adds_product(node) || node->phase == PHASE_WEIGHTS, "stage %d: %%%d", s, n);
            bool weights = node->phase == PHASE_WEIGHTS;
            n_products += adds_product(node);
            n_gathers += weights && node->op == OP_ALL_GATHER;
            n_attentions += weights && node->op == OP_ATTENTION_GRAD;
        }
        CHECK(n_products >= 6 && n_gathers >= 2 && n_attentions == 0,
              "stage %d: %d products, %d gathers, %d attentions", s, n_products, n_gathers,
              n_attentions);
    }
    run_close(&run);
    check_end();
}

/* ---- Broken on purpose ---- */

static const SmallPlan PIPELINE = {"zb-h1", 1, 1, 4, 1, 8, 8};

static int find_task(const Stage *stage, TaskKind kind, int micro) {
    for (int i = 0; i < stage->n_tasks; i++) {
        if (stage->tasks[i].kind == kind && stage->tasks[i].micro == micro) return i;
    }
    BUG("no such task");
}

static Program *program_of(Plan *plan, int stage) {
    return &plan->programs[plan->stages[stage].program];
}

static void drop_weights(Plan *plan) {
    Stage *stage = &plan->stages[2];
    int at = find_task(stage, TASK_WEIGHTS, 5);
    stage->n_tasks--;
    memmove(&stage->tasks[at], &stage->tasks[at + 1], sizeof(Task) * (size_t)(stage->n_tasks - at));
}
static void drop_all_weights(Plan *plan) {
    Stage *stage = &plan->stages[1];
    int n = 0;
    for (int i = 0; i < stage->n_tasks; i++) {
        if (stage->tasks[i].kind != TASK_WEIGHTS) stage->tasks[n++] = stage->tasks[i];
    }
    stage->n_tasks = n;
}
static void weights_twice(Plan *plan) {
    Stage *stage = &plan->stages[3];
    stage->tasks[find_task(stage, TASK_WEIGHTS, 4)].micro = 3;
}
static void weights_first(Plan *plan) {
    Stage *stage = &plan->stages[1];
    int at = find_task(stage, TASK_WEIGHTS, 2), before = find_task(stage, TASK_BACKWARD, 2) - 1;
    Task moved = stage->tasks[at];
    memmove(&stage->tasks[before + 1], &stage->tasks[before], sizeof(Task) * (size_t)(at - before));
    stage->tasks[before] = moved;
}
static void weights_after_update(Plan *plan) {
    Stage *stage = &plan->stages[3];
    Task last = stage->tasks[stage->n_tasks - 1];
    stage->tasks[stage->n_tasks - 1] = stage->tasks[stage->n_tasks - 2];
    stage->tasks[stage->n_tasks - 2] = last;
}
static void few_frames(Plan *plan) {
    plan->stages[3].frame_slots[0]--;
}
/* A value that the W reads lies where the backward put another that the W reads, too. */
static void overwritten(Plan *plan) {
    Program *program = program_of(plan, 1);
    Value read[2] = {NO_VALUE, NO_VALUE};
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        for (int i = 0; node->phase == PHASE_WEIGHTS && i < node->n_inputs; i++) {
            Value value = node->inputs[i];
            Phase phase = value.node->phase;
            if (phase == PHASE_FORWARD && !(OPS[value.node->op].flags & LEAF)) read[0] = value;
            if (phase == PHASE_BACKWARD && !(OPS[value.node->op].flags & LEAF)) read[1] = value;
        }
    }
    Buffer *kept = &program->buffers[read[0].node->id * MAX_OUTPUTS + read[0].output];
    Buffer *made = &program->buffers[read[1].node->id * MAX_OUTPUTS + read[1].output];
    made->offset_bytes = kept->offset_bytes;
}
/* Scratch is the next task's when the W comes. */
static void not_kept(Plan *plan) {
    Program *program = program_of(plan, 1);
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        for (int i = 0; node->phase == PHASE_WEIGHTS && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            if (from->phase != PHASE_BACKWARD || from->op != OP_RECV) continue;
            Buffer *buffer = &program->buffers[from->id * MAX_OUTPUTS];
            buffer->region = REGION_SCRATCH;
            buffer->offset_bytes = 0;
        }
    }
}
static void sends_late(Plan *plan) {
    Graph *graph = program_of(plan, 1)->graph;
    int last = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_SEND) last = n;
    }
    for (; last < graph->n_nodes && graph->nodes[last]->phase == PHASE_BACKWARD; last++) {
        graph->nodes[last]->phase = PHASE_WEIGHTS;
    }
}
static const Broken BROKEN[] = {
    {"a W is missing", drop_weights, "stage 2 (rank 2): W0.5 never runs"},
    {"all W of a stage are", drop_all_weights, "stage 1 (rank 1): W0.0 never runs"},
    {"a W runs twice", weights_twice, "W0.3: runs a second time"},
    {"a W runs before its backward", weights_first, "W0.2: runs before its backward"},
    {"a W runs after the update", weights_after_update, "U: the update is not the last task"},
    {"a frame ends with the backward", few_frames, "all 3 frame slots of pool 0 are taken"},
    {"what a W reads is overwritten before", overwritten, "overlap"},
    {"what a W reads is not kept", not_kept, "and not kept"},
    {"a gradient leaves in the W", sends_late, "a message to or from a stage in the weights' part"},
};

static void check_refusal(void) {
    const ModelSetting settings[] = {SMALL};
    const Layout layout = {1, 1, 2, 2, 1, "zb-h1", false, NULL, 0};
    Run run;
    run_recompute = RECOMPUTE_FULL;
    check_begin("full recomputation is refused, and why");
    CHECK(!run_plan(&run, "models/gpt.lua", settings, 4, &layout, GLOBAL_BATCH, false), "planned");
    CHECK(strstr(diag_text(run.diag), "--recompute full with schedule zb-h1: gradients of weights"),
          "%s", diag_text(run.diag));
    run_recompute = RECOMPUTE_NONE;
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(BITS) / sizeof(BITS[0]); i++) check_bits(&BITS[i]);
    check_parts();
    for (size_t i = 0; i < sizeof(BROKEN) / sizeof(BROKEN[0]); i++)
        check_broken(&BROKEN[i], &PIPELINE);
    check_refusal();
    return check_report();
}
