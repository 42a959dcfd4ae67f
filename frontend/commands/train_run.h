/* A training run (perilune train): what its parts share, and what is said of it at its beginning
 * and its end. */
#ifndef FRONTEND_COMMANDS_TRAIN_RUN_H
#define FRONTEND_COMMANDS_TRAIN_RUN_H

#include "frontend/commands/engine_args.h"
#include "frontend/commands/train_checkpoint.h"
#include "frontend/commands/train_choices.h"
#include "frontend/commands/train_copies.h"
#include "frontend/commands/train_data.h"
#include "frontend/commands/train_islands.h"
#include "frontend/commands/train_layout.h"
#include "frontend/commands/train_log.h"
#include "frontend/commands/train_metrics.h"
#include "frontend/commands/train_noise.h"
#include "frontend/commands/train_norms.h"
#include "frontend/commands/train_ramp.h"
#include "frontend/commands/train_rollout.h"
#include "frontend/commands/train_skips.h"
#include "frontend/commands/train_spikes.h"
#include "frontend/commands/train_stragglers.h"
#include "frontend/commands/train_validate.h"
#include "runtime/engine.h"
#include "runtime/metrics/lr_schedule.h"
#include "runtime/metrics/progress.h"

/* Everything of one run; released by run_end, whatever was reached. */
typedef struct TrainRun {
    CliArgs *args;
    Diag *diag;
    Plan *plan;      /* of the steps that are next */
    Plan *full_plan; /* what the options ask for; the same but for a ramp's steps */
    TrainRamp ramp;
    const DeviceProfile *profile; /* NULL: none given */
    TrainLayout layout;
    TrainData data;
    TrainChoices choices;
    Rollout *rollout; /* NULL: the data are learned from as they are */
    EngineOptions options;
    Engine *engine;
    TrainLog log;
    LrSchedule rate;
    Progress progress;
    TrainSkips skips;
    TrainSpikes spikes;
    TrainMetrics metrics;
    TrainCheckpoint checkpoint;
    TrainCopies copies;
    TrainStragglers stragglers;
    TrainNorms norms;
    TrainNoise noise;
    TrainIslands islands;
    int64_t first_step;   /* after those that a checkpoint had done */
    int64_t first_sample; /* of this process, as they are counted */
    int64_t n_steps, eval_every, steps_done;
    int64_t last_step;        /* of this run: n_steps, or --stop-at's */
    int32_t *tokens, *labels; /* [global_batch, seq] */
    int64_t n_active;         /* parameters that a token meets */
    double loss, training_seconds, n_tokens;
    ValidationResult validation;  /* the last one */
    ValidationResult of_average;  /* with the average of the weights in their place, if there is */
    RolloutValidation of_answers; /* likewise */
    double loss_scale;            /* of the next step's gradients; 0: the plan has none */
    int64_t n_skipped;            /* steps whose gradients were not finite */
    int64_t n_empty;              /* steps of which no label counted */
    bool stopped;                 /* by a signal */
    bool is_first;                /* of several processes: the one that talks and writes */
    bool told_by_first;           /* how it ended: all know, the first says it */
    bool quiet, is_validated;
    bool is_resumed;
    WeightsBegun begun; /* what --load did not have */
    int failure;        /* exit code when preparing fails */
} TrainRun;

/* All that train says of its options for `plan`, which is the operand's, before it looks at data
 * and other processes. False: reported. */
bool train_check(CliArgs *args, Plan *plan, Diag *diag);

/* Of all ranks' arenas. */
int64_t train_run_planned_bytes(const Plan *plan);
/* Before memory of the host is pinned, which takes a second for some GiB. */
void train_run_say_pinning(const TrainRun *run);
void train_run_print_start(const TrainRun *run);
void train_run_print_end(const TrainRun *run);

#endif
