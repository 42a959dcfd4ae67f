/* Checkpoints that stay when the next one replaces --checkpoint's file: --checkpoint-keep and
 * --checkpoint-keep-every. Each has a second name with its step (run.ckpt: run-500.ckpt), which is
 * a hard link: no copy is made. */
#ifndef FRONTEND_COMMANDS_TRAIN_KEEP_H
#define FRONTEND_COMMANDS_TRAIN_KEEP_H

#include "frontend/commands/cli.h"
#include "runtime/engine.h"

typedef struct TrainKeep {
    const char *to;        /* --checkpoint's file */
    const char *inputs[3]; /* files that the command reads: never replaced; or NULL */
    int n_last;            /* 1: none but the file itself */
    int64_t every;         /* 0: none */
    bool failed;           /* to keep one: told when it happened */
} TrainKeep;

/* False: options that contradict each other; reported. */
bool train_keep_options(const CliArgs *args, TrainKeep *out, Diag *diag);
/* Before a checkpoint is written at the place: whether it is to go in time is in it, too, so that
 * whoever goes on from it knows what may be taken away, whatever the options were and are. */
void train_keep_begin(const TrainKeep *keep, TrainingPlace *place);
/* A checkpoint of this step is there: keeps it, and takes away the one that is too many. Of several
 * processes one is `first`, and does it. ends: the run does. */
void train_keep_put(TrainKeep *keep, TrainingPlace *place, int64_t step, bool first, bool ends);

#endif
