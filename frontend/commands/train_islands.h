/* Runs that train apart and meet now and then (runtime/engine_islands.h): --islands, --island,
 * --island-address, --outer-every and their kin. Island 0 validates and saves weights. */
#ifndef FRONTEND_COMMANDS_TRAIN_ISLANDS_H
#define FRONTEND_COMMANDS_TRAIN_ISLANDS_H

#include "frontend/commands/train_data.h"
#include "frontend/commands/train_skips.h"
#include "runtime/engine_islands.h"
#include "runtime/metrics/lr_schedule.h"
#include "runtime/metrics/progress.h"

typedef struct TrainIslands {
    OuterTurns turns; /* every 0: there are no islands */
    IslandsOptions options;
    EngineIslands *engine;
    int64_t n_met, n_missed; /* meetings; and islands' shares that were lacking in them */
    double seconds, wait_seconds, hidden_seconds;
    double unsaid_seconds; /* since the last report: parts were sent */
    int64_t bytes;
    bool is_stopped; /* in the middle of a meeting: its step's is still to come */
} TrainIslands;

/* Options, and where they are not given PERILUNE_ISLANDS, PERILUNE_ISLAND and
 * PERILUNE_ISLAND_ADDRESS. `stopped`: has the user asked for an end? False: reported. */
bool train_islands_options(CliArgs *args, bool (*stopped)(void), TrainIslands *out, Diag *diag);
/* --outer-dtype. False: reported. */
bool train_islands_dtype(const CliArgs *args, DType *out, Diag *diag);
/* What cannot be done on islands. False: reported. */
bool train_islands_check(const CliArgs *args, const Plan *plan, const TrainIslands *islands,
                         Diag *diag);

/* Takes the memory. False: reported. */
bool train_islands_open(const CliArgs *args, const TrainData *data, const LrSchedule *rate,
                        Engine *engine, TrainIslands *islands, Diag *diag);
/* Waits for the others, before the first step. *place may become island 0's. from: the checkpoint
 * that training goes on from; NULL: none. False: reported. */
bool train_islands_start(TrainIslands *islands, const char *from, TrainingPlace *place, bool quiet,
                         Diag *diag);
/* `why`: the others are told; NULL: all has gone well. */
void train_islands_close(TrainIslands *islands, const char *why);

/* How many islands share the samples, and which is this one; 1 and 0 without islands. */
int train_islands_count(const TrainIslands *islands);
int train_islands_own(const TrainIslands *islands);
static inline bool train_islands_leads(const TrainIslands *islands) {
    return train_islands_own(islands) == 0;
}
/* Of a checkpoint of the last step: does the meeting after it lack? */
bool train_islands_lack_end(const TrainIslands *islands, const TrainingPlace *place,
                            int64_t n_steps);
/* Is a meeting due, or the merging of one, with step *place done? */
bool train_islands_due(const TrainIslands *islands, const TrainingPlace *place);
/* Meets; *metrics, unless NULL, says so. *place may become island 0's. False: reported. */
bool train_islands_meet(TrainIslands *islands, TrainingPlace *place, StepMetrics *metrics,
                        Progress *progress, bool quiet, Diag *diag);
/* Before a checkpoint: waits for what is on its way, or with gives_up, as a run is stopped, gives
 * it up. Likewise. */
bool train_islands_settle(TrainIslands *islands, TrainingPlace *place, bool gives_up,
                          Progress *progress, bool quiet, Diag *diag);

/* Lines for the beginning and the end of a run. */
void train_islands_print(const TrainIslands *islands);
void train_islands_print_end(const TrainIslands *islands);
/* Of memory beside the plan's, in this process. */
int64_t train_islands_bytes(const TrainIslands *islands);

#endif
