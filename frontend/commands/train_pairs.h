/* Pairs of answers, where the plan learns from such: what their files are made of, and what the
 * weights that training begins with say of them. */
#ifndef FRONTEND_COMMANDS_TRAIN_PAIRS_H
#define FRONTEND_COMMANDS_TRAIN_PAIRS_H

#include "planner/plan/plan.h"
#include "runtime/data/preferences.h"

typedef struct TrainPairs {
    bool reads;          /* rows of the plan's batch are pairs */
    bool asks_reference; /* and are compared with what they scored before training */
    PreferenceOptions how;
    PreferenceTotals totals;  /* of text; of files of tokens nothing is known */
    uint64_t hash;            /* of all that was opened, in order */
    int32_t *tokens, *labels; /* [2 * seq] */
} TrainPairs;

TrainPairs train_pairs_of(const Plan *plan, Arena *arena);
/* Rows of the batch that a sample has: 2 of pairs. */
static inline int train_pairs_rows(const TrainPairs *pairs) {
    return pairs->reads ? 2 : 1;
}
/* A line or two that begin with `pairs`; nothing where there are none. */
void train_pairs_print(const PreferenceTotals *totals);

#endif
