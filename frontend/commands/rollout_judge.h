/* Answers that were written and judged: who judges, which answers a rollout is made of, and groups,
 * the answers to one prompt, that teach nothing and are written again for other prompts. Of what is
 * learned by rewards (rollout_rewards.c) and from pairs (rollout_pairs.c).
 */
#ifndef FRONTEND_COMMANDS_ROLLOUT_JUDGE_H
#define FRONTEND_COMMANDS_ROLLOUT_JUDGE_H

#include "frontend/commands/rollout_state.h"
#include "frontend/judge/judge.h"

typedef struct RolloutJudged {
    Judge *judge;  /* NULL: the first process has it */
    bool compares; /* it says which of two answers is better, of training's alone */
    int64_t judge_bytes;
    int64_t n_most;          /* answers of a rollout, group by group */
    RolloutAnswer **answers; /* [n_most], what is learned from */
    int *asked;              /* [n_most], the prompt of each */
    float *first;            /* [n_most], of what was written before resampling */
    bool *is_replaced;       /* [n_most] */
    RolloutAnswer *spare;    /* [n_most], where groups are resampled; else NULL */
    bool (*is_dull)(RolloutAnswer *const *group, int n);
    double judge_seconds;
} RolloutJudged;

/* Rewards of a group: the spread is that of a sample, over n - 1. */
typedef struct GroupRewards {
    double mean, spread;
} GroupRewards;
GroupRewards rollout_measure_group(RolloutAnswer *const *answers, int n);

/* Sets rollout->judged, with memory for its answers; is_dull: does such a group teach nothing?
 * False: reported. Closed by rollout_judged_close, either way. */
bool rollout_judged_open(Rollout *rollout, CliArgs *args,
                         bool (*is_dull)(RolloutAnswer *const *group, int n), Diag *diag);
void rollout_judged_close(Rollout *rollout);

/* Writes and judges the answers of a rollout that begins with row rollout->first of the run, by the
 * weights as they are. All processes call it. False: reported. */
bool rollout_judged_make(Rollout *rollout, Diag *diag);
/* RolloutKind.validate */
bool rollout_judged_validate(Rollout *rollout, RolloutValidation *out, Diag *diag);

/* RolloutKind's words. */
int rollout_judged_values(Rollout *rollout, const RolloutValidation *val, StepValue *out);
int64_t rollout_judged_bytes(const Rollout *rollout);
void rollout_judged_print(const Rollout *rollout);
void rollout_judged_print_end(const Rollout *rollout);

#endif
