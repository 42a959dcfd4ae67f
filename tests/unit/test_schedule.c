/* Schedules: that every list is whole and in order, that the lists come to their end together, and
 * that memory and waiting are what the papers say. */
#include "planner/passes/pass.h"
#include "planner/plan/flow.h"
#include "planner/plan/schedule.h"
#include "tests/unit/check.h"

#include <string.h>

static void make(Plan *plan, Arena *arena, const char *schedule, int p, int chunks, int n_micro) {
    *plan = (Plan){.arena = arena, .n_chunks = chunks, .n_micro = n_micro, .schedule = schedule};
    if (schedule_find(schedule) >= 0) plan->path = schedule_path(schedule_find(schedule));
    plan->mesh = (Mesh){.size = {1, 1, 1, 1, 1, p}};
    plan->n_stages = p;
    plan->stages = ARENA_ARRAY(arena, Stage, p);
}

static void text_of(const Stage *stage, StrBuf *out) {
    static const char *const WORDS[] = {"rf", "F", "sf", "rb", "B", "sb", "W", "U"};
    for (int i = 0; i < stage->n_tasks; i++) {
        const Task *t = &stage->tasks[i];
        if (t->kind == TASK_UPDATE) {
            strbuf_put(out, "U");
        } else {
            strbuf_printf(out, "%s%d.%d ", WORDS[t->kind], t->chunk, (int)t->micro);
        }
    }
}

/* Each forward, backward and, if there are any, W exactly once, in this order; update last. */
static void check_whole(const Plan *plan, const char *what) {
    bool splits = schedule_splits(schedule_find(plan->schedule));
    for (int s = 0; s < plan->n_stages; s++) {
        const Stage *stage = &plan->stages[s];
        int n_units = plan->n_micro * plan->n_chunks, n_done = 0;
        uint8_t *seen = ARENA_ARRAY(plan->arena, uint8_t, n_units);
        for (int i = 0; i < stage->n_tasks; i++) {
            const Task *t = &stage->tasks[i];
            int unit = t->chunk * plan->n_micro + t->micro;
            if (t->kind == TASK_FORWARD) {
                CHECK(seen[unit] == 0, "%s: stage %d: F%d.%d twice", what, s, t->chunk, t->micro);
                seen[unit] = 1;
            } else if (t->kind == TASK_BACKWARD) {
                CHECK(seen[unit] == 1, "%s: stage %d: B%d.%d", what, s, t->chunk, t->micro);
                seen[unit] = 2;
                n_done += !splits;
            } else if (t->kind == TASK_WEIGHTS) {
                CHECK(splits && seen[unit] == 2, "%s: stage %d: W%d.%d", what, s, t->chunk,
                      t->micro);
                seen[unit] = 3;
                n_done++;
            }
        }
        CHECK(n_done == n_units, "%s: stage %d: %d of %d", what, s, n_done, n_units);
        CHECK(stage->tasks[stage->n_tasks - 1].kind == TASK_UPDATE, "%s: no update", what);
    }
}

static int place_of(const Stage *stage, TaskKind kind, int chunk, int micro) {
    int at = 0;
    while (stage->tasks[at].kind != kind || stage->tasks[at].chunk != chunk ||
           stage->tasks[at].micro != micro) {
        at++;
    }
    return at;
}

/* Where two chunks of a stage follow each other on the way, the earlier one is first forward, and
 * last backward and in W's. */
static void check_turns(const Plan *plan, const char *what) {
    Path path = plan_path(plan);
    for (int g = 0; g + 1 < path.p * plan->n_chunks; g++) {
        if (!path_turns(path, g)) continue;
        const Stage *stage = &plan->stages[path_stage(path, g)];
        int a = path_chunk(path, g), b = path_chunk(path, g + 1);
        for (int m = 0; m < plan->n_micro; m++) {
            CHECK(place_of(stage, TASK_FORWARD, a, m) < place_of(stage, TASK_FORWARD, b, m) &&
                      place_of(stage, TASK_BACKWARD, a, m) > place_of(stage, TASK_BACKWARD, b, m) &&
                      place_of(stage, TASK_WEIGHTS, a, m) > place_of(stage, TASK_WEIGHTS, b, m),
                  "%s: micro-batch %d", what, m);
        }
    }
}

