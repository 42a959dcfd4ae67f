/* The way of micro-batches through chunks, and its turn within a stage: no message, what is handed
 * over in the frame that lives longest, one copy of a tied weight; and plans broken on purpose. */
#include "planner/plan/plan_text.h"
#include "planner/plan/schedule.h"
#include "tests/unit/broken_plan.h"
#include "tests/unit/check.h"
#include "tests/unit/small_plan.h"

static const SmallPlan TURNS = {"zb-v", 1, 1, 3, 2, 7, 6};
enum { TURN = 2, N_STAGES = 3 }; /* of TURNS: the stage where the way turns */

static void test_numbers(void) {
    static const struct {
        Path path;
        int n_chunks, stages[8];
    } CASES[] = {
        {{PATH_LINE, 4}, 1, {0, 1, 2, 3}},
        {{PATH_LOOP, 3}, 2, {0, 1, 2, 0, 1, 2}},
        {{PATH_V, 3}, 2, {0, 1, 2, 2, 1, 0}},
        {{PATH_V, 2}, 2, {0, 1, 1, 0}},
    };
    check_begin("line, loop and v: stages along the way, there and back");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Path path = CASES[i].path;
        int n_total = path.p * CASES[i].n_chunks;
        CHECK(path_allows(path.kind, CASES[i].n_chunks), "case %zu", i);
        for (int g = 0; g < n_total; g++) {
            int stage = path_stage(path, g), chunk = path_chunk(path, g);
            CHECK(stage == CASES[i].stages[g], "case %zu: %d is on stage %d", i, g, stage);
            CHECK(path_global(path, stage, chunk) == g, "case %zu: %d", i, g);
            if (g + 1 == n_total) continue;
            bool turns = stage == CASES[i].stages[g + 1];
            CHECK(path_turns(path, g) == turns && (path_border(path, g) < 0) == turns, "%d", g);
            CHECK(path_next(path, stage, chunk) == CASES[i].stages[g + 1], "after %d", g);
            int next = path_stage(path, g + 1), later = path_chunk(path, g + 1);
            CHECK(path_previous(path, next, later) == stage, "before %d", g + 1);
            CHECK(path_has_border(path, CASES[i].n_chunks, stage, chunk, false) == !turns, "%d", g);
        }
    }
    CHECK(!path_allows(PATH_LINE, 2) && !path_allows(PATH_V, 1) && !path_allows(PATH_V, 3), "more");
}

static Program *program_of(Plan *plan, int stage) {
    return &plan->programs[plan->stages[stage].program];
}

static Buffer *buffer_of(Plan *plan, int stage, Value value) {
    return &program_of(plan, stage)->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

/* What one chunk of the turning stage reads of the other in the phase. */
static Value handed_over(Plan *plan, Phase phase) {
    Graph *graph = program_of(plan, TURN)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; node->phase == phase && i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool other = from->phase == phase && from->chunk != node->chunk;
            if (other && !(OPS[from->op].flags & LEAF)) return node->inputs[i];
        }
    }
    BUG("nothing is handed over");
}

static int count_nodes(const Plan *plan, int stage, OpKind op) {
    const Graph *graph = plan->programs[plan->stages[stage].program].graph;
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) n += graph->nodes[i]->op == op;
    return n;
}

static void test_turn(Arena *arena, Diag *diag) {
    check_begin("a turn: no message, values in the earlier chunk's frame, tied weights once");
    Plan *plan = small_plan(arena, TURNS, diag);
    CHECK(plan, "%s", diag_text(diag));
    if (!plan) return;
    CHECK(plan->n_channels == 4 * (N_STAGES - 1), "%d channels", plan->n_channels);
    /* In and out, forward and backward; at a turn and at the ends only one side has a border. */
    for (int s = 0; s < N_STAGES; s++) {
        int n = s == 0 || s == TURN ? 2 : 4;
        CHECK(count_nodes(plan, s, OP_SEND) == n && count_nodes(plan, s, OP_RECV) == n,
              "stage %d: %d sends", s, count_nodes(plan, s, OP_SEND));
        CHECK(count_nodes(plan, s, OP_STAGE_REDUCE) == 0, "stage %d sums a tied weight", s);
    }
    CHECK(plan->n_comms == 0, "%d communicators", plan->n_comms);
    for (int phase = PHASE_FORWARD; phase <= PHASE_BACKWARD; phase++) {
        Value value = handed_over(plan, (Phase)phase);
        const Buffer *buffer = buffer_of(plan, TURN, value);
        CHECK(value.node->chunk == phase, "made in chunk %d", value.node->chunk);
        CHECK(buffer->region == REGION_FRAME && buffer->chunk == 0, "region %d of chunk %d",
              buffer->region, buffer->chunk);
    }
    StrBuf text = strbuf_create();
    plan_print(&text, plan);
    CHECK(strstr(text.text, "\npath=v\n"), "the text has no path");
    Plan *again = plan_from_text(arena, "again.plan", text.text, diag);
    CHECK(again && again->path == PATH_V, "%s", diag_text(diag));
    strbuf_destroy(&text);
}

