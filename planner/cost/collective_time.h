/* Collective time: how long messages take between devices of a cluster: NCCL's own model (its
 * src/graph/tuning.cc): the best of ring, tree and in-switch reduction, each a latency and a rate.
 * A ring over several nodes uses all cards of its members, as many rings side by side do; NCCL has
 * no other hierarchical algorithm, so none is priced.
 */
#ifndef PLANNER_COST_COLLECTIVE_TIME_H
#define PLANNER_COST_COLLECTIVE_TIME_H

#include "planner/clusters/cluster.h"

typedef enum CollectiveKind {
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_TO_ALL,
    N_COLLECTIVE_KINDS
} CollectiveKind;

/* Where the members of one group sit. */
typedef struct CollectiveGroup {
    int n_ranks;  /* members */
    int per_node; /* members in one node; n_ranks if the group stays inside */
    int sharing;  /* groups like this one on the same way at once, this included: out of a node, or
                      along its ring of links */
} CollectiveGroup;

/* `bytes`: the whole tensor: the operand of an all-reduce or reduce-scatter, the result of an
 * all-gather; of an all-to-all what one member has. 0 for a group of one. */
double collective_us(const Cluster *cluster, CollectiveKind kind, double bytes,
                     const CollectiveGroup *group);
/* Several in one of NCCL's groups, of so many bytes in all: one launch. Its channels are divided
 * among them by bytes, so that one has parts of two, one behind the other: a second latency. */
double collective_group_us(const Cluster *cluster, CollectiveKind kind, double bytes, int n_joined,
                           const CollectiveGroup *group);
const char *
collective_algorithm(const Cluster *cluster, CollectiveKind kind, double bytes,
                     const CollectiveGroup *group); /* "ring", "tree", "nvls", "pairs" */

/* An all-to-all of which only the share `crossing` of what leaves a node has to: the rest is the
 * same rows, handed on inside the node that they arrive at. */
double exchange_us(const Cluster *cluster, double bytes, const CollectiveGroup *group,
                   double crossing);

/* One message from one device to another; `sharing` messages leave the same node at once. */
double message_us(const Cluster *cluster, double bytes, bool crosses_nodes, int sharing);

/* The ranks of a mesh axis as they sit in nodes: t innermost, then c, e, d, r and p. */
typedef struct Placement {
    int n_per_node;
    int t, d, p;
    int c, e, r; /* 0: 1 */
} Placement;
static inline int placement_c(const Placement *placement) {
    return placement->c > 1 ? placement->c : 1;
}
static inline int placement_e(const Placement *placement) {
    return placement->e > 1 ? placement->e : 1;
}
static inline int placement_r(const Placement *placement) {
    return placement->r > 1 ? placement->r : 1;
}
/* Ranks of a stage. */
static inline int placement_width(const Placement *placement) {
    return placement->t * placement_c(placement) * placement_e(placement) * placement->d *
           placement_r(placement);
}
CollectiveGroup placement_group(const Placement *placement,
                                int mesh_axis); /* MESH_*; of groups, replicas */
/* Does the border between pipeline stages s and s + 1 leave the node (for any of its ranks)? */
bool placement_border_crosses(const Placement *placement, int stage);

#endif