static void test_all_shapes(Diag *diag) {
    static const int MICROS[] = {1, 2, 3, 4, 6, 8, 12, 24, 48};
    check_begin("every schedule: whole, ordered, comes to its end");
    for (int index = 0; schedule_name(index); index++) {
        for (int p = 1; p <= 8; p++) {
            for (int chunks = 1; chunks <= 4; chunks++) {
                for (int m = 0; m < 9; m++) {
                    char what[100];
                    PathKind path = schedule_path(index);
                    if (!path_allows(path, chunks) || (p == 1 && chunks > 1)) continue;
                    if (path == PATH_LOOP && MICROS[m] % p) continue;
                    Arena *arena = arena_create();
                    Plan plan;
                    make(&plan, arena, schedule_name(index), p, chunks, MICROS[m]);
                    snprintf(what, sizeof(what), "%s p=%d v=%d n=%d", plan.schedule, p, chunks,
                             MICROS[m]);
                    CHECK(schedule_apply(&plan, NO_LOC, diag), "%s: %s", what, diag_text(diag));
                    check_whole(&plan, what);
                    check_turns(&plan, what);
                    int channels = p == 1 ? 0 : 2 * (chunks > 1 ? p : p - 1);
                    if (path == PATH_V) channels = 4 * (p - 1);
                    CHECK(plan.n_channels == channels, "%s: %d channels", what, plan.n_channels);
                    arena_destroy(arena);
                }
            }
        }
    }
}

