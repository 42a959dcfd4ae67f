/* What `fuse` made one node of: decoding looks at single ops. */
#ifndef PLANNER_DECODE_UNFUSE_H
#define PLANNER_DECODE_UNFUSE_H

#include "planner/passes/pass.h"

/* Adds what a fused node's program does, op by op, and maps its results. False: it is none, or does
 * what single ops cannot; nothing is mapped. */
bool unfuse(ValueMap *map, const Node *node, Graph *out);

#endif
