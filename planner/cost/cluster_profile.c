#include "planner/cost/cluster_profile.h"

#include "planner/cost/cost.h"

/* A rate as a part of the peak. Fractions must be above nothing for times to be finite. */
static void set_rate(double rate, double *peak, double *fraction) {
    if (rate <= 0) return;
    if (rate > *peak) *peak = rate;
    *fraction = rate / *peak;
}

/* Of the largest size. */
static double last_rate(const RateCurve *curve) {
    return curve->count ? curve->points[curve->count - 1].per_second : 0;
}

/* What was measured are own kernels. The gradient's rate is of the 5 products that are needed;
 * where it is not priced as one pass, by those that are made. */
static void apply_attention(Cluster *cluster, const Device *measured, MathKind math) {
    ClusterDevice *device = &cluster->device;
    int narrow = math == MATH_BF16;
    double made = cluster->software.attention_backward_products / 5.0;
    double peak = device->peak_flops[math];
    double forward = last_rate(&measured->attention[narrow]);
    double backward = last_rate(&measured->attention_grad[narrow]);
    if (cluster->software.own_attention && device->own_attention_fraction > 0) {
        if (forward > 0 && forward <= peak) device->own_attention_fraction = forward / peak;
        if (backward > 0 && backward <= peak)
            device->own_attention_backward_fraction = backward / peak;
        return;
    }
    backward *= made;
    if (forward > 0 && forward <= peak) device->attention_fraction = forward / peak;
    if (backward > 0 && backward <= peak) device->attention_backward_fraction = backward / peak;
}

static void apply_device(Cluster *cluster, const DeviceProfile *profile, const Device *measured) {
    ClusterDevice *device = &cluster->device;
    device->name = profile->name;
    if (profile->cuda && profile->cores > 0) device->n_units = (int)profile->cores;
    set_rate(last_rate(&measured->product[0]), &device->peak_flops[MATH_F32],
             &device->product_fraction[MATH_F32]);
    set_rate(last_rate(&measured->product[1]), &device->peak_flops[MATH_BF16],
             &device->product_fraction[MATH_BF16]);
    /* One pair of fractions for both precisions: that of what training runs in. */
    apply_attention(cluster, measured, MATH_F32);
    if (profile->cuda && device->peak_flops[MATH_BF16] > 0) {
        apply_attention(cluster, measured, MATH_BF16);
    }
    set_rate(last_rate(&measured->memory), &device->memory_bytes_per_second,
             &device->memory_fraction);
    if (profile->n_calls) device->kernel_us = measured->call_us;
}

static void apply_node(ClusterNode *node, const DeviceProfile *profile, const Device *measured) {
    bool collectives = measured->step_bytes_per_second > 0; /* closer to what groups do */
    if (!collectives && profile->n_messages < 2) return;
    node->link_bytes_per_second =
        collectives ? measured->step_bytes_per_second : measured->link_bytes_per_second;
    node->link_latency_us = collectives && measured->step_latency_us > 0
                                ? measured->step_latency_us
                                : measured->link_latency_us;
    node->link_fraction = 1;
    node->collective_base_us = 0;
    node->link_ramp_bytes = 0;
}

bool cluster_apply_profile(Cluster *cluster, const DeviceProfile *profile, Diag *diag) {
    if (profile->cuda == cluster->is_cpu) {
        diag_error(diag, (SourceLoc){profile->path, 0},
                   "a profile of a %s cannot describe the devices of cluster %s, which are %s",
                   profile->cuda ? "GPU" : "processor", cluster->name,
                   cluster->is_cpu ? "processor cores" : "GPUs");
        return false;
    }
    int n_ranks = profile->cuda || profile->cores < 1 ? 1 : (int)profile->cores;
    Arena *arena = arena_create(); /* for curves; no text of theirs is kept */
    Device measured = device_of_profile(profile, n_ranks, arena);
    apply_device(cluster, profile, &measured);
    if (cluster->node.n_devices > 1) apply_node(&cluster->node, profile, &measured);
    if (profile->n_host) {
        cluster->node.host_bytes_per_second = measured.host_bytes_per_second;
        cluster->node.host_fraction = 1;
    }
    arena_destroy(arena);
    return true;
}
