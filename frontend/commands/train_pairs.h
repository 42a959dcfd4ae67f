/* Pairs of answers, or answers that are desirable or not, where the plan learns from such: what
 * their files are made of, and what the weights that training begins with say of them. */
#ifndef FRONTEND_COMMANDS_TRAIN_PAIRS_H
#define FRONTEND_COMMANDS_TRAIN_PAIRS_H

#include "frontend/progress_line.h"
#include "planner/plan/plan.h"
#include "runtime/data/preferences.h"
#include "runtime/engine.h"

typedef struct TrainPairs {
    bool reads;          /* windows of the data are two rows: those of the plan's batch, pairs, */
    bool unpaired;       /* or an answer, the batch's, and one beside it (train_answers.h) */
    bool asks_reference; /* and are compared with what they scored before training */
    bool rewards;        /* or how good answers are is read at their ends */
    bool single;         /* data are answers by themselves, to be told how good they are */
    PreferenceOptions how;
    PreferenceTotals totals;  /* of text; of files of tokens nothing is known */
    uint64_t hash;            /* of all that was opened, in order */
    int32_t *tokens, *labels; /* [2 * seq] */
} TrainPairs;

TrainPairs train_pairs_of(const Plan *plan, Arena *arena);
/* Does the plan compare what rows score with a reference's? */
bool train_pairs_compare(const Plan *plan);
/* Labels [n_rows, seq] of answers' tokens become 0 where the last one of each is, and -1 elsewhere.
 */
void train_pairs_mark_ends(int32_t *labels, int64_t seq, int n_rows);
/* Rows that a window of the data has: 2 of pairs. */
static inline int train_pairs_rows(const TrainPairs *pairs) {
    return pairs->reads && !pairs->single ? 2 : 1;
}
/* And of these the batch. */
static inline int train_pairs_batch_rows(const TrainPairs *pairs) {
    return pairs->unpaired ? 1 : train_pairs_rows(pairs);
}
/* Makes of pairs in a file of tokens such answers, and closes it. NULL: reported. */
Dataset *train_pairs_unpair(TrainPairs *pairs, Dataset *dataset, const char *path, int vocab,
                            Diag *diag);
/* What scores pairs, and who is told: `done` of `all` were before these. */
typedef struct PairScoring {
    Engine *engine;
    const Plan *plan;
    ProgressLine *line; /* NULL: nobody */
    int64_t done, all;
    bool rewards;
    bool unpaired, diverges; /* TrainAnswers.diverges */
} PairScoring;
/* Of the plan's; nobody is told. */
PairScoring train_pairs_scoring(const TrainPairs *pairs, Engine *engine, const Plan *plan);

/* The log-probability of each row's answer: out_scores [windows, 2]. False: reported. */
bool train_pairs_score(const PairScoring *how, const Dataset *data, float *out_scores, Diag *diag);

/* The reward of each answer: out_rewards [windows], of data that are answers by themselves. */
bool train_pairs_rewards(const PairScoring *how, const Dataset *data, float *out_rewards,
                         Diag *diag);

/* How well answers are told apart. Of answers by themselves chosen ones are the desirable ones. */
typedef struct PairsResult {
    int64_t n_pairs;
    int64_t n_wanted; /* of answers by themselves */
    bool unpaired;
    double n_likelier, n_likelier_by_token; /* chosen answers; ties are halves */
    double chosen, rejected;                /* log-probabilities of answers, in the mean */
    bool rewards;                           /* these are rewards, and likelier ones have more */
    bool compares;                          /* with a reference: */
    double chosen_gain, rejected_gain;      /* the same less the reference's */
    double n_right;    /* pairs whose chosen answer has gained more; or answers by themselves whose
                          gain is more than the divergence, or, not desirable, less */
    double divergence; /* of answers by themselves: what others' behind their prompts have gained in
                          the mean, at least 0 */
} PairsResult;
/* reference [windows, 2]: what another model says of them; NULL: there is none. */
bool train_pairs_evaluate(const PairScoring *how, const Dataset *data, const float *reference,
                          PairsResult *out, Diag *diag);

/* A line or two that begin with `pairs`; nothing where there are none. */
void train_pairs_print(const TrainPairs *pairs);

#endif
