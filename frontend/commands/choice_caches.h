/* How likely the ends of texts are, by a plan for decoding that scores: beginnings that texts have
 * in common are read once, and of several texts side by side only their ends are computed apart.
 */
#ifndef FRONTEND_COMMANDS_CHOICE_CACHES_H
#define FRONTEND_COMMANDS_CHOICE_CACHES_H

#include "runtime/decoder.h"

typedef struct ScoredText {
    const int32_t *tokens; /* [n]: all but the last label, which nothing follows */
    int64_t n, first;      /* the label behind token `first` is the first one that is scored */
    const int32_t *labels; /* [n - first] */
    double score;          /* the sum of the logarithms of their probabilities */
    bool greedy;           /* each is the likeliest token there */
} ScoredText;

typedef struct ChoiceCaches ChoiceCaches;

/* Of a decoder of a plan that scores, whose sequences it takes over; owned by the arena. */
ChoiceCaches *choice_caches_create(Decoder *decoder, Arena *arena);
/* Nothing is kept of what was read: weights are others. */
void choice_caches_clear(ChoiceCaches *caches);
/* Host memory beside the decoder's. */
int64_t choice_caches_bytes(const Decoder *decoder);
/* At most as many texts as the decoder has sequences, each of at most its context: sets scores.
 * False: reported. */
bool choice_caches_score(ChoiceCaches *caches, ScoredText *texts, int n, Diag *diag);

#endif
