/* Scores of choices: by logits, and of groups of processes that have computed a share each. */
#ifndef FRONTEND_COMMANDS_CHOICE_SCORES_H
#define FRONTEND_COMMANDS_CHOICE_SCORES_H

#include "frontend/commands/rank_crew.h"

/* log softmax(logits)[token], logits [vocab]. */
double log_probability(const float *logits, int64_t vocab, int32_t token);
bool is_likeliest(const float *logits, int64_t vocab, int32_t token);

typedef struct ChoiceScore {
    int64_t question;
    int32_t choice, greedy;
    double score;
} ChoiceScore;

/* own[n_own], in any order -> those of all groups, by question and choice, the caller's to free;
 * by all processes. NULL: reported. */
ChoiceScore *choice_scores_gather(const RankCrew *crew, const ChoiceScore *own, int64_t n_own,
                                  int64_t *out_n, Diag *diag);

#endif
