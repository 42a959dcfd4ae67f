/* Successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943): all runs train up to a rung;
 * the best 1/N of them go on, to a rung N times as far; until the last ones reach their end. All
 * runs of a rung are waited for, which makes it the same whatever is at work beside it: ASHA (Li et
 * al. 2020, arXiv 1810.05934) does not wait, for hundreds of workers. */
#ifndef FRONTEND_SWEEP_HALVING_H
#define FRONTEND_SWEEP_HALVING_H

#include <stdbool.h>
#include <stdint.h>

/* Rungs until one of n_runs would be left, when each keeps 1/factor of them. */
int halving_rungs(int n_runs, int factor);
/* Where rung 0..n_rungs-1 is in a run of so many steps: steps / factor^(n_rungs - rung), up to the
 * next step that validates (every so many; 0: none does). Rung n_rungs: its end. */
int64_t halving_step(int64_t n_steps, int factor, int n_rungs, int rung, int64_t eval_every);
/* Sets kept[i] for the best 1/factor of n losses, one at least unless all are NaN; of equal ones
 * the first. */
void halving_choose(const double *losses, int n, int factor, bool *kept);

#endif
