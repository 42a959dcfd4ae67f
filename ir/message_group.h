/* Message groups: nodes that follow one another and are sent as one message.
 *
 * All of a group are all_gather, or all reduce_scatter, or in the update all_reduce, over one mesh
 * axis, of one task and, but in the update and of weights that are gathered once a step, one block;
 * each but the first says `joined`, and none reads another's result: graph_verify proves it. A
 * group begins when all operands are there and ends when all results are, so that no two of its
 * nodes share memory, though a result may lie on its own operand, and who reads one result waits
 * for all. What is added up is added as by messages of their own: in the same order, with the same
 * bits.
 */
#ifndef IR_MESSAGE_GROUP_H
#define IR_MESSAGE_GROUP_H

#include "ir/graph.h"

enum { MESSAGE_GROUP_MOST = 64 }; /* messages of one group */

bool node_is_joined(const Node *node);
/* The first node of the group that node n belongs to; n where it is none. */
int message_group_begin(const Graph *graph, int n);
/* Behind the last node of the group that begins with node n; n + 1 where it is no message, or one
 * by itself. */
int message_group_end(const Graph *graph, int n);
/* What is wrong with a node that says `joined`, of a graph whose other rules hold, or NULL. */
const char *message_group_defect(const Graph *graph, const Node *node);

#endif
