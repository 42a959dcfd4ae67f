#include "planner/pipeline_sim.h"

#include "planner/flow.h"

#include <string.h>

/* Lists made from a schedule have at most this many tasks: half a gigabyte for all that a run
 * needs. */
enum { MAX_MADE_TASKS = 1 << 23 };

/* A message between its two ends, on both clocks. */
typedef struct Parcel {
    double us, free_us;
} Parcel;

typedef struct Link {
    int n_sent, n_taken, n_messages, first; /* message k is parcels[first + k] */
    int from, to, slots, wire;
    double message_us, latency_us;
} Link;

typedef enum Move { MOVE_RECEIVE, MOVE_COMPUTE, MOVE_SEND } Move;

/* Where a stage stands. */
typedef struct Runner {
    const Task *tasks;
    int n_tasks, next;
    Move move;          /* within the task, when messages follow from tasks */
    double us, free_us; /* the clock, and the one that knows no messages between stages */
    double held_bytes;  /* frames */
    Parcel data;        /* when the data axis' messages so far end */
    TaskSpan *spans;    /* NULL: not wanted */
    int link[N_LINK_KINDS];
    int n_left[MAX_CHUNKS]; /* backwards to do */
    bool ready;
} Runner;

typedef struct Buffers {
    Task *tasks;
    PipelineList *lists;
    Runner *runners;
    PipelineStage *stages;
    Link *links;
    Parcel *arrived, *taken, *joint; /* taken: only if any link has a limit */
    double *wires;                   /* when they are free again */
    int *ready;
    TaskSpan *spans, *data_spans;
    MessageSpan *messages;
} Buffers;

enum { N_BUFFERS = sizeof(Buffers) / sizeof(void *) };

struct PipelineSim {
    Arena *arena;
    union {
        Buffers of;
        void *all[N_BUFFERS];
    } buffers;
    size_t capacity[N_BUFFERS];
    /* What buffers.of.tasks holds: the next run may need the same. */
    PipelineShape shape;
    int schedule;
    /* Of the run. */
    const PipelineLoad *load;
    bool given; /* lists were, with their messages */
    bool timed; /* stages go on in the order of their clocks, for the sake of shared wires */
    int n_ready;
};

PipelineSim *pipeline_sim_create(Arena *arena) {
    PipelineSim *sim = ARENA_NEW(arena, PipelineSim);
    sim->arena = arena;
    sim->schedule = -1;
    return sim;
}

/* Makes room in the buffer at `slot`; doubling, so that an arena never holds more than twice the
 * most that was needed. What it held is lost. */
static void *reserve(PipelineSim *sim, void *slot, size_t bytes) {
    size_t index = (size_t)((void **)slot - sim->buffers.all);
    if (sim->capacity[index] < bytes) {
        sim->capacity[index] = bytes > 2 * sim->capacity[index] ? bytes : 2 * sim->capacity[index];
        sim->buffers.all[index] = arena_alloc(sim->arena, sim->capacity[index]);
    }
    return sim->buffers.all[index];
}
#define RESERVE(sim, member, count)                                                                \
    ((sim)->buffers.of.member =                                                                    \
         reserve((sim), &(sim)->buffers.of.member,                                                 \
                 sizeof(*(sim)->buffers.of.member) * ((size_t)(count) > 0 ? (size_t)(count) : 1)))

/* ---- Stages that may go on: a stack, or a heap by (clock, number). ---- */

static bool before(const PipelineSim *sim, int a, int b) {
    const Runner *runners = sim->buffers.of.runners;
    return runners[a].us < runners[b].us || (runners[a].us == runners[b].us && a < b);
}

static void wake(PipelineSim *sim, int stage) {
    int *ready = sim->buffers.of.ready, at = sim->n_ready;
    Runner *runner = &sim->buffers.of.runners[stage];
    if (runner->ready) return;
    runner->ready = true;
    sim->n_ready++;
    for (; sim->timed && at > 0 && before(sim, stage, ready[(at - 1) / 2]); at = (at - 1) / 2) {
        ready[at] = ready[(at - 1) / 2];
    }
    ready[at] = stage;
}

