#include "frontend/commands/choice_scores.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const ChoiceScore *x = a, *y = b;
    if (x->question != y->question) return x->question < y->question ? -1 : 1;
    return (x->choice > y->choice) - (x->choice < y->choice);
}

ChoiceScore *choice_scores_gather(const RolloutCrew *crew, const ChoiceScore *own, int64_t n_own,
                                  int64_t *out_n, Diag *diag) {
    const bool leads = crew->rank % crew->together == 0; /* one of a group says it */
    const char *why = "a rank's scores did not come";
    unsigned char *all;
    size_t n_bytes;
    if (!rollout_gather(crew->control, own, leads ? (size_t)n_own * sizeof(*own) : 0, &all,
                        &n_bytes)) {
        control_failed(crew->control, &why);
        diag_error(diag, NO_LOC, "%s", why);
        return NULL;
    }
    ChoiceScore *scores = (ChoiceScore *)(void *)all; /* from malloc: aligned */
    *out_n = (int64_t)(n_bytes / sizeof(*scores));
    qsort(scores, (size_t)*out_n, sizeof(*scores), compare);
    return scores;
}
