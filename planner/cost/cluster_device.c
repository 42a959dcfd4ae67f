#include "planner/clusters/cluster.h"
#include "planner/cost/cost.h"

MathKind cluster_math(const Cluster *cluster, DType dtype) {
    DType low = dtype_of_activations(dtype);
    bool slow = low == DTYPE_F16 || cluster->device.peak_flops[MATH_BF16] <= 0;
    bool widened = cluster->is_cpu && slow; /* any processor can, in f32 */
    return dtype_is_low(low) && !widened ? MATH_BF16 : MATH_F32;
}

Device device_of_cluster(const Cluster *cluster, DType precision) {
    const ClusterDevice *of = &cluster->device;
    const ClusterNode *node = &cluster->node;
    MathKind math = cluster_math(cluster, precision);
    if (of->peak_flops[math] <= 0) math = MATH_F32;
    double fraction = of->product_fraction[math] > 0 ? of->product_fraction[math] : 1;
    return (Device){
        .name = cluster->name,
        .flops_per_second = of->peak_flops[math] * fraction,
        .memory_bytes_per_second = of->memory_bytes_per_second * of->memory_fraction,
        .host_bytes_per_second = node->host_bytes_per_second * node->host_fraction,
        .call_us = of->kernel_us,
        .link_latency_us = node->link_latency_us,
        .link_bytes_per_second = node->link_bytes_per_second * node->link_fraction,
        .send_blocks = cluster->is_cpu,
        .widens_f16 = cluster->is_cpu,
        .cluster = cluster,
    };
}
