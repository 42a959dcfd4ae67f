/* --stragglers: which ranks, and which messages, hold the others up? */
#ifndef FRONTEND_COMMANDS_TRAIN_STRAGGLERS_H
#define FRONTEND_COMMANDS_TRAIN_STRAGGLERS_H

#include "frontend/commands/cli.h"
#include "planner/cost/cost.h"
#include "runtime/engine.h"
#include "runtime/metrics/progress.h"

typedef struct TrainStragglers {
    int64_t every;    /* steps, a window; 0: never */
    double threshold; /* of a rank's own work beside the others' */
    Arena *arena;
    const EngineOptions *options;    /* of the engine; set before the first step */
    const Plan *plan;                /* that the steps follow */
    const double *bytes;             /* straggler_planned_bytes of it */
    const Plan *predicted_plan;      /* NULL: none, there is no profile */
    const double *predicted_seconds; /* [n_stages] */
    const char *predicted_with;
    /* Of the window, in this process; sums over n_timed of its n_steps steps. */
    int64_t n_steps, n_timed, n_measured;
    double step_seconds, data_seconds;
    bool measures, is_first; /* the step at hand */
    /* Of the run, on rank 0. */
    int64_t n_windows;
    double seconds; /* that comparing took */
    int n_ranks;
    int64_t *times; /* [n_ranks] that a rank was named */
    int64_t message_times;
    uint64_t last_named; /* who was, by the last window; 0: nobody */
    int slowest;         /* of all windows, beside the others of its stage; -1: none to compare */
    double slowest_ratio;
    double *stage_seconds; /* [n_stages] of the last window */
    StrBuf json;
} TrainStragglers;

/* False: reported. */
bool train_stragglers_from_args(const CliArgs *args, TrainStragglers *out, Diag *diag);
/* Before a step of `plan`; is_first: of this process, whose first step takes longer. */
void train_stragglers_begin(TrainStragglers *stragglers, Engine *engine, const Plan *plan,
                            int64_t step, bool is_first);
/* After a step, with what it took; at a window's end compares, prints who is named where that has
 * changed, and puts what was found into `metrics`, where it stays until the next step. False:
 * reported, the job failed. */
bool train_stragglers_end(TrainStragglers *stragglers, Engine *engine, StepMetrics *metrics,
                          double data_seconds, Progress *progress, bool quiet, Diag *diag);
/* What `plan` is predicted to take. False: reported. */
bool train_stragglers_predict(TrainStragglers *stragglers, const Plan *plan, const Device *device,
                              Diag *diag);
/* What came of it, a line or two; nothing where nothing was asked for. */
void train_stragglers_print(const TrainStragglers *stragglers);
void train_stragglers_close(TrainStragglers *stragglers);

#endif
