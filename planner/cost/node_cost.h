/* Node cost: one node of a stage program, priced on a cluster's device by its local shapes. */
#ifndef PLANNER_COST_NODE_COST_H
#define PLANNER_COST_NODE_COST_H

#include "ir/op.h"
#include "planner/clusters/cluster.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/model_cost.h"

/* A stage program as a cluster's software runs it. */
typedef struct NodePricer {
    const Cluster *cluster;
    const Graph
        *graph;       /* its mesh divides the shapes; axis t stays inside a node as far as it can */
    int *joined;      /* by node id: the product that this one is run with, or itself */
    int *last_joined; /* by that product's id: the last of those */
    bool *folded;     /* by node id: part of the product before it */
    bool *absorbed;   /* by node id: another's kernel does it beside its own work */
    bool *continued;  /* by node id: an update that the kernel of an earlier one does */
    bool quantizes;   /* has fp8 operands of its own */
    const MatmulLayout *layouts; /* by node id: of products; with a batch of 0: none */
} NodePricer;
NodePricer node_pricer_create(const Cluster *cluster, const Graph *graph, Arena *arena);

/* What an op that is a message does. */
CollectiveKind collective_kind(OpKind op);

/* Adds what `node` costs to `cost` (but for host_us and us: those are the phase's). */
void node_cost_add(PhaseCost *cost, const NodePricer *pricer, const Node *node);

/* The attention whose backward this node is, computed again: for software that keeps no scores. */
void node_cost_add_attention_again(PhaseCost *cost, const NodePricer *pricer, const Node *node);

/* Closes a phase: what the host adds beyond the device, and the sum. */
void phase_cost_close(PhaseCost *cost, const ClusterSoftware *software, int t, bool backward);

/* Scores of one attention node, [batch, heads, seq, seq], on one rank: elements. */
double attention_score_elements(const Node *node, const Mesh *mesh);

#endif
