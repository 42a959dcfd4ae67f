/* What the parts of a stored_divergence (stored.c) agree on. */
#ifndef IR_OPS_STORED_H
#define IR_OPS_STORED_H

#include "ir/graph.h"

/* What is added to probabilities of all words that are not stored before their logarithm: none may
 * be left. */
#define STORED_LEAST 1e-30

/* Are there words that are not stored? */
bool stored_has_rest(const Node *node);

#endif
