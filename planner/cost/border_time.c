#include "planner/cost/border_time.h"

BorderTime border_time(const Cluster *cluster, const LayoutCost *layout, bool crosses_nodes,
                       int sharing) {
    bool scattered =
        cluster->software.scatters_borders && layout->t > 1 && !layout->sequence_parallel;
    double bytes = (double)layout->border_bytes, gather_us = 0;
    if (scattered) {
        Placement placement = {cluster->node.n_devices, layout->t, 1, 1, 1, 1, 1};
        CollectiveGroup group = placement_group(&placement, MESH_T);
        gather_us = collective_us(cluster, COLLECTIVE_ALL_GATHER, bytes, &group);
        bytes /= layout->t;
    }
    double us = message_us(cluster, bytes, crosses_nodes, sharing);
    double latency_us = message_us(cluster, 0, crosses_nodes, sharing);
    if (latency_us > us) latency_us = us;
    double around_us = gather_us + cluster->software.message_stall_us;
    return (BorderTime){us + around_us, latency_us + around_us};
}

int64_t border_card(const Cluster *cluster, const Placement *placement, int stage) {
    int64_t n_before = (int64_t)stage * placement_width(placement);
    if (cluster->node.n_devices <= 0 || cluster->network.n_nics <= 0) return stage;
    return n_before * cluster->network.n_nics / cluster->node.n_devices;
}

bool border_crosses(const Placement *placement, int stage) {
    if (stage + 1 < placement->p) return placement_border_crosses(placement, stage);
    return (int64_t)placement_width(placement) * placement->p > placement->n_per_node;
}
