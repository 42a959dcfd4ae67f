#include "planner/plan/schedule.h"

#include "planner/plan/flow.h"

#include <string.h>

static const struct {
    const char *name, *help;
    ScheduleFunction *function;
    ScheduleSpan *span;
    ScheduleFrames *frames;
    PathKind path;
    bool splits;
} SCHEDULES[] = {
#define SCHEDULE(name, stem, path, splits, help)                                                   \
    {name, help, stem, stem##_span, stem##_frames, path, splits},
#include "planner/schedules/schedules.def"
#undef SCHEDULE
};

enum { N_SCHEDULES = sizeof(SCHEDULES) / sizeof(SCHEDULES[0]) };

const char *schedule_name(int index) {
    return index >= 0 && index < N_SCHEDULES ? SCHEDULES[index].name : NULL;
}

const char *schedule_help(int index) {
    return index >= 0 && index < N_SCHEDULES ? SCHEDULES[index].help : NULL;
}

int schedule_find(const char *name) {
    for (int i = 0; i < N_SCHEDULES; i++) {
        if (strcmp(SCHEDULES[i].name, name) == 0) return i;
    }
    return -1;
}

Path shape_path(const PipelineShape *shape) {
    return (Path){shape->path, shape->p};
}

PathKind schedule_path(int index) {
    return SCHEDULES[index].path;
}

bool schedule_is_chunked(int index) {
    return SCHEDULES[index].path != PATH_LINE;
}

int schedule_least_chunks(int index) {
    return SCHEDULES[index].path == PATH_V ? 2 : 1;
}

bool schedule_splits(int index) {
    return SCHEDULES[index].splits;
}

int64_t schedule_n_tasks(int index, const PipelineShape *shape) {
    return (SCHEDULES[index].splits ? 3 : 2) * (int64_t)shape->n_micro * shape->n_chunks;
}

double schedule_span(int index, const PipelineTimes *times) {
    return SCHEDULES[index].span(times);
}

int schedule_frames(int index, const PipelineShape *shape, int stage, int chunk) {
    return SCHEDULES[index].frames(shape, stage, chunk, true);
}

int schedule_frames_but(int index, const PipelineShape *shape, int stage, int chunk) {
    return SCHEDULES[index].frames(shape, stage, chunk, false);
}

static bool is_in_range(const PipelineShape *shape) {
    return shape->p >= 1 && shape->p <= MAX_STAGES && shape->n_chunks >= 1 &&
           shape->n_chunks <= MAX_CHUNKS && shape->n_micro >= 1 && shape->n_micro <= MAX_MICRO;
}

bool schedule_allows(int index, const PipelineShape *shape) {
    if (index < 0 || index >= N_SCHEDULES || !is_in_range(shape)) return false;
    if (!path_allows(SCHEDULES[index].path, shape->n_chunks)) return false;
    if (shape->n_chunks > 1 && shape->p == 1) return false;
    return SCHEDULES[index].path != PATH_LOOP || shape->n_micro % shape->p == 0;
}

/* Why a stage cannot have so many chunks. */
static void refuse_chunks(int index, int n_chunks, SourceLoc loc, Diag *diag) {
    if (SCHEDULES[index].path == PATH_V) {
        diag_error(diag, loc,
                   "schedule %s: has two chunks a stage, the way down and the way back; not %d",
                   SCHEDULES[index].name, n_chunks);
        return;
    }
    diag_error(diag, loc, "schedule %s: has one chunk per stage; --chunks %d is for '%s'",
               SCHEDULES[index].name, n_chunks,
               SCHEDULES[index].splits ? "zb-chunked" : "interleaved");
}

bool schedule_check(const char *name, const PipelineShape *shape, SourceLoc loc, Diag *diag) {
    int index = schedule_find(name), p = shape->p, v = shape->n_chunks;
    if (index < 0) {
        diag_error(diag, loc, "there is no schedule '%s'", name);
        for (int i = 0; i < N_SCHEDULES; i++) {
            diag_note(diag, NO_LOC, "%s: %s", SCHEDULES[i].name, SCHEDULES[i].help);
        }
    } else if (!is_in_range(shape)) {
        diag_error(diag, loc,
                   "schedule %s: %d stages of %d chunks with %d micro-batches: must be 1 to %d, "
                   "1 to %d, 1 to %d",
                   name, p, v, shape->n_micro, MAX_STAGES, MAX_CHUNKS, MAX_MICRO);
    } else if (!path_allows(SCHEDULES[index].path, v)) {
        refuse_chunks(index, v, loc, diag);
    } else if (v > 1 && p == 1) {
        diag_error(diag, loc, "schedule %s: %d chunks per stage need more than one stage (p)", name,
                   v);
    } else if (SCHEDULES[index].path == PATH_LOOP && shape->n_micro % p) {
        diag_error(diag, loc,
                   "schedule %s: %d micro-batches are no multiple of the %d stages (p): "
                   "micro-batches travel in groups of p",
                   name, shape->n_micro, p);
    } else {
        return true;
    }
    return false;
}

bool schedule_order(const char *name, int stage, const PipelineShape *shape, Arena *arena,
                    Task **out, int *out_n, Diag *diag) {
    if (!schedule_check(name, shape, NO_LOC, diag)) return false;
    if (stage < 0 || stage >= shape->p) BUG("stage %d of %d", stage, shape->p);
    int index = schedule_find(name);
    *out_n = (int)schedule_n_tasks(index, shape);
    *out = ARENA_ARRAY(arena, Task, *out_n);
    SCHEDULES[index].function(shape, stage, *out);
    return true;
}

void schedule_fill(int index, const PipelineShape *shape, int stage, Task *out) {
    if (!schedule_name(index)) BUG("schedule %d", index);
    SCHEDULES[index].function(shape, stage, out);
}

Task *schedule_tasks(Arena *arena, const PipelineShape *shape, int stage, const Task *order,
                     int n_order, int *out_n) {
    Task *tasks = ARENA_ARRAY(arena, Task, 3 * (size_t)n_order + 1);
    Path path = shape_path(shape);
    int n = 0;
    for (int i = 0; i < n_order; i++) {
        bool forward = order[i].kind == TASK_FORWARD;
        bool before = path_has_border(path, shape->n_chunks, stage, order[i].chunk, true);
        bool after = path_has_border(path, shape->n_chunks, stage, order[i].chunk, false);
        if (order[i].kind == TASK_WEIGHTS) {
            tasks[n++] = order[i];
            continue;
        }
        Task recv = order[i], send = order[i];
        recv.kind = forward ? TASK_RECV_FORWARD : TASK_RECV_BACKWARD;
        send.kind = forward ? TASK_SEND_FORWARD : TASK_SEND_BACKWARD;
        if (forward ? before : after) tasks[n++] = recv;
        tasks[n++] = order[i];
        if (forward ? after : before) tasks[n++] = send;
    }
    tasks[n++] = (Task){.kind = TASK_UPDATE};
    *out_n = n;
    return tasks;
}

static void add_channel(Channel *channels, int *n, int from, int to, bool backward) {
    for (int i = 0; i < *n; i++) {
        const Channel *c = &channels[i];
        if (c->from == from && c->to == to && c->backward == backward) return;
    }
    channels[(*n)++] = (Channel){.from = from, .to = to, .backward = backward, .slots = 1};
}

/* Can all lists come to their end with this many slots in every channel? */
static bool lists_finish(const PipelineShape *shape, const Stage *stages, const Channel *channels,
                         int n_channels, int slots) {
    Arena *scratch = arena_create();
    int *all_slots = ARENA_ARRAY(scratch, int, n_channels);
    for (int c = 0; c < n_channels; c++) all_slots[c] = slots;
    Flow flow = {.p = shape->p,
                 .stages = ARENA_ARRAY(scratch, FlowStage, shape->p),
                 .links = flow_find_links(scratch, shape_path(shape), channels, n_channels),
                 .n_channels = n_channels,
                 .slots = all_slots};
    for (int s = 0; s < shape->p; s++) {
        flow.stages[s].tasks = stages[s].tasks;
        flow.stages[s].n_tasks = stages[s].n_tasks;
    }
    bool finished = flow_run(&flow, scratch);
    arena_destroy(scratch);
    return finished;
}

Channel *schedule_channels(Arena *arena, const PipelineShape *shape, const Stage *stages,
                           int *out_n, Diag *diag) {
    Path path = shape_path(shape);
    int p = shape->p, last = p * shape->n_chunks - 1, slots = 1;
    *out_n = 0;
    if (p == 1) return NULL;
    Channel *channels = ARENA_ARRAY(arena, Channel, 4 * (size_t)p);
    /* One boundary of each kind: those after the first p global chunks, and on the way back. */
    for (int g = 0; g < (path.kind == PATH_V ? 2 : 1) * p && g < last; g++) {
        int from = path_stage(path, g), to = path_stage(path, g + 1);
        if (from == to) continue;
        add_channel(channels, out_n, from, to, false);
        add_channel(channels, out_n, to, from, true);
    }
    while (!lists_finish(shape, stages, channels, *out_n, slots)) {
        /* With room for every message a sender never waits: then more slots change nothing. */
        if (slots >= shape->n_micro * shape->n_chunks) {
            diag_error(diag, NO_LOC, "the schedule hangs whatever the depth of its channels");
            *out_n = 0;
            return NULL;
        }
        slots *= 2;
    }
    int too_few = slots / 2; /* then bisect: enough slots stay enough when there are more */
    while (slots - too_few > 1) {
        int middle = too_few + (slots - too_few) / 2;
        if (lists_finish(shape, stages, channels, *out_n, middle)) {
            slots = middle;
        } else {
            too_few = middle;
        }
    }
    for (int c = 0; c < *out_n; c++) channels[c].slots = slots > 2 ? slots : 2;
    return channels;
}

bool schedule_apply(Plan *plan, SourceLoc loc, Diag *diag) {
    PipelineShape shape = {plan->mesh.size[MESH_P], plan->n_chunks, plan->n_micro, plan->path};
    if (!schedule_check(plan->schedule, &shape, loc, diag)) return false;
    for (int s = 0; s < shape.p; s++) {
        Stage *stage = &plan->stages[s];
        Task *order;
        int n_order;
        if (!schedule_order(plan->schedule, s, &shape, plan->arena, &order, &n_order, diag)) {
            return false;
        }
        stage->tasks = schedule_tasks(plan->arena, &shape, s, order, n_order, &stage->n_tasks);
    }
    plan->channels = schedule_channels(plan->arena, &shape, plan->stages, &plan->n_channels, diag);
    return shape.p == 1 || plan->channels;
}
