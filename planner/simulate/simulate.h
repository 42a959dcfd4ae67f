/* Simulate: what a plan's step, or that of a candidate of the search, would take on a described
 * device or cluster: prices every task and message, and plays them (pipeline_sim.h).
 */
#ifndef PLANNER_SIMULATE_SIMULATE_H
#define PLANNER_SIMULATE_SIMULATE_H

#include "planner/cost/cost.h"
#include "planner/simulate/pipeline_sim.h"

typedef struct StageTimes {
    double busy_us; /* forward, backward and update, without waiting */
    double send_us;
    double idle_us; /* the rest of the step */
    int first_span; /* task i of the stage has spans[first_span + i] */
} StageTimes;

typedef struct Simulation {
    const Plan *plan;
    double step_us;
    /* Of all stages' time: waiting for other stages, were messages free; and for messages. */
    double bubble_fraction, message_fraction;
    ProgramCost *costs; /* per program */
    StageTimes *stages;
    int n_spans, n_messages;
    const TaskSpan *spans;       /* by stage, then task */
    const MessageSpan *messages; /* by channel, then order of sending */
} Simulation;

/* NULL: reported; the task lists do not finish (verify_plan would have said so as well). */
Simulation *simulate_plan(Arena *arena, const Plan *plan, const Device *device, Diag *diag);

static inline const TaskSpan *simulation_span(const Simulation *sim, int stage, int task) {
    return &sim->spans[sim->stages[stage].first_span + task];
}

#endif
