/* Gradients in a graph with an update: each parameter's is summed up in an accumulator. */
#ifndef IR_GRADIENT_H
#define IR_GRADIENT_H

#include "ir/graph.h"

/* The accumulator that a value is the memory of, or a message of it, or a part; NULL: of none. */
const Node *gradient_accumulator(Value value);
/* Of a node: the sum of squares of a parameter's gradient, of what a rank has of it, in the update?
 * It lasts to the end of the step, where a run reads it (runtime/engine_norms.h). NULL, or the
 * accumulator. */
const Node *gradient_of_square(const Node *node);

#endif
