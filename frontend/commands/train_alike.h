/* Are the processes of a job at the same work? Their plan has one fingerprint; this compares what
 * the command lines of `train`, `evaluate` and `generate` add to it, and the data that was found:
 * with another learning rate, file or number of steps a job would train something else, or wait for
 * ever. */
#ifndef FRONTEND_COMMANDS_TRAIN_ALIKE_H
#define FRONTEND_COMMANDS_TRAIN_ALIKE_H

#include "frontend/commands/train_data.h"
#include "runtime/engine.h"

/* All ranks call it; data NULL: there are none. False: reported, with the first rank that differs
 * from rank 0, and in what; or the job has failed. */
bool train_alike_check(const CliArgs *args, const TrainData *data, const EngineOptions *options,
                       Diag *diag);
/* The same of texts to write or to score; `digest` is of all their tokens. */
bool train_alike_texts(const CliArgs *args, uint64_t digest, const EngineOptions *options,
                       Diag *diag);

#endif
