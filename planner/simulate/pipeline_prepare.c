#include "planner/simulate/pipeline_run.h"

#include <string.h>

/* Lists made from a schedule have at most this many tasks: half a gigabyte for all that a run
 * needs. */
enum { MAX_MADE_TASKS = 1 << 23 };

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

void *pipeline_sim_scratch(PipelineSim *sim, size_t bytes) {
    return RESERVE(sim, scratch, bytes);
}

static bool make_lists(PipelineSim *sim, Diag *diag) {
    const PipelineLoad *load = sim->load;
    const PipelineShape *shape = &load->shape;
    const char *name = schedule_name(load->schedule);
    if (!name) BUG("schedule %d", load->schedule);
    if (!schedule_check(name, shape, NO_LOC, diag)) return false;
    int64_t n_tasks = schedule_n_tasks(load->schedule, shape);
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

static TaskKind find_ends(const PipelineSim *sim, const PipelineList *lists) {
    if (!sim->given) return schedule_splits(sim->load->schedule) ? TASK_WEIGHTS : TASK_BACKWARD;
    for (int stage = 0; stage < sim->load->shape.p; stage++) {
        for (int i = 0; i < lists[stage].n_tasks; i++) {
            if (lists[stage].tasks[i].kind == TASK_WEIGHTS) return TASK_WEIGHTS;
        }
    }
    return TASK_BACKWARD;
}

static int link_of(const PipelineSim *sim, int global, TaskKind kind) {
    Task task = {.kind = (uint8_t)kind, .chunk = (uint8_t)path_chunk(sim->path, global)};
    return links_find(&sim->buffers.of.runners[path_stage(sim->path, global)].links, &task);
}

static void count_messages(PipelineSim *sim) {
    const PipelineLoad *load = sim->load;
    Link *links = sim->buffers.of.links;
    if (!sim->given) {
        /* One for each micro-batch and border between chunks that the link is for. */
        for (int g = 0; g + 1 < load->shape.p * load->shape.n_chunks; g++) {
            if (path_turns(sim->path, g)) continue;
            int forward = link_of(sim, g, TASK_SEND_FORWARD);
            int backward = link_of(sim, g + 1, TASK_SEND_BACKWARD);
            if (forward >= 0) links[forward].n_messages += load->shape.n_micro;
            if (backward >= 0) links[backward].n_messages += load->shape.n_micro;
        }
        return;
    }
    for (int stage = 0; stage < load->shape.p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        for (int i = 0; i < runner->n_tasks; i++) {
            if (!task_is_send(&runner->tasks[i])) continue;
            int link = links_find(&runner->links, &runner->tasks[i]);
            if (link >= 0) links[link].n_messages++;
        }
    }
}

static int prepare_links(PipelineSim *sim) {
    const PipelineLoad *load = sim->load;
    int p = load->shape.p, n_messages = 0;
    bool limited = false;
    Link *links = RESERVE(sim, links, load->n_links);
    Links *ends = RESERVE(sim, ends, p);
    links_clear(ends, p);
    double *wires = RESERVE(sim, wires, load->n_wires + load->n_links);
    for (int wire = 0; wire < load->n_wires; wire++) wires[wire] = -1; /* whose it is: nobody's */
    sim->timed = false;
    for (int i = 0; i < load->n_links; i++) {
        const PipelineLink *of = &load->links[i];
        int wire = of->wire >= 0 ? of->wire : load->n_wires + i;
        if (of->wire >= load->n_wires) BUG("wire %d of %d", of->wire, load->n_wires);
        /* One stage's links ask for their wire in the order of its tasks. */
        sim->timed |= of->wire >= 0 && wires[wire] >= 0 && wires[wire] != of->from;
        wires[wire] = of->from;
        limited |= of->slots > 0;
        links[i] = (Link){.from = of->from,
                          .to = of->to,
                          .slots = of->slots,
                          .wire = wire,
                          .message_us = of->message_us,
                          .latency_us = of->latency_us};
        if (of->from < 0 || of->from >= p || of->to < 0 || of->to >= p) continue;
        links_add(ends, sim->path, i, of->from, of->to, of->backward);
    }
    for (int stage = 0; stage < p; stage++) sim->buffers.of.runners[stage].links = ends[stage];
    memset(wires, 0, sizeof(*wires) * (size_t)(load->n_wires + load->n_links));
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

bool pipeline_prepare(PipelineSim *sim, PipelineResult *out, Diag *diag) {
    const PipelineLoad *load = sim->load;
    int p = load->shape.p, n_chunks = load->shape.n_chunks;
    sim->given = load->lists != NULL;
    sim->path = (Path){sim->given ? load->shape.path : schedule_path(load->schedule), p};
    if (!sim->given && !make_lists(sim, diag)) return false;
    const PipelineList *lists = sim->given ? load->lists : sim->buffers.of.lists;
    sim->ends = find_ends(sim, lists);
    PipelineStage *stages = RESERVE(sim, stages, p);
    Runner *runners = RESERVE(sim, runners, p);
    RESERVE(sim, ready, p);
    RESERVE(sim, joint, p);
    *out = (PipelineResult){.p = p, .stages = stages, .lists = lists};
    for (int stage = 0; stage < p; stage++) {
        runners[stage] = (Runner){.tasks = lists[stage].tasks, .n_tasks = lists[stage].n_tasks};
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