/* ---- Broken on purpose ---- */

static int find_task(const Stage *stage, TaskKind kind, int chunk, int micro) {
    for (int i = 0; i < stage->n_tasks; i++) {
        const Task *task = &stage->tasks[i];
        if (task->kind == kind && task->chunk == chunk && task->micro == micro) return i;
    }
    BUG("no such task");
}

/* Puts the task, with `n_with` tasks around it, before the one at `to`. */
static void move_tasks(Stage *stage, int from, int n, int to) {
    Task moved[3];
    memcpy(moved, &stage->tasks[from], sizeof(Task) * (size_t)n);
    memmove(&stage->tasks[to + n], &stage->tasks[to], sizeof(Task) * (size_t)(from - to));
    memcpy(&stage->tasks[to], moved, sizeof(Task) * (size_t)n);
}

static void as_loop(Plan *plan) {
    plan->path = PATH_LOOP;
}
static void as_line(Plan *plan) {
    plan->path = PATH_LINE;
}
static void other_blocks(Plan *plan) {
    int held = plan->stages[0].first_block[1];
    plan->stages[0].first_block[1] = plan->stages[1].first_block[1];
    plan->stages[1].first_block[1] = held;
}
static void not_kept(Plan *plan) {
    Buffer *buffer = buffer_of(plan, TURN, handed_over(plan, PHASE_FORWARD));
    buffer->region = REGION_SCRATCH, buffer->offset_bytes = 0;
}
static void in_later_frame(Plan *plan) {
    Buffer *buffer = buffer_of(plan, TURN, handed_over(plan, PHASE_FORWARD));
    buffer->chunk = 1, buffer->offset_bytes = 0;
}
static void gradient_in_later_frame(Plan *plan) {
    Buffer *buffer = buffer_of(plan, TURN, handed_over(plan, PHASE_BACKWARD));
    buffer->chunk = 1, buffer->offset_bytes = 0;
}
static void overwritten(Plan *plan) {
    Program *program = program_of(plan, TURN);
    Buffer *handed = buffer_of(plan, TURN, handed_over(plan, PHASE_FORWARD));
    for (int n = 0; n < program->graph->n_nodes; n++) {
        Buffer *other = &program->buffers[n * MAX_OUTPUTS];
        const Node *node = program->graph->nodes[n];
        if (node->phase != PHASE_FORWARD || node->chunk != 0 || !node->n_outputs) continue;
        if (other == handed || other->region != REGION_FRAME) continue;
        handed->offset_bytes = other->offset_bytes + ALIGN_BYTES;
        if (handed->offset_bytes + handed->bytes > program->frame_bytes[0]) continue;
        return;
    }
    BUG("nothing to overwrite");
}
static void forward_too_early(Plan *plan) {
    Stage *stage = &plan->stages[TURN]; /* F1 sf1 before rf0 F0 */
    move_tasks(stage, find_task(stage, TASK_FORWARD, 1, 4), 2,
               find_task(stage, TASK_RECV_FORWARD, 0, 4));
}
static void backward_too_early(Plan *plan) {
    Stage *stage = &plan->stages[TURN]; /* B0 sb0 before rb1 B1 */
    move_tasks(stage, find_task(stage, TASK_BACKWARD, 0, 5), 2,
               find_task(stage, TASK_RECV_BACKWARD, 1, 5));
}
static void frame_ends_early(Plan *plan) {
    Stage *stage = &plan->stages[TURN]; /* W0 before W1 */
    int last = find_task(stage, TASK_WEIGHTS, 0, 6), at = find_task(stage, TASK_WEIGHTS, 1, 6);
    Task held = stage->tasks[last];
    stage->tasks[last] = stage->tasks[at];
    stage->tasks[at] = held;
}
static void sends_to_itself(Plan *plan) {
    Stage *stage = &plan->stages[TURN];
    int at = find_task(stage, TASK_FORWARD, 0, 0);
    Task *tasks = ARENA_ARRAY(plan->arena, Task, stage->n_tasks + 1);
    memcpy(tasks, stage->tasks, sizeof(Task) * (size_t)(at + 1));
    tasks[at + 1] = (Task){.kind = TASK_SEND_FORWARD, .chunk = 0, .micro = 0};
    memcpy(&tasks[at + 2], &stage->tasks[at + 1], sizeof(Task) * (size_t)(stage->n_tasks - at - 1));
    stage->tasks = tasks;
    stage->n_tasks++;
}
static void channel_to_itself(Plan *plan) {
    plan->channels[0].to = plan->channels[0].from;
}
static void channel_twice(Plan *plan) {
    for (int c = 0; c < plan->n_channels; c++) { /* that of the way back is another's, then */
        Channel *channel = &plan->channels[c];
        if (!channel->backward && channel->from == 1 && channel->to == 0) {
            channel->to = 2;
            return;
        }
    }
}
/* Between a stage's chunks are others: what it receives is not what it sent. */
static void shortcut(Plan *plan) {
    Graph *graph = program_of(plan, 1)->graph;
    Value sent = NO_VALUE;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        bool forward = node->phase == PHASE_FORWARD;
        if (forward && node->op == OP_SEND && node->chunk == 0) sent = node->inputs[0];
        for (int i = 0; forward && node->chunk == 1 && i < node->n_inputs; i++) {
            if (node->inputs[i].node->op == OP_RECV) node->inputs[i] = sent;
        }
    }
    Buffer *buffer = buffer_of(plan, 1, sent);
    buffer->region = REGION_FRAME, buffer->chunk = 0, buffer->offset_bytes = 0;
}

