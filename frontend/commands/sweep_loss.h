/* Which of a run's losses a sweep goes by: in validation where all runs have that, else in
 * training. The same of all runs. */
#ifndef FRONTEND_COMMANDS_SWEEP_LOSS_H
#define FRONTEND_COMMANDS_SWEEP_LOSS_H

#include "frontend/commands/run_curve.h"

/* The mean training loss over the last tenth of the steps up to one; NaN: there is none. */
double sweep_end_loss(const RunCurve *curve, int64_t step);

/* Of n curves, NULL where there is none (losses[i] is NaN then), up to steps[i]: the last
 * validation losses, if all curves have one, else as above. True: in validation. */
bool sweep_losses(const RunCurve *const *curves, const int64_t *steps, int n, double *losses);

#endif