static int next_ready(PipelineSim *sim) {
    int *ready = sim->buffers.of.ready, n = --sim->n_ready;
    int last = ready[n], first = sim->timed ? ready[0] : last;
    sim->buffers.of.runners[first].ready = false;
    if (!sim->timed) return first;
    int at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(sim, ready[child + 1], ready[child])) child++;
        if (before(sim, last, ready[child])) break;
        ready[at] = ready[child];
        at = child;
    }
    ready[at] = last;
    return first;
}

/* ---- Getting ready. ---- */

static bool make_lists(PipelineSim *sim, Diag *diag) {
    const PipelineLoad *load = sim->load;
    const PipelineShape *shape = &load->shape;
    const char *name = schedule_name(load->schedule);
    if (!name) BUG("schedule %d", load->schedule);
    if (!schedule_check(name, shape, NO_LOC, diag)) return false;
    int64_t n_tasks = 2 * (int64_t)shape->n_micro * shape->n_chunks;
    if (n_tasks * shape->p > MAX_MADE_TASKS) {
        diag_error(
            diag, NO_LOC,
            "%d stages of %d chunks with %d micro-batches are more than %d tasks to simulate",
            shape->p, shape->n_chunks, shape->n_micro, MAX_MADE_TASKS);
        return false;
    }
    bool same = sim->schedule == load->schedule && sim->shape.p == shape->p &&
                sim->shape.n_chunks == shape->n_chunks && sim->shape.n_micro == shape->n_micro;
    Task *tasks = RESERVE(sim, tasks, n_tasks * shape->p);
    PipelineList *lists = RESERVE(sim, lists, shape->p);
    for (int stage = 0; stage < shape->p; stage++) {
        lists[stage] = (PipelineList){tasks + stage * n_tasks, (int)n_tasks};
        if (!same) schedule_fill(load->schedule, shape, stage, tasks + stage * n_tasks);
    }
    sim->shape = *shape;
    sim->schedule = load->schedule;
    return true;
}

static void count_messages(PipelineSim *sim) {
    const PipelineLoad *load = sim->load;
    Link *links = sim->buffers.of.links;
    if (!sim->given) {
        /* One for each micro-batch and border between chunks that the link is for. */
        int p = load->shape.p;
        for (int g = 0; g + 1 < p * load->shape.n_chunks; g++) {
            int forward = sim->buffers.of.runners[g % p].link[LINK_SEND_FORWARD];
            int backward = sim->buffers.of.runners[(g + 1) % p].link[LINK_SEND_BACKWARD];
            if (forward >= 0) links[forward].n_messages += load->shape.n_micro;
            if (backward >= 0) links[backward].n_messages += load->shape.n_micro;
        }
        return;
    }
    for (int stage = 0; stage < load->shape.p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        for (int i = 0; i < runner->n_tasks; i++) {
            if (!task_is_send(&runner->tasks[i])) continue;
            int link = runner->link[flow_link(runner->tasks[i].kind)];
            if (link >= 0) links[link].n_messages++;
        }
    }
}