/* No one of the chunk whose frame it is reads it. */
static void borrowed_frame(Plan *plan) {
    Program *program = program_of(plan, 1);
    for (int n = 0; n < program->graph->n_nodes; n++) {
        const Node *node = program->graph->nodes[n];
        Buffer *buffer = &program->buffers[n * MAX_OUTPUTS];
        bool here = node->phase == PHASE_BACKWARD && node->chunk == 1 && node->op != OP_RECV;
        if (!here || !node->n_outputs || buffer->region != REGION_SCRATCH) continue;
        buffer->region = REGION_FRAME, buffer->chunk = 0, buffer->offset_bytes = 0;
        return;
    }
    BUG("no such value");
}

static const Broken BROKEN[] = {
    {"a V said to be a loop", as_loop, "comes next in the pipeline"},
    {"two chunks on a line", as_line, "path line: a stage cannot have 2 chunks"},
    {"blocks on other stages", other_blocks,
     "stage 1 (rank 1): chunk 1 holds blocks 5 to 5; block 4 of 6 comes next in the pipeline"},
    {"what is handed over is not kept", not_kept, "and not kept"},
    {"it lies in the later chunk's frame", in_later_frame,
     "lies in a frame of chunk 1 but is made in forward(0)"},
    {"a gradient lies in the later chunk's frame", gradient_in_later_frame, "and not kept"},
    {"it is overwritten", overwritten, "overlap"},
    {"the later forward runs first", forward_too_early,
     "F1.4: runs before F0.4, with which it shares a frame"},
    {"the earlier backward runs first", backward_too_early,
     "B0.5: runs before B1.5, with which it shares a frame"},
    {"the earlier frame ends first", frame_ends_early,
     "W0.6: runs before W1.6, with which it shares a frame"},
    {"a message at the turn", sends_to_itself,
     "sf0.0: global chunk 2 has no neighbour on that side"},
    {"a channel from a stage to itself", channel_to_itself,
     "channel forward 0->0: joins stages that are no neighbours"},
    {"a channel twice, and none back", channel_twice, "channel forward 1->2: is there twice"},
    {"a shortcut past other stages", shortcut,
     "shares a frame of chunks 0 and 1, between which are other stages"},
    {"a gradient in a frame that is not next to it", borrowed_frame,
     "shares a frame of chunks 0 and 1, between which are other stages"},
};

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_numbers();
    test_turn(arena, diag);
    for (size_t i = 0; i < sizeof(BROKEN) / sizeof(BROKEN[0]); i++)
        check_broken(&BROKEN[i], &TURNS);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
