/* Which of a run's losses a sweep goes by: in validation where all runs have that, else in
 * training. The same of all runs. */
#ifndef FRONTEND_COMMANDS_SWEEP_LOSS_H
#define FRONTEND_COMMANDS_SWEEP_LOSS_H

#include "frontend/commands/run_curve.h"

/* Of a run up to some step. */
typedef struct SweepLoss {
    bool counts; /* else the run is not among those that are compared */
    double val;  /* the last in validation; NaN: none */
    double end;  /* in training, the mean over the last tenth of the steps, as figures have it */
} SweepLoss;

/* by: a value of the log in its place, with its sign changed, so that less is better: its mean over
 * the last tenth of the steps, or where it has none there its last. NULL: losses. */
SweepLoss sweep_loss_of(const RunCurve *curve, int64_t step, const char *by);

/* What n runs are ordered by, NaN for those that do not count. True: it is in validation. */
bool sweep_losses(const SweepLoss *of, int n, double *out);

/* Reports that no log has the value that runs are to be compared by. */
void sweep_loss_report_absent(const char *by, Diag *diag);

#endif
