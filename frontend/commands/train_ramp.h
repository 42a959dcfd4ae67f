/* --batch-ramp: a run that begins with smaller batches (Brown et al. 2020, table 2.1 and appendix
 * B: noise of the gradient falls as training goes on, and small batches take fewer tokens for the
 * same loss while it is large).
 *
 * Each batch has a plan of its own, of the same mesh and schedule; plans are made before training
 * begins, so that one that cannot be made or does not fit is found then.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_RAMP_H
#define FRONTEND_COMMANDS_TRAIN_RAMP_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"

typedef struct RampStage {
    int64_t last_step;
    Plan *plan;
} RampStage;

typedef struct TrainRamp {
    RampStage *stages; /* in order; behind the last the run's own plan */
    int count;         /* 0: there is no ramp */
} TrainRamp;

/* What --batch-ramp says, with its plans; `full`: the run's. False: reported. */
bool train_ramp_from_args(CliArgs *args, const Plan *full, TrainRamp *out, Diag *diag);

/* The plan of a step, from 1. */
Plan *train_ramp_at(const TrainRamp *ramp, Plan *full, int64_t step);

/* Of all those plans the one with the largest arenas. */
Plan *train_ramp_largest(const TrainRamp *ramp, Plan *full);

/* A line for the beginning of a run; nothing where there is no ramp. */
void train_ramp_print(const TrainRamp *ramp, const Plan *full);

#endif
