/* How good a model says answers are, one by one. */
#ifndef FRONTEND_COMMANDS_EVALUATE_REWARDS_H
#define FRONTEND_COMMANDS_EVALUATE_REWARDS_H

#include "frontend/commands/train_data.h"
#include "frontend/progress_line.h"
#include "ir/base/strbuf.h"

typedef struct SourceRewards {
    int64_t n;
    double mean, least, most;
} SourceRewards;

typedef struct RewardEvaluation {
    const TrainData *data;
    Engine *engine;
    ProgressLine *line;     /* NULL: nobody is told */
    SourceRewards *sources; /* [n_val] */
    StrBuf predictions;     /* lines of JSON, released by evaluate_rewards_release */
} RewardEvaluation;

/* False: reported. */
bool evaluate_rewards(RewardEvaluation *e, Diag *diag);
void evaluate_rewards_put(const RewardEvaluation *e, StrBuf *out);
/* "rewards": [...] */
void evaluate_rewards_put_json(const RewardEvaluation *e, StrBuf *out);
void evaluate_rewards_release(RewardEvaluation *e);

#endif
