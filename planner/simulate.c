#include "planner/simulate.h"

#include <string.h>

enum { N_CASES = N_TASK_KINDS * MAX_CHUNKS };

/* What the run knows of one channel. Message k lies at messages[first + k]. */
typedef struct Link {
    int first, n_sent, n_taken, n_messages;
    int slots;
    double bytes;
    double free_us; /* when the wire is free again */
} Link;

typedef struct Run {
    const Plan *plan;
    const Device *device;
    Simulation *sim;
    Link *links;
    int16_t *links_of; /* [stage * N_CASES + case]: the channel of a kind of task */
    int *next;         /* per stage: its next task */
    int *part;         /* per stage: pieces of its update that are done */
    double *now_us;    /* per stage */
    int *ready;        /* stages to look at again; each at most once */
    bool *is_ready;
    int n_ready;
} Run;

static int task_case(const Task *task) {
    return task->kind * MAX_CHUNKS + task->chunk;
}

static void wake(Run *run, int stage) {
    if (run->is_ready[stage]) return;
    run->is_ready[stage] = true;
    run->ready[run->n_ready++] = stage;
}

/* plan_find_channel searches; ask it once per kind of task instead of once per task. */
static void find_links(Run *run, Arena *arena) {
    const Plan *plan = run->plan;
    enum { UNKNOWN = -2 };
    run->links_of = ARENA_ARRAY(arena, int16_t, plan->n_stages * N_CASES);
    run->links = ARENA_ARRAY(arena, Link, plan->n_channels + 1);
    int n_messages = 0;
    for (int stage = 0; stage < plan->n_stages; stage++) {
        int16_t *links_of = &run->links_of[stage * N_CASES];
        for (int i = 0; i < N_CASES; i++) links_of[i] = UNKNOWN;
        for (int i = 0; i < plan->stages[stage].n_tasks; i++) {
            const Task *task = &plan->stages[stage].tasks[i];
            int16_t *link = &links_of[task_case(task)];
            if (*link == UNKNOWN) *link = (int16_t)plan_find_channel(plan, stage, task);
            if (*link >= 0 && task_is_send(task)) run->links[*link].n_messages++;
        }
    }
    for (int i = 0; i < plan->n_channels; i++) {
        run->links[i].first = n_messages;
        run->links[i].slots = plan->channels[i].slots;
        run->links[i].bytes = (double)plan->channels[i].slot_bytes;
        n_messages += run->links[i].n_messages;
    }
    run->sim->n_messages = n_messages;
    run->sim->messages = ARENA_ARRAY(arena, MessageSpan, n_messages);
}

static Run *run_create(Arena *arena, const Plan *plan, const Device *device) {
    Run *run = ARENA_NEW(arena, Run);
    Simulation *sim = ARENA_NEW(arena, Simulation);
    *run = (Run){.plan = plan, .device = device, .sim = sim};
    sim->plan = plan;
    sim->costs = ARENA_ARRAY(arena, ProgramCost, plan->n_programs);
    for (int i = 0; i < plan->n_programs; i++) {
        sim->costs[i] = cost_program(plan, i, device, arena);
    }
    sim->stages = ARENA_ARRAY(arena, StageTimes, plan->n_stages);
    for (int stage = 0; stage < plan->n_stages; stage++) {
        sim->stages[stage].first_span = sim->n_spans;
        sim->n_spans += plan->stages[stage].n_tasks;
    }
    sim->spans = ARENA_ARRAY(arena, TaskSpan, sim->n_spans);
    find_links(run, arena);
    run->next = ARENA_ARRAY(arena, int, plan->n_stages);
    run->part = ARENA_ARRAY(arena, int, plan->n_stages);
    run->now_us = ARENA_ARRAY(arena, double, plan->n_stages);
    run->ready = ARENA_ARRAY(arena, int, plan->n_stages);
    run->is_ready = ARENA_ARRAY(arena, bool, plan->n_stages);
    return run;
}

/* Each try_* does the stage's next task, or returns false when it has to wait. */
static bool try_send(Run *run, int stage, int task, Link *link, TaskSpan *span) {
    const Channel *channel = &run->plan->channels[link - run->links];
    if (link->n_sent - link->n_taken >= link->slots || link->n_sent >= link->n_messages) {
        return false;
    }
    MessageSpan *message = &run->sim->messages[link->first + link->n_sent];
    double start_us = run->now_us[stage];
    if (link->n_sent >= link->slots) { /* the slot's last message must have been taken */
        double free_us = message[-link->slots].taken_us;
        if (free_us > start_us) start_us = free_us;
    }
    double wire_us = link->free_us > start_us ? link->free_us : start_us;
    double arrive_us = wire_us + cost_message_us(run->device, link->bytes);
    link->free_us = arrive_us - run->device->link_latency_us;
    *message = (MessageSpan){.channel = (int)(link - run->links),
                             .from_task = task,
                             .start_us = wire_us,
                             .arrive_us = arrive_us};
    *span = (TaskSpan){start_us, run->device->send_blocks ? link->free_us : start_us};
    run->sim->stages[stage].send_us += span->end_us - wire_us;
    run->now_us[stage] = span->end_us;
    link->n_sent++;
    wake(run, channel->to);
    return true;
}

static bool try_receive(Run *run, int stage, int task, Link *link, TaskSpan *span) {
    if (link->n_taken >= link->n_sent) return false;
    MessageSpan *message = &run->sim->messages[link->first + link->n_taken++];
    double start_us = run->now_us[stage];
    double end_us = message->arrive_us > start_us ? message->arrive_us : start_us;
    message->to_task = task;
    message->taken_us = end_us;
    *span = (TaskSpan){start_us, end_us};
    run->now_us[stage] = end_us;
    wake(run, run->plan->channels[link - run->links].from);
    return true;
}

