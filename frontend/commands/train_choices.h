/* Questions with choices that a run is scored on when it validates (train --choices): what the log
 * says of them. */
#ifndef FRONTEND_COMMANDS_TRAIN_CHOICES_H
#define FRONTEND_COMMANDS_TRAIN_CHOICES_H

#include "frontend/commands/choices_args.h"
#include "frontend/commands/generate_engine.h"
#include "frontend/commands/rollout_state.h"
#include "frontend/commands/train_data.h"
#include "runtime/metrics/step_metrics.h"

enum { TRAIN_MOST_CHOICES = 8 };

typedef struct TrainChoices {
    int n; /* files; 0: none */
    const char *const *paths;
    /* What values are called: choices_STEM, and others that begin so. */
    const char *names[TRAIN_MOST_CHOICES], *norms[TRAIN_MOST_CHOICES];
    const char *perplexities[TRAIN_MOST_CHOICES];
    ChoicesWay way;
    Tokenizer *tokenizer; /* where the data have none */
    /* By a plan for decoding in memory of its own; without one by training's. */
    GenerateEngine caches;
    ChoiceCaches *scorer;
    RankCrew crew;
    bool has_weights; /* `caches` has those that never change */
    ChoicesResult results[TRAIN_MOST_CHOICES];
    bool is_scored;                                                     /* in the last step */
    StepValue values[ROLLOUT_MOST_VALUES + 1 + 2 * TRAIN_MOST_CHOICES]; /* the step's, and these */
} TrainChoices;

/* What the options say, and whether the plan has what it takes. False: reported. */
bool train_choices_options(const CliArgs *args, const Plan *plan, TrainChoices *out, Diag *diag);
/* With the data there: every file is looked at, and how they are to be scored is planned. False:
 * reported. Released by train_choices_close, either way. */
bool train_choices_open(CliArgs *args, const TrainData *data, const EngineOptions *options,
                        TrainChoices *out, Diag *diag);
/* Takes the memory. False: reported. */
bool train_choices_start(TrainChoices *choices, const CliArgs *args, Diag *diag);
void train_choices_close(TrainChoices *choices);

/* Of the run's beginning: memory that they take. */
void train_choices_print_memory(const TrainChoices *choices);
/* Host memory while they are scored. */
int64_t train_choices_bytes(const TrainChoices *choices, const Engine *engine, const Plan *plan);
/* All of them, by the weights as they are; metrics get the share of each file that is right, and
 * where the benchmark has such, that per character (_norm) or the perplexity; values lie in
 * *choices. False: reported. */
bool train_choices_score(TrainChoices *choices, Engine *engine, const Plan *plan,
                         StepMetrics *metrics, Diag *diag);
/* Of the run's end: a line for each, where its last step scored them. */
void train_choices_print(const TrainChoices *choices);

#endif
