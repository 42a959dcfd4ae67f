/* --norms: how large each parameter is, its gradient and its change, every N steps; and after a
 * step that is left out as a spike, whose gradients made it one. */
#ifndef FRONTEND_COMMANDS_TRAIN_NORMS_H
#define FRONTEND_COMMANDS_TRAIN_NORMS_H

#include "frontend/commands/cli.h"
#include "runtime/engine_norms.h"
#include "runtime/metrics/progress.h"

typedef struct TrainNorms {
    int64_t every; /* steps; 0: spikes alone */
    Engine *engine;
    EngineNorms *norms; /* of it; NULL: not yet needed */
    int64_t n_times;    /* that they were measured, without spikes */
    double seconds;     /* which that took */
    /* Of the last time: the one that changed most, beside its size; "": none. */
    char fastest[128];
    double fastest_pace;
} TrainNorms;

TrainNorms train_norms_from_args(const CliArgs *args);
/* Before a step of `engine`. */
void train_norms_begin(TrainNorms *norms, Engine *engine, int64_t step);
/* After it, with its numbers, to which it adds what is due; where the step was a spike a line says
 * whose gradients were largest. False: reported, the job failed. */
bool train_norms_end(TrainNorms *norms, StepMetrics *metrics, Progress *progress, bool quiet,
                     Diag *diag);
/* What came of it, a line; nothing where nothing was asked for. */
void train_norms_print(const TrainNorms *norms);
/* Before the engine goes, or another takes its place. */
void train_norms_close(TrainNorms *norms);

#endif