static bool shares_comm(const Plan *plan, int a, int b) {
    for (int i = 0; i < plan->n_comms; i++) {
        bool has_a = false, has_b = false;
        for (int k = 0; k < plan->comms[i].n_stages; k++) {
            has_a |= plan->comms[i].stages[k] == a;
            has_b |= plan->comms[i].stages[k] == b;
        }
        if (has_a && has_b) return true;
    }
    return false;
}

static const ProgramCost *stage_cost(const Run *run, int stage) {
    return &run->sim->costs[run->plan->stages[stage].program];
}

/* Does `stage` take part, at the start of update piece `part`, in what `other` waits for? */
static bool joins(const Run *run, int part, int stage, int other) {
    const ProgramCost *a = stage_cost(run, stage), *b = stage_cost(run, other);
    if (part == 1) return a->joins_tied && b->joins_tied && shares_comm(run->plan, stage, other);
    return a->joins_pipeline && b->joins_pipeline;
}

/* All stages stand at the start of update piece `part`: those that reduce together leave together.
 */
static void run_update_part(Run *run, int part, double *joint_us) {
    int n_stages = run->plan->n_stages;
    for (int stage = 0; stage < n_stages; stage++) {
        joint_us[stage] = run->now_us[stage];
        for (int other = 0; part > 0 && other < n_stages; other++) {
            if (run->now_us[other] > joint_us[stage] && joins(run, part, stage, other)) {
                joint_us[stage] = run->now_us[other];
            }
        }
    }
    for (int stage = 0; stage < n_stages; stage++) {
        double us = stage_cost(run, stage)->update[part].us;
        run->now_us[stage] = joint_us[stage] + us;
        run->sim->stages[stage].busy_us += us;
    }
}

/* Runs a stage up to its update, or until it must wait. */
static void run_stage(Run *run, int stage) {
    const Stage *list = &run->plan->stages[stage];
    StageTimes *times = &run->sim->stages[stage];
    while (run->next[stage] < list->n_tasks) {
        int index = run->next[stage];
        const Task *task = &list->tasks[index];
        TaskSpan *span = &run->sim->spans[times->first_span + index];
        if (task->kind == TASK_UPDATE) return;
        if (task->kind == TASK_FORWARD || task->kind == TASK_BACKWARD) {
            const ProgramCost *cost = stage_cost(run, stage);
            const Cost *costs = task->kind == TASK_FORWARD ? cost->forward : cost->backward;
            double us = costs[task->chunk].us;
            *span = (TaskSpan){run->now_us[stage], run->now_us[stage] + us};
            run->now_us[stage] = span->end_us;
            times->busy_us += us;
        } else {
            int channel = run->links_of[stage * N_CASES + task_case(task)];
            Link *link = channel >= 0 ? &run->links[channel] : NULL;
            bool done = link && (task_is_send(task) ? try_send(run, stage, index, link, span)
                                                    : try_receive(run, stage, index, link, span));
            if (!done) return;
        }
        run->next[stage]++;
    }
}

/* Reports the first stage that is not at its update, where the lists end. */
static bool check_finished(const Run *run, Diag *diag) {
    for (int stage = 0; stage < run->plan->n_stages; stage++) {
        const Stage *list = &run->plan->stages[stage];
        int next = run->next[stage];
        if (next >= list->n_tasks) continue;
        const Task *task = &list->tasks[next];
        if (task->kind == TASK_UPDATE && next == list->n_tasks - 1) continue;
        diag_error(diag, NO_LOC, "stage %d waits forever at its task %d (%s%d.%d)", stage, next,
                   task_kind_word(task->kind), task->chunk, task->micro);
        return false;
    }
    return true;
}

static void finish_updates(Run *run, Arena *arena) {
    Simulation *sim = run->sim;
    int n_stages = run->plan->n_stages;
    double *joint_us = ARENA_ARRAY(arena, double, n_stages);
    double *start_us = ARENA_ARRAY(arena, double, n_stages);
    memcpy(start_us, run->now_us, sizeof(double) * (size_t)n_stages);
    for (int part = 0; part < N_UPDATE_PARTS; part++) run_update_part(run, part, joint_us);
    double used_us = 0;
    for (int stage = 0; stage < n_stages; stage++) {
        const Stage *list = &run->plan->stages[stage];
        if (run->now_us[stage] > sim->step_us) sim->step_us = run->now_us[stage];
        if (run->next[stage] < list->n_tasks) {
            sim->spans[sim->stages[stage].first_span + run->next[stage]] =
                (TaskSpan){start_us[stage], run->now_us[stage]};
        }
        used_us += sim->stages[stage].busy_us + sim->stages[stage].send_us;
    }
    for (int stage = 0; stage < n_stages; stage++) {
        StageTimes *times = &sim->stages[stage];
        times->idle_us = sim->step_us - times->busy_us - times->send_us;
        if (times->idle_us < 0) times->idle_us = 0; /* rounding */
    }
    double all_us = sim->step_us * n_stages;
    sim->bubble_fraction = all_us > 0 && used_us < all_us ? 1 - used_us / all_us : 0;
}

Simulation *simulate_plan(Arena *arena, const Plan *plan, const Device *device, Diag *diag) {
    Run *run = run_create(arena, plan, device);
    for (int stage = plan->n_stages - 1; stage >= 0; stage--) wake(run, stage);
    while (run->n_ready > 0) {
        int stage = run->ready[--run->n_ready];
        run->is_ready[stage] = false;
        run_stage(run, stage);
    }
    if (!check_finished(run, diag)) return NULL;
    finish_updates(run, arena);
    return run->sim;
}
