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

/* The processes, of which `together` in a row write an answer, each with a part of the weights. */
typedef struct RolloutCrew {
    Control *control; /* NULL: there is one process */
    int rank, together;
} RolloutCrew;

/* Some of `count` answers: every step-th from the first on. */
typedef struct RolloutOwn {
    int64_t count, first, step;
} RolloutOwn;

/* Those that a process writes, with others or alone; and of these the ones that it judges, and that
 * the others have from it. */
RolloutOwn rollout_written(const RolloutCrew *crew, int64_t count);
RolloutOwn rollout_own(const RolloutCrew *crew, int64_t count);
static inline int64_t rollout_own_at(RolloutOwn own, int64_t i) {
    return own.first + i * own.step;
}

/* Each process' own answers become all processes', but for their texts. False: the job has failed;
 * reported. */
bool rollout_share(const RolloutCrew *crew, RolloutAnswer *answers, int64_t count, int64_t seq,
                   Diag *diag);
/* Bytes of each process, one after the other in the order of ranks, on all; *out is the caller's to
 * free. However long others take to come here. False: the job has failed. */
bool rollout_gather(Control *control, const void *bytes, size_t n_bytes, unsigned char **out,
                    size_t *out_n);
/* The first process' rewards become all processes'. Likewise. */
bool rollout_share_rewards(Control *control, RolloutAnswer *answers, int64_t count, Diag *diag);

#endif
