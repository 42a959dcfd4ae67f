/* Rollouts: what training learns from where the plan learns by rewards (nn.policy). The weights as
 * they are write answers to some prompts, several to each; somebody judges them (judge.h); and rows
 * of prompts and answers, with what each is worth beside the others to its prompt, are the batches
 * of one step or more.
 *
 * Answers are drawn from the model's own probabilities, by caches of one rank, in the memory of a
 * plan for decoding beside training's. Of several processes each writes and judges its share, and
 * all have all rows then.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_ROLLOUT_H
#define FRONTEND_COMMANDS_TRAIN_ROLLOUT_H

#include "frontend/commands/engine_args.h"
#include "frontend/commands/train_prompts.h"
#include "ir/op.h"
#include "runtime/metrics/step_metrics.h"

#include <math.h>

typedef struct Rollout Rollout;

/* What can be said without looking at a file. False: reported. */
bool rollout_check_options(const CliArgs *args, const Plan *plan, Diag *diag);

/* Where training is; it stays where it is, and is told which reference there is. */
typedef struct RolloutPlace {
    TrainingPlace *place;
    const char *from; /* the checkpoint that the run goes on from; NULL: it begins */
} RolloutPlace;

/* Takes the memory for writing, and starts what judges. *out NULL where the plan reads no prompts.
 * `engine` trains, and has no snapshot yet; `prompts` and `options` stay where they are. False:
 * reported. */
bool rollout_open(CliArgs *args, const Plan *plan, const TrainPrompts *prompts,
                  const EngineOptions *options, Engine *engine, const RolloutPlace *place,
                  Rollout **out, Diag *diag);
void rollout_close(Rollout *rollout); /* NULL is fine */

/* The batch of a step that begins with row `sample` of the run: tokens, labels [global_batch, seq],
 * and the engine's numbers. Writes answers where there are none left. All processes call it. False:
 * reported. */
bool rollout_batch(Rollout *rollout, int64_t sample, int32_t *tokens, int32_t *labels, Diag *diag);

/* What validation says; NAN: nothing of that. */
typedef struct RolloutValidation {
    double reward;   /* of the likeliest answers */
    double loss, kl; /* of a student: its own on completions, and how far it is from its teacher */
} RolloutValidation;
#define ROLLOUT_NOT_VALIDATED ((RolloutValidation){NAN, NAN, NAN})

/* Of all prompts of validation, or of some spread evenly over them. All processes call it. False:
 * reported. */
bool rollout_validate(Rollout *rollout, RolloutValidation *out, Diag *diag);
/* ", reward 0.5 in validation": of the line that ends a run. */
void rollout_print_validation(const RolloutValidation *val);

/* The step's values, and what there is to say of its answers. `val`: of this step; NULL: there was
 * none. Until the next call. */
const StepValue *rollout_values(Rollout *rollout, const StepValue *values, int n_values,
                                const RolloutValidation *val, int *out_n);

/* The answers that the last batch was made of, a line of JSON each, for --answers-log. */
void rollout_put_answers(const Rollout *rollout, int64_t step, StrBuf *out);

/* Memory beside the plan's, in this process; NULL: 0. */
int64_t rollout_bytes(const Rollout *rollout);
/* Lines for the beginning and the end of a run. */
void rollout_print(const Rollout *rollout);
void rollout_print_end(const Rollout *rollout);

#endif
