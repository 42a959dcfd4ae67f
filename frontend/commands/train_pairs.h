/* Pairs of answers, where the plan learns from such: what their files are made of, and what the
 * weights that training begins with say of them. */
#ifndef FRONTEND_COMMANDS_TRAIN_PAIRS_H
#define FRONTEND_COMMANDS_TRAIN_PAIRS_H

#include "frontend/progress_line.h"
#include "planner/plan/plan.h"
#include "runtime/data/preferences.h"
#include "runtime/engine.h"

typedef struct TrainPairs {
    bool reads;          /* rows of the plan's batch are pairs */
    bool asks_reference; /* and are compared with what they scored before training */
    bool rewards;        /* or how good answers are is read at their ends */
    bool single;         /* data are answers by themselves, to be told how good they are */
    PreferenceOptions how;
    PreferenceTotals totals;  /* of text; of files of tokens nothing is known */
    uint64_t hash;            /* of all that was opened, in order */
    int32_t *tokens, *labels; /* [2 * seq] */
} TrainPairs;

TrainPairs train_pairs_of(const Plan *plan, Arena *arena);
/* Labels [n_rows, seq] of answers' tokens become 0 where the last one of each is, and -1 elsewhere.
 */
void train_pairs_mark_ends(int32_t *labels, int64_t seq, int n_rows);
/* Rows of the batch that a sample has: 2 of pairs. */
static inline int train_pairs_rows(const TrainPairs *pairs) {
    return pairs->reads && !pairs->single ? 2 : 1;
}
/* What scores pairs, and who is told: `done` of `all` were before these. */
typedef struct PairScoring {
    Engine *engine;
    const Plan *plan;
    ProgressLine *line; /* NULL: nobody */
    int64_t done, all;
    bool rewards;
} PairScoring;

/* The log-probability of each answer: out_scores [windows, 2]. False: reported. */
bool train_pairs_score(const PairScoring *how, const Dataset *data, float *out_scores, Diag *diag);

/* The reward of each answer: out_rewards [windows], of data that are answers by themselves. */
bool train_pairs_rewards(const PairScoring *how, const Dataset *data, float *out_rewards,
                         Diag *diag);

/* How well answers are told apart. */
typedef struct PairsResult {
    int64_t n_pairs;
    double n_likelier, n_likelier_by_token; /* chosen answers; ties are halves */
    double chosen, rejected;                /* log-probabilities of answers, in the mean */
    bool rewards;                           /* these are rewards, and likelier ones have more */
} PairsResult;
bool train_pairs_evaluate(const PairScoring *how, const Dataset *data, PairsResult *out,
                          Diag *diag);

/* A line or two that begin with `pairs`; nothing where there are none. */
void train_pairs_print(const PreferenceTotals *totals);

#endif
