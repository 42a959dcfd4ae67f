/* Simulate: plays all stages' task lists on a described device; every rank of a stage alike.
 *
 * A discrete-event run in time linear in tasks: a stage goes on until it must wait for a message
 * (receive), for room in a channel (send), or for the other stages (update). What each stage does
 * is fixed, so the order in which stages are looked at cannot change the result (Kahn 1974).
 */
#ifndef PLANNER_SIMULATE_H
#define PLANNER_SIMULATE_H

#include "planner/cost.h"

typedef struct TaskSpan {
    double start_us, end_us; /* a receive's span is its wait, an update's includes waiting */
} TaskSpan;

/* One message: from the sender's start until the receiver takes it. */
typedef struct MessageSpan {
    int channel, from_task, to_task; /* tasks of the channel's two stages */
    double start_us, arrive_us, taken_us;
} MessageSpan;

typedef struct StageTimes {
    double busy_us; /* forward, backward and update, without waiting */
    double send_us;
    double idle_us; /* the rest of the step */
    int first_span; /* task i of the stage has spans[first_span + i] */
} StageTimes;

typedef struct Simulation {
    const Plan *plan;
    double step_us;
    double bubble_fraction; /* of all stages' time, what no stage computes or sends in */
    ProgramCost *costs;     /* per program */
    StageTimes *stages;
    int n_spans, n_messages;
    TaskSpan *spans;       /* by stage, then task */
    MessageSpan *messages; /* by channel, then order of sending */
} Simulation;

/* NULL: reported; the task lists do not finish (verify_plan would have said so as well). */
Simulation *simulate_plan(Arena *arena, const Plan *plan, const Device *device, Diag *diag);

static inline const TaskSpan *simulation_span(const Simulation *sim, int stage, int task) {
    return &sim->spans[sim->stages[stage].first_span + task];
}
static inline bool task_is_compute(const Task *task) {
    return task->kind == TASK_FORWARD || task->kind == TASK_BACKWARD || task->kind == TASK_UPDATE;
}
static inline bool task_is_send(const Task *task) {
    return task->kind == TASK_SEND_FORWARD || task->kind == TASK_SEND_BACKWARD;
}

#endif
