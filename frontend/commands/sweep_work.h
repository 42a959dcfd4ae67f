/* The runs of a sweep at work: processes of this program, some at a time. */
#ifndef FRONTEND_COMMANDS_SWEEP_WORK_H
#define FRONTEND_COMMANDS_SWEEP_WORK_H

#include "frontend/commands/sweep_args.h"

typedef struct SweepWork {
    const Sweep *sweep;
    const double *step_s; /* [n_runs]: predicted; for the time left alone */
    int n_jobs;
    int n_threads; /* of each; 0: as train has it */
    bool cuda;     /* one GPU for each */
    bool quiet;    /* says nothing of what goes well */
    bool retry;    /* what failed is run again */
} SweepWork;

/* Runs what has no result yet. Ctrl-C and SIGTERM end the runs after their steps. Returns
 * EXIT_DONE, EXIT_FAILED (reported, or a run failed), or EXIT_INTERRUPTED. */
int sweep_work(const SweepWork *asked, Diag *diag);

#endif
