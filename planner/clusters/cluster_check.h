/* What no single field of a cluster shows: combinations that cannot be. Ranges of single fields are
 * in cluster_fields.c.
 */
#ifndef PLANNER_CLUSTERS_CLUSTER_CHECK_H
#define PLANNER_CLUSTERS_CLUSTER_CHECK_H

#include "ir/base/arena.h"
#include "planner/clusters/cluster.h"

/* NULL: sound. Else the path of the field that is wrong, and why in *out_why. */
const char *cluster_check(Arena *arena, const Cluster *cluster, const char **out_why);

/* 80e9 -> "8e10", 0.5 -> "0.5": as people write numbers. */
const char *cluster_number(Arena *arena, double value);

#endif
