/* Border time: how long one micro-batch is on its way from a pipeline stage to the next. */
#ifndef PLANNER_COST_BORDER_TIME_H
#define PLANNER_COST_BORDER_TIME_H

#include "planner/cost/collective_time.h"
#include "planner/cost/model_cost.h"

typedef struct BorderTime {
    double us;         /* all of it */
    double latency_us; /* of it: not between the two devices' network cards or links */
} BorderTime;

/* `sharing` ranks of the stage send out of one node at once. Software that scatters borders sends
 * 1/t from each rank of axis t where all hold the same, and gathers on the other side (Narayanan et
 * al. 2021, section 4.1). */
BorderTime border_time(const Cluster *cluster, const LayoutCost *layout, bool crosses_nodes,
                       int sharing);

/* The first network card that the stage's ranks send through. Stages with the same one have one
 * wire out of their node, and wait for one another. */
int64_t border_card(const Cluster *cluster, const Placement *placement, int stage);

/* Do messages from this stage to the next leave the node? From the last, to stage 0. */
bool border_crosses(const Placement *placement, int stage);

#endif
