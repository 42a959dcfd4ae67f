/* Samples that a run leaves out: --skip-samples A..B, the samples behind the first A up to B, as a
 * log counts them. It follows from a sample's number alone, so a run that is stopped and goes on
 * with the same options leaves out the same. */
#ifndef FRONTEND_COMMANDS_TRAIN_SKIPS_H
#define FRONTEND_COMMANDS_TRAIN_SKIPS_H

#include "frontend/commands/cli.h"

enum { TRAIN_MOST_SKIPS = 64 };

typedef struct TrainSkips {
    int64_t from[TRAIN_MOST_SKIPS], to[TRAIN_MOST_SKIPS]; /* [n] */
    int n;
} TrainSkips;

/* False: reported. */
bool train_skips_from_args(const CliArgs *args, TrainSkips *out, Diag *diag);

/* The first sample from `number` on that is not left out. */
int64_t train_skips_next(const TrainSkips *skips, int64_t number);
/* Where those that are not left out end, from `number` on, which is one: `end` at most. */
int64_t train_skips_until(const TrainSkips *skips, int64_t number, int64_t end);

#endif
