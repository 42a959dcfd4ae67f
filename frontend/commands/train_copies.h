/* --check-copies: do ranks that hold the same weights still hold the same bits? */
#ifndef FRONTEND_COMMANDS_TRAIN_COPIES_H
#define FRONTEND_COMMANDS_TRAIN_COPIES_H

#include "frontend/commands/cli.h"
#include "runtime/engine.h"

typedef struct TrainCopies {
    int64_t every; /* steps; 0: never */
    int64_t n_checks;
    double seconds; /* that they took together */
} TrainCopies;

TrainCopies train_copies_from_args(const CliArgs *args);

/* After a step; due: whatever its number, as before what is saved. False: they do not, or could not
 * be compared; reported. */
bool train_copies_check(TrainCopies *copies, Engine *engine, int64_t step, bool due, Diag *diag);

/* What came of it, a line; nothing where none was asked for. */
void train_copies_print(const TrainCopies *copies, const Plan *plan);

#endif