static void test_texts(Arena *arena, Diag *diag) {
    static const struct {
        const char *schedule;
        int p, chunks, n_micro, stage;
        const char *text;
    } CASES[] = {
        {"1f1b", 1, 1, 2, 0, "F0.0 B0.0 F0.1 B0.1 U"},
        {"gpipe", 2, 1, 2, 0, "F0.0 sf0.0 F0.1 sf0.1 rb0.0 B0.0 rb0.1 B0.1 U"},
        {"1f1b", 2, 1, 2, 0, "F0.0 sf0.0 F0.1 sf0.1 rb0.0 B0.0 rb0.1 B0.1 U"},
        {"1f1b", 2, 1, 2, 1, "rf0.0 F0.0 B0.0 sb0.0 rf0.1 F0.1 B0.1 sb0.1 U"},
        {"zb-h1", 2, 1, 2, 0, "F0.0 sf0.0 F0.1 sf0.1 rb0.0 B0.0 W0.0 rb0.1 B0.1 W0.1 U"},
        {"zb-h1", 2, 1, 2, 1, "rf0.0 F0.0 B0.0 sb0.0 rf0.1 F0.1 B0.1 sb0.1 W0.0 W0.1 U"},
        {"zb-h1", 4, 1, 8, 2,
         "rf0.0 F0.0 sf0.0 rf0.1 F0.1 sf0.1 rb0.0 B0.0 sb0.0 rf0.2 F0.2 sf0.2 rb0.1 B0.1 sb0.1 "
         "rf0.3 F0.3 sf0.3 rb0.2 B0.2 sb0.2 W0.0 rf0.4 F0.4 sf0.4 rb0.3 B0.3 sb0.3 W0.1 "
         "rf0.5 F0.5 sf0.5 rb0.4 B0.4 sb0.4 W0.2 rf0.6 F0.6 sf0.6 rb0.5 B0.5 sb0.5 W0.3 "
         "rf0.7 F0.7 sf0.7 rb0.6 B0.6 sb0.6 W0.4 rb0.7 B0.7 sb0.7 W0.5 W0.6 W0.7 U"},
        {"zb-chunked", 2, 2, 2, 1,
         "rf0.0 F0.0 sf0.0 rf0.1 F0.1 sf0.1 rf1.0 F1.0 B1.0 sb1.0 rf1.1 F1.1 B1.1 sb1.1 W1.0 "
         "rb0.0 B0.0 sb0.0 W1.1 rb0.1 B0.1 sb0.1 W0.0 W0.1 U"},
        {"zb-v", 2, 2, 3, 1, /* the turn: nothing is sent between its chunks */
         "rf0.0 F0.0 F1.0 sf1.0 rf0.1 F0.1 F1.1 sf1.1 rb1.0 B1.0 W1.0 rf0.2 F0.2 B0.0 sb0.0 W0.0 "
         "F1.2 sf1.2 rb1.1 B1.1 W1.1 B0.1 sb0.1 rb1.2 B1.2 B0.2 sb0.2 W0.1 W1.2 W0.2 U"},
        {"v-half", 3, 2, 3, 0,
         "F0.0 sf0.0 F0.1 sf0.1 rf1.0 F1.0 B1.0 sb1.0 W1.0 F0.2 sf0.2 rf1.1 F1.1 B1.1 sb1.1 W1.1 "
         "rb0.0 B0.0 W0.0 rf1.2 F1.2 B1.2 sb1.2 W1.2 rb0.1 B0.1 W0.1 rb0.2 B0.2 W0.2 U"},
        {"v-half", 3, 2, 2, 1, /* no more forwards: its W's fall back */
         "rf0.0 F0.0 sf0.0 rf1.0 F1.0 sf1.0 rf0.1 F0.1 sf0.1 rb1.0 B1.0 sb1.0 W1.0 rf1.1 F1.1 "
         "sf1.1 rb0.0 B0.0 sb0.0 rb1.1 B1.1 sb1.1 W1.1 rb0.1 B0.1 sb0.1 W0.0 W0.1 U"},
        {"interleaved", 2, 2, 2, 1,
         "rf0.0 F0.0 sf0.0 rf0.1 F0.1 sf0.1 rf1.0 F1.0 B1.0 sb1.0 rf1.1 F1.1 B1.1 sb1.1 "
         "rb0.0 B0.0 sb0.0 rb0.1 B0.1 sb0.1 U"},
    };
    check_begin("small schedules, written out");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Plan plan;
        StrBuf text = strbuf_create();
        make(&plan, arena, CASES[i].schedule, CASES[i].p, CASES[i].chunks, CASES[i].n_micro);
        CHECK(schedule_apply(&plan, NO_LOC, diag), "%s", diag_text(diag));
        text_of(&plan.stages[CASES[i].stage], &text);
        CHECK(strcmp(text.text, CASES[i].text) == 0, "case %zu: %s", i, text.text);
        strbuf_destroy(&text);
    }
}

/* The schedule's tasks, frames of so many bytes, and pools. */
static void make_frames(Plan *plan, Arena *arena, const char *schedule, PipelineShape shape,
                        const int64_t *frame_bytes, Diag *diag) {
    make(plan, arena, schedule, shape.p, shape.n_chunks, shape.n_micro);
    plan->n_programs = 1;
    plan->programs = ARENA_NEW(arena, Program);
    memcpy(plan->programs->frame_bytes, frame_bytes, (size_t)shape.n_chunks * sizeof(int64_t));
    CHECK(schedule_apply(plan, NO_LOC, diag), "%s", diag_text(diag));
    for (int s = 0; s < shape.p; s++) plan_choose_pools(plan, &plan->stages[s]);
}