static int prepare_links(PipelineSim *sim) {
    const PipelineLoad *load = sim->load;
    Runner *runners = sim->buffers.of.runners;
    int p = load->shape.p, n_messages = 0;
    bool limited = false;
    Link *links = RESERVE(sim, links, load->n_links);
    double *wires = RESERVE(sim, wires, load->n_wires + load->n_links);
    for (int wire = 0; wire < load->n_wires; wire++) wires[wire] = -1; /* no link's yet */
    sim->timed = false;
    for (int i = 0; i < load->n_links; i++) {
        const PipelineLink *of = &load->links[i];
        int wire = of->wire >= 0 ? of->wire : load->n_wires + i;
        if (of->wire >= load->n_wires) BUG("wire %d of %d", of->wire, load->n_wires);
        sim->timed |= of->wire >= 0 && wires[wire] == 0;
        wires[wire] = 0;
        limited |= of->slots > 0;
        links[i] = (Link){.from = of->from,
                          .to = of->to,
                          .slots = of->slots,
                          .wire = wire,
                          .message_us = of->message_us,
                          .latency_us = of->latency_us};
        if (of->from < 0 || of->from >= p || of->to < 0 || of->to >= p || of->from == of->to ||
            (of->backward ? of->from != (of->to + 1) % p : of->to != (of->from + 1) % p)) {
            continue; /* no neighbours: no task can use it */
        }
        runners[of->from].link[of->backward ? LINK_SEND_BACKWARD : LINK_SEND_FORWARD] = i;
        runners[of->to].link[of->backward ? LINK_RECV_BACKWARD : LINK_RECV_FORWARD] = i;
    }
    count_messages(sim);
    for (int i = 0; i < load->n_links; i++) {
        links[i].first = n_messages;
        n_messages += links[i].n_messages;
    }
    RESERVE(sim, arrived, n_messages);
    if (limited) RESERVE(sim, taken, n_messages);
    if (load->spans) RESERVE(sim, messages, n_messages);
    return n_messages;
}

static bool prepare(PipelineSim *sim, PipelineResult *out, Diag *diag) {
    const PipelineLoad *load = sim->load;
    int p = load->shape.p, n_chunks = load->shape.n_chunks;
    sim->given = load->lists != NULL;
    if (!sim->given && !make_lists(sim, diag)) return false;
    const PipelineList *lists = sim->given ? load->lists : sim->buffers.of.lists;
    PipelineStage *stages = RESERVE(sim, stages, p);
    Runner *runners = RESERVE(sim, runners, p);
    RESERVE(sim, ready, p);
    RESERVE(sim, joint, p);
    *out = (PipelineResult){.p = p, .stages = stages, .lists = lists};
    for (int stage = 0; stage < p; stage++) {
        runners[stage] = (Runner){.tasks = lists[stage].tasks, .n_tasks = lists[stage].n_tasks};
        memset(runners[stage].link, -1, sizeof(runners[stage].link));
        for (int c = 0; c < n_chunks; c++) runners[stage].n_left[c] = load->shape.n_micro;
        stages[stage] = (PipelineStage){.first_span = out->n_spans};
        if (load->spans) out->n_spans += lists[stage].n_tasks;
    }
    int n_messages = prepare_links(sim);
    if (load->spans) {
        out->spans = RESERVE(sim, spans, out->n_spans);
        out->data_spans = RESERVE(sim, data_spans, p * n_chunks);
        memset(sim->buffers.of.data_spans, 0, sizeof(TaskSpan) * (size_t)(p * n_chunks));
        out->messages = sim->buffers.of.messages;
        out->n_messages = n_messages;
    }
    for (int stage = 0; stage < p && load->spans; stage++) {
        runners[stage].spans = &sim->buffers.of.spans[stages[stage].first_span];
    }
    return true;
}

/* ---- Tasks. Each returns false when the stage has to wait. ---- */

static double later(double a, double b) {
    return a > b ? a : b;
}

