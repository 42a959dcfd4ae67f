#include "frontend/commands/choice_scores.h"

#include "runtime/cpu/softmax.h"

#include <stdlib.h>

double log_probability(const float *logits, int64_t vocab, int32_t token) {
    float lse;
    softmax_logsumexp(DTYPE_F32, 1, vocab, vocab, logits, &lse);
    return (double)logits[token] - (double)lse;
}

bool is_likeliest(const float *logits, int64_t vocab, int32_t token) {
    for (int64_t i = 0; i < vocab; i++) {
        if (logits[i] > logits[token]) return false;
    }
    return true;
}

static int compare(const void *a, const void *b) {
    const ChoiceScore *x = a, *y = b;
    if (x->question != y->question) return x->question < y->question ? -1 : 1;
    return (x->choice > y->choice) - (x->choice < y->choice);
}

ChoiceScore *choice_scores_gather(const RankCrew *crew, const ChoiceScore *own, int64_t n_own,
                                  int64_t *out_n, Diag *diag) {
    const bool leads = crew->rank % crew->together == 0; /* one of a group says it */
    const char *why = "a rank's scores did not come";
    unsigned char *all;
    size_t n_bytes;
    bool good = rank_crew_gather(crew->control, own, leads ? (size_t)n_own * sizeof(*own) : 0,
                                 SIZE_MAX / 2, NULL, &all, &n_bytes);
    if (!good || n_bytes % sizeof(*own)) {
        control_failed(crew->control, &why);
        diag_error(diag, NO_LOC, "%s", why);
        free(all);
        return NULL;
    }
    ChoiceScore *scores = (ChoiceScore *)(void *)all; /* from malloc: aligned */
    *out_n = (int64_t)(n_bytes / sizeof(*scores));
    qsort(scores, (size_t)*out_n, sizeof(*scores), compare);
    return scores;
}
