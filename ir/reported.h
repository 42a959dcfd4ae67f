/* What a step reports, where the backward makes it (part_loss): the loss, and whatever else is
 * added up in an accumulator that is of no parameter. Forward-only work runs it behind the forward.
 */
#ifndef IR_REPORTED_H
#define IR_REPORTED_H

#include "ir/graph.h"

/* [n_nodes], all false before: nodes of the backward, or of its weights, that such sums are made
 * of. Returns whether there are any. */
bool graph_find_reported(const Graph *graph, bool *out);

#endif
