/* Scores of choices that groups of processes have computed, each its share. */
#ifndef FRONTEND_COMMANDS_CHOICE_SCORES_H
#define FRONTEND_COMMANDS_CHOICE_SCORES_H

#include "frontend/commands/rollout_share.h"

typedef struct ChoiceScore {
    int64_t question;
    int32_t choice, greedy;
    double score;
} ChoiceScore;

/* own[n_own], in any order -> those of all groups, by question and choice, the caller's to free;
 * by all processes. NULL: reported. */
ChoiceScore *choice_scores_gather(const RolloutCrew *crew, const ChoiceScore *own, int64_t n_own,
                                  int64_t *out_n, Diag *diag);

#endif
