/* perilune sweep's options -> the runs, each parsed and planned as train would. */
#ifndef FRONTEND_COMMANDS_SWEEP_ARGS_H
#define FRONTEND_COMMANDS_SWEEP_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/commands/sweep_folder.h"

/* What a run comes to: nothing is measured. */
typedef struct SweepEstimate {
    double n_parameters, n_tokens; /* learned from in all of its steps */
    int64_t planned_bytes;         /* of all ranks' arenas; on GPUs of the device */
    double step_s;
} SweepEstimate;

typedef struct SweepPlan {
    Sweep sweep;
    SweepEstimate *estimates; /* [n_runs] */
    bool cuda;                /* of any run */
    const char *on;           /* what times are predicted on */
} SweepPlan;

/* Finds the runs, and what is wrong with any of them, in the order: keys, values, plans, options
 * that contradict each other, files that cannot be read. Returns -1 to go on, or the exit code:
 * printed. */
int sweep_plan_from_args(CliArgs *args, SweepPlan *out, Diag *diag);

/* argv of a run, with the program's name and NULL at the end, up to a step: n_steps is its end. */
const char **sweep_command(Arena *arena, const Sweep *sweep, const SweepRun *run,
                           const char *program, int64_t last_step, int n_threads, int *out_count);

#endif
