/* Vectors of texts and what is known of these -> how good the vectors are. */
#ifndef FRONTEND_COMMANDS_EMBED_SCORES_H
#define FRONTEND_COMMANDS_EMBED_SCORES_H

#include "frontend/commands/evaluate_embed.h"

/* Of different queries: is the nearest of all different answers (positives, negatives, texts by
 * themselves) one of theirs, the share of theirs among the nearest ten, 1 / the place of the first
 * of these (0 beyond ten), and nDCG, each of theirs counting 1. What is as near as an answer is
 * before it: vectors that are all the same earn nothing. Texts are the same where their tokens are.
 */
void embed_scores_retrieval(EmbedSource *source, int64_t width);

/* Spearman's and Pearson's correlation of cosines with scores; not a number: one of them is always
 * the same. Ties have the mean of their ranks. */
void embed_scores_likeness(EmbedSource *source, int64_t width);

/* a, b [n] -> the correlation of the numbers, or of their ranks. */
double embed_correlation(const double *a, const double *b, int64_t n, bool of_ranks);

#endif