static void test_memory(Arena *arena, Diag *diag) {
    static const int64_t ALIKE[] = {100, 100}, UNLIKE[] = {100, 1000};
    Plan plan;
    check_begin("frames: gpipe n, 1f1b p - stage, interleaved as its warm-up says");
    make_frames(&plan, arena, "gpipe", (PipelineShape){4, 1, 16, PATH_LOOP}, ALIKE, diag);
    CHECK(plan.stages[3].frame_slots[0] == 16, "gpipe %d", plan.stages[3].frame_slots[0]);
    make_frames(&plan, arena, "1f1b", (PipelineShape){4, 1, 16, PATH_LOOP}, ALIKE, diag);
    for (int s = 0; s < 4; s++) {
        CHECK(plan.stages[s].frame_slots[0] == 4 - s, "1f1b %d", plan.stages[s].frame_slots[0]);
        CHECK(plan.stages[s].frame_slots[1] == 0, "no second chunk");
    }
    make_frames(&plan, arena, "interleaved", (PipelineShape){4, 2, 16, PATH_LOOP}, ALIKE, diag);
    for (int s = 0; s < 4; s++) {
        const Stage *stage = &plan.stages[s];
        int in_flight = 2 * (3 - s) + 4 + 1;
        CHECK(stage->frame_pool[0] == 0 && stage->frame_pool[1] == 0, "one pool");
        CHECK(stage->frame_slots[0] == in_flight, "stage %d: %d frames, not %d", s,
              stage->frame_slots[0], in_flight);
    }
    make_frames(&plan, arena, "interleaved", (PipelineShape){4, 2, 16, PATH_LOOP}, UNLIKE, diag);
    CHECK(plan.stages[3].frame_pool[0] != plan.stages[3].frame_pool[1], "a large one is alone");
    for (int c = 0; c < plan.n_channels; c++) {
        CHECK(plan.channels[c].slots <= 4, "channel %d: %d slots", c, plan.channels[c].slots);
    }
}

/* Bytes of the stage's frames if every chunk had its own slots. */
static int64_t alone_bytes(const Plan *plan, const Stage *stage) {
    int64_t sum = 0;
    TaskKind ends[MAX_CHUNKS];
    plan_frame_ends(stage, ends);
    for (int c = 0; c < plan->n_chunks; c++) {
        int in_flight = 0, most = 0;
        for (int i = 0; i < stage->n_tasks; i++) {
            if (stage->tasks[i].chunk != c) continue;
            in_flight += stage->tasks[i].kind == TASK_FORWARD;
            in_flight -= stage->tasks[i].kind == ends[c];
            if (in_flight > most) most = in_flight;
        }
        sum += most * plan->programs->frame_bytes[c];
    }
    return sum;
}

static void check_slots(const Plan *plan, int s) {
    const Stage *stage = &plan->stages[s];
    int n_units = plan->n_chunks * plan->n_micro;
    int32_t *slots = ARENA_ARRAY(plan->arena, int32_t, n_units);
    int failed = plan_frame_slots(plan, stage, slots);
    CHECK(failed < 0, "stage %d: no slot for task %d", s, failed);
    bool *taken = ARENA_ARRAY(plan->arena, bool, plan->n_chunks *n_units);
    int64_t bytes = 0;
    TaskKind ends[MAX_CHUNKS];
    plan_frame_ends(stage, ends);
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        bytes += stage->frame_slots[pool] * plan_slot_bytes(plan, stage, pool);
    }
    CHECK(bytes <= alone_bytes(plan, stage), "stage %d: %lld bytes, more than each alone", s,
          (long long)bytes);
    for (int i = 0; failed < 0 && i < stage->n_tasks; i++) {
        const Task *task = &stage->tasks[i];
        if (task->kind != TASK_FORWARD && task->kind != ends[task->chunk]) continue;
        int pool = stage->frame_pool[task->chunk];
        int slot = slots[task->chunk * plan->n_micro + task->micro];
        bool *at = &taken[pool * n_units + slot];
        CHECK(slot < stage->frame_slots[pool] && *at == (task->kind != TASK_FORWARD),
              "stage %d, task %d: slot %d of pool %d", s, i, slot, pool);
        *at = !*at;
    }
}

