/* A device profile's measurements in place of a cluster's assumed numbers.
 *
 * What a profile has counts, row by row: the rates of the largest products, attention and memory
 * copies (as fractions of the peak, which rises if it was exceeded), the least time of a call,
 * latency and rate of messages and all-reduces inside the node. Ramps whose ends were measured
 * become 0 where nothing tells their size. Networks between nodes, memory size and price stay.
 * Threads of a CPU profile: a cluster's device is one core, as it does when all are busy.
 */
#ifndef PLANNER_COST_CLUSTER_PROFILE_H
#define PLANNER_COST_CLUSTER_PROFILE_H

#include "planner/clusters/cluster.h"
#include "planner/clusters/device_profile.h"

/* False: reported: the profile is of another kind of device. Names belong to the profile. */
bool cluster_apply_profile(Cluster *cluster, const DeviceProfile *profile, Diag *diag);

#endif
