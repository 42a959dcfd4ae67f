/* Answers that a model has written, and how processes that wrote some each come to have all. */
#ifndef FRONTEND_COMMANDS_ROLLOUT_SHARE_H
#define FRONTEND_COMMANDS_ROLLOUT_SHARE_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"
#include "runtime/launch/control.h"

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

/* Which of `count` answers a process writes: every world-th from its rank on. */
typedef struct RolloutOwn {
    int64_t count, rank, world;
} RolloutOwn;

/* control NULL: there is one process. */
RolloutOwn rollout_own(Control *control, int rank, int64_t count);
static inline int64_t rollout_own_at(RolloutOwn own, int64_t i) {
    return own.rank + i * own.world;
}

/* Answer i is there on rank i % world; afterwards all are on all, but for their texts. control
 * NULL: there is one process, and nothing to be done. False: the job has failed; reported. */
bool rollout_share(Control *control, int rank, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag);
/* The first process' rewards become all processes'. Likewise. */
bool rollout_share_rewards(Control *control, RolloutAnswer *answers, int64_t count, Diag *diag);

#endif
