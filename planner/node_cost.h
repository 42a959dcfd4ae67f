/* Node cost: one node of a stage program, priced on a cluster's device by its local shapes. */
#ifndef PLANNER_NODE_COST_H
#define PLANNER_NODE_COST_H

#include "planner/cluster.h"
#include "planner/collective_time.h"
#include "planner/model_cost.h"

/* Adds what `node` costs to `cost` (but for host_us and us: those are the phase's). Shapes are
 * those of the types in the graph, divided by its mesh; axis t stays inside a node as far as it
 * goes. `mesh` is the graph's. */
void node_cost_add(PhaseCost *cost, const Cluster *cluster, const Node *node, const Mesh *mesh);

/* The attention whose backward this node is, computed again: for software that keeps no scores. */
void node_cost_add_attention_again(PhaseCost *cost, const Cluster *cluster, const Node *node,
                                   const Mesh *mesh);

/* Closes a phase: what the host adds beyond the device, and the sum. */
void phase_cost_close(PhaseCost *cost, const ClusterSoftware *software, bool backward);

/* Scores of one attention node, [batch, heads, seq, seq], on one rank: elements. */
double attention_score_elements(const Node *node, const Mesh *mesh);

#endif