static bool send(PipelineSim *sim, int stage, int link_index) {
    Runner *runner = &sim->buffers.of.runners[stage];
    if (link_index < 0) return false;
    Link *link = &sim->buffers.of.links[link_index];
    double start_us = runner->us;
    if (link->slots > 0 && link->n_sent >= link->slots) { /* the slot's last must be taken */
        if (link->n_sent - link->n_taken >= link->slots) return false;
        const Parcel *taken = &sim->buffers.of.taken[link->first + link->n_sent - link->slots];
        start_us = later(start_us, taken->us);
        runner->free_us = later(runner->free_us, taken->free_us);
    }
    if (link->n_sent >= link->n_messages) return false;
    runner->us = start_us;
    if (sim->timed && sim->n_ready && before(sim, sim->buffers.of.ready[0], stage)) {
        wake(sim, stage); /* others may ask for the wire earlier */
        return false;
    }
    double *wire_free_us = &sim->buffers.of.wires[link->wire];
    double wire_us = later(start_us, *wire_free_us), arrive_us = wire_us + link->message_us;
    int message = link->first + link->n_sent++;
    *wire_free_us = arrive_us - link->latency_us;
    sim->buffers.of.arrived[message] = (Parcel){arrive_us, runner->free_us};
    if (sim->load->send == SEND_LEAVES) runner->us = *wire_free_us;
    if (sim->load->send == SEND_ARRIVES) runner->us = arrive_us;
    if (sim->load->send != SEND_OVERLAPPED) {
        sim->buffers.of.stages[stage].send_us += runner->us - wire_us;
    }
    if (runner->spans) {
        sim->buffers.of.messages[message] = (MessageSpan){.channel = link_index,
                                                          .from_task = runner->next,
                                                          .start_us = wire_us,
                                                          .arrive_us = arrive_us};
        if (sim->given) runner->spans[runner->next] = (TaskSpan){start_us, runner->us};
    }
    wake(sim, link->to);
    return true;
}

static bool receive(PipelineSim *sim, int stage, int link_index) {
    Runner *runner = &sim->buffers.of.runners[stage];
    if (link_index < 0) return false;
    Link *link = &sim->buffers.of.links[link_index];
    if (link->n_taken >= link->n_sent) return false;
    int message = link->first + link->n_taken++;
    const Parcel *parcel = &sim->buffers.of.arrived[message];
    double start_us = runner->us;
    runner->us = later(start_us, parcel->us);
    runner->free_us = later(runner->free_us, parcel->free_us);
    if (runner->spans) {
        MessageSpan *span = &sim->buffers.of.messages[message];
        span->to_task = runner->next;
        span->taken_us = runner->us;
        if (sim->given) runner->spans[runner->next] = (TaskSpan){start_us, runner->us};
    }
    if (link->slots > 0) {
        sim->buffers.of.taken[message] = (Parcel){runner->us, runner->free_us};
        wake(sim, link->from);
    }
    return true;
}

/* The chunk's last backward, which began at `start`, is done: its gradients leave one piece after
 * the other, each when it is complete and the one before has left. With equal pieces either the
 * first or the last decides. */
static double send_gradients(const PipelineChunk *chunk, double start_us, double queue_us) {
    int pieces = chunk->data_pieces > 1 ? chunk->data_pieces : 1;
    double first_us = start_us + chunk->backward_us / pieces;
    return later(later(first_us, queue_us) + chunk->data_us,
                 start_us + chunk->backward_us + chunk->data_us / pieces);
}

static void compute(PipelineSim *sim, int stage, const Task *task) {
    const PipelineLoad *load = sim->load;
    Runner *runner = &sim->buffers.of.runners[stage];
    PipelineStage *times = &sim->buffers.of.stages[stage];
    int index = stage * load->shape.n_chunks + task->chunk;
    const PipelineChunk *chunk = &load->chunks[index];
    bool forward = task->kind == TASK_FORWARD;
    double us = forward ? chunk->forward_us : chunk->backward_us;
    double tensor_us = forward ? chunk->forward_tensor_us : chunk->backward_tensor_us;
    if (runner->spans) runner->spans[runner->next] = (TaskSpan){runner->us, runner->us + us};
    times->compute_us += us - tensor_us;
    times->tensor_us += tensor_us;
    if (forward) {
        runner->held_bytes += chunk->frame_bytes;
        times->peak_bytes = later(times->peak_bytes, runner->held_bytes);
    } else {
        runner->held_bytes -= chunk->frame_bytes;
        if (--runner->n_left[task->chunk] == 0 && load->overlaps_data && chunk->data_us > 0) {
            runner->data.free_us = send_gradients(chunk, runner->free_us, runner->data.free_us);
            runner->data.us = send_gradients(chunk, runner->us, runner->data.us);
            if (runner->spans) {
                sim->buffers.of.data_spans[index] =
                    (TaskSpan){runner->data.us - chunk->data_us, runner->data.us};
            }
        }
    }
    runner->us += us;
    runner->free_us += us;
}

