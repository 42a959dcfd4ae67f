/* Answers that a model has written, and how processes that wrote some each come to have all. */
#ifndef FRONTEND_COMMANDS_ROLLOUT_SHARE_H
#define FRONTEND_COMMANDS_ROLLOUT_SHARE_H

#include "frontend/commands/rank_crew.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

typedef struct RolloutAnswer {
    uint32_t *tokens; /* [seq], n_tokens of them used */
    int32_t n_tokens;
    bool ended; /* by itself */
    float reward;
    StrBuf text; /* where this process wrote it */
} RolloutAnswer;

/* Texts go with rollout_answers_release. */
RolloutAnswer *rollout_answers_create(int64_t count, int64_t seq, Arena *arena);
void rollout_answers_release(RolloutAnswer *answers, int64_t count);
/* Token by token. */
bool rollout_answers_equal(const RolloutAnswer *a, const RolloutAnswer *b);

/* Each process' own answers become all processes', but for their texts. False: the job has failed;
 * reported. */
bool rollout_share(const RankCrew *crew, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag);
/* The first process' rewards become all processes'. Likewise. */
bool rollout_share_rewards(Control *control, RolloutAnswer *answers, int64_t count, Diag *diag);

#endif
