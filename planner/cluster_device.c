#include "planner/cluster.h"
#include "planner/cost.h"

Device device_of_cluster(const Cluster *cluster, DType precision) {
    const ClusterDevice *of = &cluster->device;
    const ClusterNode *node = &cluster->node;
    MathKind math = dtype_is_low(precision) && of->peak_flops[MATH_BF16] > 0 ? MATH_BF16 : MATH_F32;
    double fraction = of->product_fraction[math] > 0 ? of->product_fraction[math] : 1;
    return (Device){
        .name = cluster->name,
        .flops_per_second = of->peak_flops[math] * fraction,
        .memory_bytes_per_second = of->memory_bytes_per_second * of->memory_fraction,
        .call_us = of->kernel_us,
        .link_latency_us = node->link_latency_us,
        .link_bytes_per_second = node->link_bytes_per_second * node->link_fraction,
        .send_blocks = cluster->is_cpu,
        .cluster = cluster,
    };
}