/* A task of a schedule: receives what it needs, and sends its result. */
static bool run_whole(PipelineSim *sim, int stage, const Task *task) {
    Runner *runner = &sim->buffers.of.runners[stage];
    const PipelineShape *shape = &sim->load->shape;
    int global = task->chunk * shape->p + stage;
    bool forward = task->kind == TASK_FORWARD;
    bool begins = global == (forward ? 0 : shape->p * shape->n_chunks - 1);
    bool ends = global == (forward ? shape->p * shape->n_chunks - 1 : 0);
    if (runner->move == MOVE_RECEIVE) {
        int link = runner->link[forward ? LINK_RECV_FORWARD : LINK_RECV_BACKWARD];
        if (!begins && !receive(sim, stage, link)) return false;
        runner->move = MOVE_COMPUTE;
    }
    if (runner->move == MOVE_COMPUTE) {
        compute(sim, stage, task);
        runner->move = MOVE_SEND;
    }
    int link = runner->link[forward ? LINK_SEND_FORWARD : LINK_SEND_BACKWARD];
    if (!ends && !send(sim, stage, link)) return false;
    runner->move = MOVE_RECEIVE;
    return true;
}

/* Up to the update, or until the stage must wait. */
static void run_stage(PipelineSim *sim, int stage) {
    Runner *runner = &sim->buffers.of.runners[stage];
    for (; runner->next < runner->n_tasks; runner->next++) {
        const Task *task = &runner->tasks[runner->next];
        if (!sim->given) {
            if (!run_whole(sim, stage, task)) return;
        } else if (task->kind == TASK_FORWARD || task->kind == TASK_BACKWARD) {
            compute(sim, stage, task);
        } else if (task->kind == TASK_UPDATE) {
            return;
        } else {
            int link = runner->link[flow_link(task->kind)];
            bool done = task_is_send(task) ? send(sim, stage, link) : receive(sim, stage, link);
            if (!done) return;
        }
    }
}

/* ---- The end of the step. ---- */

/* Reports the first stage that is not at its update, where the lists end. */
static bool check_finished(const PipelineSim *sim, Diag *diag) {
    for (int stage = 0; stage < sim->load->shape.p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        if (runner->next >= runner->n_tasks) continue;
        const Task *task = &runner->tasks[runner->next];
        if (task->kind == TASK_UPDATE && runner->next == runner->n_tasks - 1) continue;
        diag_error(diag, NO_LOC, "stage %d waits forever at its task %d (%s%d.%d)", stage,
                   runner->next, task_kind_word((TaskKind)task->kind), task->chunk, task->micro);
        return false;
    }
    return true;
}

/* The data axis' messages: what is left of them, or all. */
static void finish_data(PipelineSim *sim, int stage) {
    const PipelineLoad *load = sim->load;
    Runner *runner = &sim->buffers.of.runners[stage];
    PipelineStage *times = &sim->buffers.of.stages[stage];
    double before_us = runner->free_us;
    for (int c = 0; c < load->shape.n_chunks && !load->overlaps_data; c++) {
        int index = stage * load->shape.n_chunks + c;
        double us = load->chunks[index].data_us;
        if (runner->spans) {
            sim->buffers.of.data_spans[index] = (TaskSpan){runner->us, runner->us + us};
        }
        runner->us += us;
        runner->free_us += us;
    }
    runner->us = later(runner->us, runner->data.us);
    runner->free_us = later(runner->free_us, runner->data.free_us);
    times->data_us = runner->free_us - before_us;
}

