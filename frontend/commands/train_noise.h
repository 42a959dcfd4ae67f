/* --noise-scale: every N steps the gradients' norm of a part of the batch, and with it how large a
 * batch is large enough (runtime/metrics/noise_scale.h). What was measured is in checkpoints. */
#ifndef FRONTEND_COMMANDS_TRAIN_NOISE_H
#define FRONTEND_COMMANDS_TRAIN_NOISE_H

#include "frontend/commands/cli.h"
#include "frontend/commands/train_data.h"
#include "runtime/engine_noise.h"

typedef struct TrainNoise {
    int64_t every;      /* steps; 0: never */
    EngineNoise *noise; /* of the steps' engine; NULL: not yet needed */
    double small_norm;  /* of the step at hand; 0: not measured */
    int64_t n_times;    /* that it was measured, by this process */
    double seconds;     /* which that took */
} TrainNoise;

TrainNoise train_noise_from_args(const CliArgs *args);
/* Can it be measured, of this plan and data, and not of answers that the run writes? False:
 * reported. */
bool train_noise_check(const TrainNoise *noise, const Plan *plan, const TrainData *data,
                       bool writes_answers, Diag *diag);
/* Before a step of `engine` on this batch. False: reported, the job failed. */
bool train_noise_begin(TrainNoise *noise, Engine *engine, const TrainData *data, int64_t step,
                       const int32_t *tokens, const int32_t *labels, Diag *diag);
/* After it: adds to what was measured, and to the step's numbers. */
void train_noise_end(TrainNoise *noise, NoiseScale *scale, StepMetrics *metrics);
/* What came of it; nothing where nothing was asked for. */
void train_noise_print(const TrainNoise *noise, const NoiseScale *scale, const TrainData *data);
/* Before the engine goes, or another takes its place. */
void train_noise_close(TrainNoise *noise);

#endif
