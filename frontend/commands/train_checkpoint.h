/* Going on with a run: --checkpoint, --checkpoint-every, --resume, --continue. */
#ifndef FRONTEND_COMMANDS_TRAIN_CHECKPOINT_H
#define FRONTEND_COMMANDS_TRAIN_CHECKPOINT_H

#include "frontend/commands/cli.h"
#include "runtime/data/dataset.h"
#include "runtime/engine.h"

typedef struct TrainCheckpoint {
    const char *to;   /* NULL: none are written */
    const char *from; /* NULL: the run begins */
    bool if_there;    /* from `from` if it is there, else the run begins */
    int64_t every;    /* steps; 0: at the end only */
    bool last_failed; /* of those written */
    TrainingPlace place;
} TrainCheckpoint;

/* False: options that contradict each other; reported. */
bool train_checkpoint_options(const CliArgs *args, TrainCheckpoint *out, Diag *diag);

/* What a checkpoint says about its data, so that another is noticed. */
void train_checkpoint_name_data(TrainCheckpoint *checkpoint, const Dataset *train, double entropy);

/* Loads what the options say. *out_resumed: the run goes on at checkpoint->place, which otherwise
 * is the beginning. Prints a line about where, unless quiet. False: reported. */
bool train_checkpoint_load(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet, bool *out_resumed, Diag *diag);

/* Writes one. What fails is told at once, and training goes on: the run's end says it again. */
void train_checkpoint_save(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet);

#endif
