/* --spike-factor, --spike-window, --spike-stop: steps whose gradients' norm is far above what it
 * has been are left out, and change nothing.
 *
 * Above what: so many times the median of the last N steps that were not left out, which one large
 * norm moves by one place, where it would pull a mean up. ZClip (Kumar et al. 2025, arXiv
 * 2504.02507) clips what is far from a moving average; here gradients are clipped anyway, which
 * bounds a step's size but not its direction, so only what is an order of magnitude above is taken
 * for a spike. PaLM (Chowdhery et al. 2022, arXiv 2204.02311, 5.1) found that spikes came of some
 * batches at some states, and that leaving these batches out was enough.
 *
 * Decisions are made of the norm that all ranks share, in the update itself; the window is in
 * checkpoints, so that a run that goes on decides alike.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_SPIKES_H
#define FRONTEND_COMMANDS_TRAIN_SPIKES_H

#include "frontend/commands/cli.h"
#include "runtime/engine.h"

typedef struct TrainSpikes {
    double factor; /* 0: no step is left out */
    int window, stop;
    int64_t n_spikes; /* of this process' steps */
    double limit;     /* of the next step's norm; INFINITY: the window is not full */
} TrainSpikes;

/* False: options that mean nothing; reported. */
bool train_spikes_from_args(const CliArgs *args, TrainSpikes *out, Diag *diag);
/* Can the plan, and a run that learns from answers or does not, leave out steps? False: reported.
 */
bool train_spikes_check(const TrainSpikes *spikes, const Plan *plan, bool writes_answers,
                        Diag *diag);
/* Before a step, and after it, which changes `place`. False: too many in a row; reported. */
void train_spikes_begin(TrainSpikes *spikes, TrainingPlace *place, Engine *engine);
bool train_spikes_end(TrainSpikes *spikes, TrainingPlace *place, const StepResult *result,
                      Diag *diag);
/* The line of a run's end. */
void train_spikes_print(const TrainSpikes *spikes, int64_t n_steps);

#endif
