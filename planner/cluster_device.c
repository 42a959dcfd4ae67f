#include "planner/cluster.h"
#include "planner/cost.h"

/* A device's share of its node's way out. */
static double network_rate(const Cluster *cluster) {
    const ClusterNetwork *network = &cluster->network;
    double spread = network->oversubscription > 1 ? network->oversubscription : 1;
    return network->n_nics * network->nic_bytes_per_second * network->nic_fraction / spread /
           cluster->node.n_devices;
}

Device device_of_cluster(const Cluster *cluster, const Plan *plan) {
    const ClusterDevice *of = &cluster->device;
    const ClusterNode *node = &cluster->node;
    MathKind math = plan->precision == DTYPE_BF16 ? MATH_BF16 : MATH_F32;
    double fraction = of->product_fraction[math];
    Device device = {
        .name = cluster->name,
        .flops_per_second = of->peak_flops[math] * (fraction > 0 ? fraction : 1),
        .memory_bytes_per_second = of->memory_bytes_per_second * of->memory_fraction,
        .call_us = of->kernel_us > 0 ? of->kernel_us : 1,
        .link_latency_us = node->link_latency_us,
        .link_bytes_per_second = node->link_bytes_per_second * node->link_fraction,
        .send_blocks = cluster->is_cpu,
    };
    if (device.flops_per_second <= 0) device.flops_per_second = of->peak_flops[MATH_F32];
    int span = 1; /* ranks sit t innermost, then d, then p */
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        span *= plan->mesh.size[axis];
        if (span <= node->n_devices) continue;
        device.axis_latency_us[axis] = cluster->network.latency_us;
        device.axis_bytes_per_second[axis] = network_rate(cluster);
    }
    if (device.axis_bytes_per_second[MESH_P] > 0) { /* so do messages between stages */
        device.step_latency_us = device.link_latency_us;
        device.step_bytes_per_second = device.link_bytes_per_second;
        device.link_latency_us = cluster->network.latency_us;
        device.link_bytes_per_second = network_rate(cluster);
    }
    return device;
}
