/* Going on with a run: --checkpoint, --checkpoint-every, --checkpoint-keep, --checkpoint-async,
 * --resume, --continue. */
#ifndef FRONTEND_COMMANDS_TRAIN_CHECKPOINT_H
#define FRONTEND_COMMANDS_TRAIN_CHECKPOINT_H

#include "frontend/commands/train_keep.h"
#include "runtime/engine.h"
#include "runtime/metrics/progress.h"

#include <sys/stat.h>

typedef struct TrainCheckpoint {
    const char *to;       /* NULL: none are written */
    const char *from;     /* NULL: the run begins */
    bool if_there;        /* from `from` if it is there, else the run begins */
    int64_t every;        /* steps; 0: at the end only */
    bool async;           /* behind training */
    bool quiet;           /* says nothing of what goes well */
    bool last_failed;     /* of those written */
    bool ends;            /* the run does, with this one or without */
    int64_t written_step; /* of the last that was; -1: none yet */
    TrainingPlace place;
    TrainKeep keep;
    EngineSnapshot *snapshot; /* async: created by train_checkpoint_prepare */
    int64_t writing_step;     /* of what is being written behind training */
    struct stat seen;         /* `to`, as this run found or wrote it last; st_ino 0: not there */
    bool told_replaced;       /* that it was another's then */
    double begun, waited;     /* when, and seconds that training has waited for it */
} TrainCheckpoint;

/* False: options that contradict each other; reported. */
bool train_checkpoint_options(const CliArgs *args, TrainCheckpoint *out, Diag *diag);

/* Beside a checkpoint's own weights only a plan that compares with a reference has any to load.
 * False: reported. */
bool train_checkpoint_check(const CliArgs *args, const Plan *plan, Diag *diag);

/* Loads what the options say. *out_resumed: the run goes on at checkpoint->place, which otherwise
 * is the beginning. Prints a line about where, unless quiet. False: reported. */
bool train_checkpoint_load(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, bool quiet, bool *out_resumed, Diag *diag);

/* Takes the memory that --checkpoint-async needs. False: reported. */
bool train_checkpoint_prepare(TrainCheckpoint *checkpoint, Engine *engine, Diag *diag);

/* Writes one, or begins to: the run's last is there when this returns. What fails is told at once,
 * and training goes on: the run's end says it again. */
void train_checkpoint_save(TrainCheckpoint *checkpoint, Engine *engine,
                           const EngineOptions *options, Progress *progress, bool is_last);
/* After each step: says when what is written behind training is there. */
void train_checkpoint_poll(TrainCheckpoint *checkpoint, const EngineOptions *options,
                           Progress *progress);
/* Whatever became of the run: waits for what is being written, and frees. */
void train_checkpoint_end(TrainCheckpoint *checkpoint, const EngineOptions *options,
                          Progress *progress);

#endif
