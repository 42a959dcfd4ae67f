/* What the reference model says of answers, for losses that compare with it (DPO, KTO and others):
 * the log-probability of each one under the weights that training begins with, or those of
 * --reference-load, computed once by the plan's own forward, so that no second model is in memory.
 *
 * They are kept in memory, and where there is a checkpoint, or --reference names a file, in a
 * safetensors file: "row_scores" f32[pairs, 2], of the data for training and then for validation,
 * with fingerprints of the weights' files and of the data. A run that goes on reads them: by then
 * the weights have moved.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_REFERENCE_H
#define FRONTEND_COMMANDS_TRAIN_REFERENCE_H

#include "frontend/commands/train_data.h"
#include "runtime/engine.h"

/* What can be said before anything is loaded. False: reported. */
bool train_reference_check(const TrainData *data, Diag *diag);

/* Sets the scores of data's parts and engine's reference; nothing where the plan asks for none.
 * resumed: the engine's weights are no longer the first ones, and place->reference says whose
 * scores they were trained with; it is set. False: reported. */
bool train_reference_make(TrainData *data, Engine *engine, const EngineOptions *options,
                          bool resumed, bool quiet, TrainingPlace *place, Diag *diag);

#endif