static void test_pools(Diag *diag) {
    check_begin(
        "frames: a slot is one micro-batch's at a time, no more bytes than each chunk alone");
    for (int trial = 0; trial < 150; trial++) {
        Arena *arena = arena_create();
        Plan plan;
        int64_t bytes[MAX_CHUNKS];
        int p = 2 + trial % 5, v = 1 + trial / 5 % 6, n_groups = 1 + trial / 30;
        for (int c = 0; c < v; c++) bytes[c] = 64 * (10 + (trial * 31 + c * 17) % (trial % 40 + 1));
        make_frames(&plan, arena, "interleaved", (PipelineShape){p, v, p * n_groups, PATH_LOOP},
                    bytes, diag);
        for (int s = 0; s < p; s++) check_slots(&plan, s);
        arena_destroy(arena);
    }
}

static void test_refusals(Arena *arena) {
    static const struct {
        const char *schedule;
        int p, chunks, n_micro;
        const char *text;
    } CASES[] = {
        {"zigzag", 2, 1, 2, "there is no schedule 'zigzag'"},
        {"1f1b", 2, 2, 2, "schedule 1f1b: has one chunk per stage; --chunks 2 is"},
        {"gpipe", 2, 4, 2, "schedule gpipe: has one chunk per stage; --chunks 4 is"},
        {"interleaved", 1, 2, 2, "2 chunks per stage need more than one stage"},
        {"zb-v", 1, 2, 2, "2 chunks per stage need more than one stage"},
        {"zb-v", 4, 1, 8,
         "schedule zb-v: has two chunks a stage, the way down and the way back; not 1"},
        {"zb-v", 4, 3, 8, "has two chunks a stage, the way down and the way back; not 3"},
        {"interleaved", 4, 2, 6, "6 micro-batches are no multiple of the 4 stages"},
        {"1f1b", 0, 1, 6, "must be 1 to"},
        {"interleaved", 4, 33, 4, "must be 1 to"},
        {"1f1b", 2, 1, -6, "must be 1 to"},
    };
    (void)arena;
    check_begin("impossible shapes are refused, with the reason");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Diag *diag = diag_create();
        PipelineShape shape = {CASES[i].p, CASES[i].chunks, CASES[i].n_micro, PATH_LOOP};
        CHECK(!schedule_check(CASES[i].schedule, &shape, NO_LOC, diag), "case %zu passes", i);
        CHECK(strstr(diag_text(diag), CASES[i].text), "case %zu: %s", i, diag_text(diag));
        diag_destroy(diag);
    }
}

static void test_hang(Arena *arena, Diag *diag) {
    Plan plan;
    check_begin("lists that wait for each other do not come to their end");
    make(&plan, arena, "1f1b", 2, 1, 2);
    CHECK(schedule_apply(&plan, NO_LOC, diag), "%s", diag_text(diag));
    Task *tasks = plan.stages[0].tasks; /* F0.0 sf0.0 ...: wait for the gradient first */
    Task held = tasks[1];
    memmove(&tasks[1], &tasks[2], 3 * sizeof(Task));
    tasks[4] = tasks[3], tasks[3] = held; /* F0.0 F0.1 sf0.1 sf0.0 rb0.0 */
    memmove(&tasks[2], &tasks[4], sizeof(Task));
    tasks[1] = (Task){.kind = TASK_RECV_BACKWARD};
    Diag *hang = diag_create();
    int n;
    PipelineShape shape = {2, 1, 2, PATH_LOOP};
    CHECK(!schedule_channels(arena, &shape, plan.stages, &n, hang), "it came to its end");
    CHECK(strstr(diag_text(hang), "hangs"), "%s", diag_text(hang));
    diag_destroy(hang);
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_all_shapes(diag);
    test_texts(arena, diag);
    test_memory(arena, diag);
    test_pools(diag);
    test_refusals(arena);
    test_hang(arena, diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
