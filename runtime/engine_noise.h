/* The norm of the gradients of a part of a batch, of which a run's noise scale is made
 * (runtime/metrics/noise_scale.h).
 *
 * A step is run on a batch that has each sample of the part as often as the others, and so the
 * part's own gradients; samples of a part follow each other, so that sources have their shares of
 * it as of a batch (runtime/data/blend.h). Its update is left out, as a spike's is (skip_spike), so
 * that nothing changes: no weight, state, average or loss scale. That is a whole step's work, takes
 * no memory of the plan's, and gives the same numbers under every layout, one micro-batch or many.
 * Dropout is another one in each copy of a sample: its noise is not in what the part differs by.
 */
#ifndef RUNTIME_ENGINE_NOISE_H
#define RUNTIME_ENGINE_NOISE_H

#include "runtime/engine.h"

typedef struct EngineNoise EngineNoise;

/* Samples are so many rows of the global batch, which follow each other: 1, or 2 of pairs. Takes
 * memory for a batch, on the host. For plans with plan_skips_spikes. Outlived by the engine. */
EngineNoise *engine_noise_create(Engine *engine, int rows_together);
void engine_noise_destroy(EngineNoise *noise); /* NULL is fine */
/* Samples of the global batch, and of the part. */
int engine_noise_batch(const EngineNoise *noise);
int engine_noise_small_batch(const EngineNoise *noise);
/* The norm at the weights as they are, as a step's grad_norm; maybe not finite. Before that step,
 * with what it is given; `part`: of as many as the batch has, counted over and over, from 0. What
 * was set for the engine's next step, its references and numbers, is left as it was. False:
 * reported. */
bool engine_noise_measure(EngineNoise *noise, int64_t step, int64_t part, const int32_t *tokens,
                          const int32_t *labels, double *out_norm, Diag *diag);

#endif