static void run_part(PipelineSim *sim, const PipelinePart *part) {
    Runner *runners = sim->buffers.of.runners;
    Parcel *joint = sim->buffers.of.joint;
    int p = sim->load->shape.p;
    for (int stage = 0; stage < p; stage++) {
        joint[stage] = (Parcel){runners[stage].us, runners[stage].free_us};
    }
    for (int j = 0; j < part->n_joins; j++) {
        const PipelineJoin *join = &part->joins[j];
        Parcel last = {0, 0};
        for (int i = 0; i < join->n_stages; i++) {
            last.us = later(last.us, runners[join->stages[i]].us);
            last.free_us = later(last.free_us, runners[join->stages[i]].free_us);
        }
        for (int i = 0; i < join->n_stages; i++) {
            Parcel *of = &joint[join->stages[i]];
            *of = (Parcel){later(of->us, last.us), later(of->free_us, last.free_us)};
        }
    }
    for (int stage = 0; stage < p; stage++) {
        PipelineStage *times = &sim->buffers.of.stages[stage];
        runners[stage].us = joint[stage].us + part->us[stage];
        runners[stage].free_us = joint[stage].free_us + part->us[stage];
        *(part->is_data ? &times->data_us : &times->update_us) += part->us[stage];
    }
}

static double used_us(const PipelineStage *times) {
    return times->compute_us + times->tensor_us + times->data_us + times->update_us;
}

static void finish(PipelineSim *sim, PipelineResult *out) {
    const PipelineLoad *load = sim->load;
    PipelineStage *stages = sim->buffers.of.stages;
    for (int stage = 0; stage < out->p; stage++) {
        Runner *runner = &sim->buffers.of.runners[stage];
        if (runner->spans && runner->next < runner->n_tasks) {
            runner->spans[runner->next].start_us = runner->us;
        }
        finish_data(sim, stage);
    }
    for (int i = 0; i < load->n_parts; i++) run_part(sim, &load->parts[i]);
    for (int stage = 0; stage < out->p; stage++) {
        out->step_us = later(out->step_us, sim->buffers.of.runners[stage].us);
    }
    for (int stage = 0; stage < out->p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        PipelineStage *times = &stages[stage];
        times->idle_us = out->step_us - runner->us;
        times->pipeline_us = runner->us - runner->free_us;
        times->bubble_us = later(runner->free_us - used_us(times), 0); /* rounding */
        if (load->constant_bytes) times->peak_bytes += load->constant_bytes[stage];
        if (used_us(times) > used_us(&stages[out->busiest])) out->busiest = stage;
        if (runner->spans && runner->next < runner->n_tasks) {
            runner->spans[runner->next].end_us = runner->us;
        }
    }
}

bool pipeline_sim_run(PipelineSim *sim, const PipelineLoad *load, PipelineResult *out, Diag *diag) {
    sim->load = load;
    sim->n_ready = 0;
    if (!prepare(sim, out, diag)) return false;
    for (int stage = out->p - 1; stage >= 0; stage--) wake(sim, stage);
    while (sim->n_ready > 0) run_stage(sim, next_ready(sim));
    if (!check_finished(sim, diag)) return false;
    finish(sim, out);
    return true;
}

int pipeline_memory_curve(const PipelineResult *result, const PipelineLoad *load, int stage,
                          MemoryPoint *out) {
    const PipelineList *list = &result->lists[stage];
    const TaskSpan *spans = &result->spans[result->stages[stage].first_span];
    double bytes = load->constant_bytes ? load->constant_bytes[stage] : 0;
    int n = 0;
    out[n++] = (MemoryPoint){0, bytes};
    for (int i = 0; i < list->n_tasks; i++) {
        const Task *task = &list->tasks[i];
        if (task->kind != TASK_FORWARD && task->kind != TASK_BACKWARD) continue;
        bool forward = task->kind == TASK_FORWARD;
        double frame = load->chunks[stage * load->shape.n_chunks + task->chunk].frame_bytes;
        bytes += forward ? frame : -frame;
        out[n++] = (MemoryPoint){forward ? spans[i].start_us : spans[i].end_us, bytes};
    }
    return n;
}
