/* Scaling laws: the loss of a model of N parameters that has learned from D tokens (Hoffmann et al.
 * 2022, "Training Compute-Optimal Large Language Models", equation 2),
 *
 *     L(N, D) = E + A / N^alpha + B / D^beta        in nats a token.
 *
 * N counts all parameters, embeddings too, of a dense model. A law holds for the data, vocabulary
 * and recipe of the runs that it was fitted on; of other data it tells at best which of two sizes
 * is the better, not what their losses will be.
 */
#ifndef PLANNER_SCALING_SCALING_LAW_H
#define PLANNER_SCALING_SCALING_LAW_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct LawTerms {
    double e, a, alpha, b, beta; /* e >= 0, the others > 0 */
} LawTerms;

typedef struct Range {
    double least, most; /* both 0: not known */
} Range;

typedef struct ScalingLaw {
    const char *name, *source;
    LawTerms terms;
    int n_runs;               /* that it was fitted on; 0: not known */
    Range parameters, tokens; /* of these runs */
    /* The law fitted on resamples of the runs, for how sure it is; 0: none. */
    int n_draws;
    const LawTerms *draws; /* [n_draws] */
} ScalingLaw;

/* FLOPs a parameter and token, forward and backward: C = 6 N D. */
static const double LAW_FLOPS = 6;

double law_loss(const LawTerms *law, double parameters, double tokens);

/* Tokens with which so many parameters reach a loss; INFINITY: no number of them does. */
double law_tokens_for(const LawTerms *law, double loss, double parameters);

/* The split of C FLOPs with the least loss (the same, equation 4): N = G (C/6)^(beta/(alpha+beta)),
 * D = (C/6)^(alpha/(alpha+beta)) / G, G = (alpha A / (beta B))^(1/(alpha+beta)). */
typedef struct LawOptimum {
    double parameters, tokens, loss;
} LawOptimum;
LawOptimum law_optimum(const LawTerms *law, double flops);

/* What D tokens are worth of which only U are different, in tokens that all are: the first time
 * each counts in full, later ones less and less (Muennighoff et al. 2023, "Scaling Data-Constrained
 * Language Models", equation 5): U + U R* (1 - exp(-(D/U - 1) / R*)), R* = 15.39 as fitted there.
 * Of that paper's two effects this is the one of repeated tokens; the other, of parameters beyond
 * what U tokens ask for, is left out. U 0: all are different. */
double law_unique_worth(double tokens, double unique);
/* Its inverse: INFINITY where no repetition is worth so much. */
double law_tokens_worth(double worth, double unique);

/* Shipped laws, the default first; NULL behind the last. */
const ScalingLaw *law_shipped(int index);

/* Is this a file, not the name of a shipped law? */
bool law_is_path(const char *text);

/* A shipped law by name; NULL: none. */
const ScalingLaw *law_find(const char *name);

/* The file of a law: one JSON object (planner/search/README.md), which is not trusted. NULL:
 * reported. */
const ScalingLaw *law_read(Arena *arena, const char *path, Diag *diag);
void law_print(StrBuf *out, const ScalingLaw *law);

/* "L(N, D) = 1.8172 + 482.01 / N^0.3478 + 2085.43 / D^0.3658" */
enum { LAW_TEXT = 160 };
const char *law_text(const LawTerms *law, char *text);

/* Is it outside of the runs that the law was fitted on? False where they are not known. */
bool law_is_beyond(const ScalingLaw *law, double parameters, double tokens);

#endif
