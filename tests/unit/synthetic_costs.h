/* A made-up transformer on a made-up cluster, in place of model_cost.c, device_time.c and
 * collective_time.c: cheap, in closed form, and with every trade-off of the real ones. A test that
 * includes this must link neither of the three. */
#ifndef TESTS_UNIT_SYNTHETIC_COSTS_H
#define TESTS_UNIT_SYNTHETIC_COSTS_H

#include "planner/cost/collective_time.h"
#include "planner/cost/step_bound.h"
#include "planner/search/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct Synthetic {
    double seq, hidden, heads, vocab; /* of the model */
    double flops_per_s, op_us;        /* of a device */
    int n_kinds;                      /* the second kind takes 1.7 times as long */
} Synthetic;

enum { MOST_LAYOUTS = 4096 };
static Synthetic synthetic;
static ModelCosts synthetic_costs;
static Cluster synthetic_cluster;
static LayoutCost synthetic_layouts[MOST_LAYOUTS];
static SegmentCost synthetic_kinds[MOST_LAYOUTS][2];
static LayoutCost synthetic_splits[MOST_LAYOUTS];
static SegmentCost synthetic_split_kinds[MOST_LAYOUTS][2];
static LayoutBound synthetic_bounds[MOST_LAYOUTS];
static int n_synthetic_layouts;

double message_us(const Cluster *cluster, double bytes, bool crosses, int sharing) {
    double rate = crosses
                      ? cluster->network.n_nics * cluster->network.nic_bytes_per_second / sharing
                      : cluster->node.link_bytes_per_second;
    return (crosses ? cluster->network.latency_us : cluster->node.link_latency_us) +
           bytes / rate * 1e6;
}

double collective_us(const Cluster *cluster, CollectiveKind kind, double bytes,
                     const CollectiveGroup *group) {
    int n = group->n_ranks;
    if (n <= 1) return 0;
    bool crosses = group->per_node < n;
    double rate = cluster->node.link_bytes_per_second;
    double net = cluster->network.n_nics * cluster->network.nic_bytes_per_second / group->sharing;
    if (crosses && net < rate) rate = net;
    double latency =
        crosses ? cluster->network.latency_us * log2(n) : cluster->node.link_latency_us;
    int passes = kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
    return passes * (latency * 2 + bytes * (n - 1) / n / rate * 1e6);
}

double collective_group_us(const Cluster *cluster, CollectiveKind kind, double bytes, int n_joined,
                           const CollectiveGroup *group) {
    double us = collective_us(cluster, kind, bytes, group);
    return n_joined > 1 ? us + collective_us(cluster, kind, 0, group) : us;
}

CollectiveGroup placement_group(const Placement *placement, int axis) {
    const int sizes[N_MESH_GROUPS] = {[MESH_T] = placement->t,
                                      [MESH_C] = 1,
                                      [MESH_E] = 1,
                                      [MESH_D] = placement->d,
                                      [MESH_DC] = placement->d,
                                      [MESH_DE] = placement->d,
                                      [MESH_DEC] = placement->d,
                                      [MESH_R] = placement_r(placement),
                                      [MESH_P] = placement->p};
    int stride = axis == MESH_T ? 1 : placement->t;
    if (axis == MESH_R || axis == MESH_P) stride *= placement->d;
    if (axis == MESH_P) stride *= placement_r(placement);
    int per_node = placement->n_per_node / stride;
    if (per_node < 1) per_node = 1;
    if (per_node > sizes[axis]) per_node = sizes[axis];
    int sharing = placement->n_per_node / per_node;
    if (sharing > stride) sharing = stride;
    return (CollectiveGroup){sizes[axis], per_node, sharing < 1 ? 1 : sharing};
}

bool placement_border_crosses(const Placement *placement, int stage) {
    int per_stage = placement_width(placement), last = (stage + 2) * per_stage - 1;
    return stage * per_stage / placement->n_per_node != last / placement->n_per_node;
}

static PhaseCost synthetic_phase(double flops, double passes, double bytes, int t) {
    PhaseCost phase = {.flops = flops * passes, .n_ops = 10, .n_collectives = t > 1 ? 2 : 0};
    CollectiveGroup group =
        placement_group(&(Placement){synthetic_cluster.node.n_devices, t, 1, 1, 1, 1, 1}, MESH_T);
    phase.product_us = flops * passes / synthetic.flops_per_s * 1e6 + synthetic.op_us * passes;
    phase.collective_us =
        2 * collective_us(&synthetic_cluster, COLLECTIVE_ALL_REDUCE, bytes, &group);
    phase.us = phase.product_us + phase.collective_us;
    return phase;
}

static SegmentCost synthetic_segment(double parameters, double flops, double bytes, int t,
                                     double extra) {
    SegmentCost segment = {.forward = synthetic_phase(flops, 1, bytes, t),
                           .backward = synthetic_phase(flops, 2 + extra, bytes, t)};
    segment.model_flops = 3 * flops;
    segment.n_parameters = (int64_t)parameters;
    segment.largest_weight = segment.n_parameters / 3, segment.n_weights = 6;
    segment.parameter_bytes = 2 * segment.n_parameters;
    segment.gradient_bytes = 4 * segment.n_parameters;
    segment.optimizer_bytes = 12 * segment.n_parameters;
    segment.scratch_bytes = (int64_t)(4 * bytes);
    segment.update_us = parameters * 30 / 1.5e12 * 1e6;
    segment.micro_calls = 40;
    for (int i = 0; i < N_UPDATE_KINDS; i++) segment.update_calls[i] = 10 * (i + 1);
    return segment;
}

static void synthetic_fill(LayoutCost *layout, SegmentCost *kinds) {
    double s = synthetic.seq, h = synthetic.hidden, b = layout->micro_batch, t = layout->t;
    double bytes = 2 * b * s * h, block = 12 * h * h / t;
    bool sp = layout->sequence_parallel;
    double extra = layout->recompute == RECOMPUTE_FULL        ? 1
                   : layout->recompute == RECOMPUTE_SELECTIVE ? 0.05
                                                              : 0;
    double flops = 2 * b * s * block * (1 + s / (6 * h));
    double scores = 5 * synthetic.heads * s / h / t;
    double kept = b * s * h * ((sp ? 34 / t : 10 + 24 / t) + scores);
    if (layout->recompute == RECOMPUTE_SELECTIVE) kept -= b * s * h * scores;
    if (layout->recompute == RECOMPUTE_FULL) kept = bytes / (sp ? t : 1);
    layout->kinds = kinds;
    for (int k = 0; k < synthetic.n_kinds; k++) {
        double heavier = k ? 1.7 : 1;
        kinds[k] = synthetic_segment(block, flops * heavier, bytes, layout->t, extra);
        kinds[k].kept_bytes = (int64_t)(kept * heavier);
    }
    double table = synthetic.vocab * h / t;
    layout->before = synthetic_segment(table, b * s * h, bytes / 2, layout->t, 0);
    layout->before.kept_bytes = (int64_t)(bytes / (sp ? t : 1));
    layout->after = synthetic_segment(table, 2 * b * s * table, bytes / 2, layout->t, 0);
    layout->after.kept_bytes = (int64_t)(4 * b * s * synthetic.vocab / t);
    layout->tied = synthetic_segment(table, 0, 0, 1, 0);
    layout->border_bytes = (int64_t)(bytes / (sp ? t : 1));
    layout->n_border_values = layout->n_border_gradients = 1;
    layout->input_bytes = (int64_t)(8 * b * s);
    layout->workspace_bytes = 32 << 20;
}

/* Half of a backward's products are for weights; what is between both parts takes some memory. */
static void synthetic_split(SegmentCost *segment) {
    PhaseCost *backward = &segment->backward, *weights = &segment->weights;
    weights->flops = backward->flops / 2;
    weights->product_us = weights->us = backward->product_us / 2;
    weights->n_ops = 5;
    backward->flops -= weights->flops;
    backward->product_us -= weights->product_us, backward->us -= weights->us;
    segment->weights_bytes = segment->kept_bytes * 9 / 10;
    segment->peak_bytes = segment->kept_bytes * 11 / 10;
}

/* What step_bound.c would find in plans, if there were any. */
static void synthetic_bound(LayoutCost *layout, LayoutBound *out) {
    const SegmentCost *first = &layout->kinds[0], *last = &layout->kinds[synthetic.n_kinds - 1];
    BlockBound block = {
        .n_blocks = synthetic_costs.n_blocks,
        .kept_bytes = first->kept_bytes,
        .scratch_bytes = first->scratch_bytes,
        .weights = {{0}, {first->optimizer_bytes, first->gradient_bytes, first->parameter_bytes}}};
    *out = (LayoutBound){block, block, layout->border_bytes, layout->after.scratch_bytes};
    out->kind.n_blocks = synthetic_costs.n_blocks / synthetic.n_kinds; /* they take turns */
    out->kind.kept_bytes = last->kept_bytes;
    layout->bound = out;
    layout->split_bound = layout->split ? out : NULL;
}

const LayoutCost *model_costs_at(ModelCosts *costs, int t, bool sequence_parallel,
                                 Recompute recompute, int micro_batch, const char **out_reason) {
    static char reason[200];
    (void)costs;
    *out_reason = reason;
    if (fmod(synthetic.heads, t) != 0) {
        snprintf(reason, sizeof(reason), "axis 'heads' is %g: t=%d does not divide it",
                 synthetic.heads, t);
        return NULL;
    }
    for (int i = 0; i < n_synthetic_layouts; i++) {
        const LayoutCost *known = &synthetic_layouts[i];
        if (known->t == t && known->sequence_parallel == sequence_parallel &&
            known->recompute == recompute && known->micro_batch == micro_batch) {
            return known;
        }
    }
    if (n_synthetic_layouts == MOST_LAYOUTS) return NULL;
    LayoutCost *layout = &synthetic_layouts[n_synthetic_layouts];
    *layout = (LayoutCost){.priced = true,
                           .can_split = recompute != RECOMPUTE_FULL,
                           .t = t,
                           .sequence_parallel = sequence_parallel,
                           .recompute = recompute,
                           .micro_batch = micro_batch};
    synthetic_fill(layout, synthetic_kinds[n_synthetic_layouts]);
    model_costs_split(&synthetic_costs, layout);
    synthetic_bound(layout, &synthetic_bounds[n_synthetic_layouts++]);
    return layout;
}

/* Found one by one. */
void model_costs_prepare(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    (void)costs, (void)keys, (void)n_keys, (void)crew;
}
void model_costs_plan(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    (void)costs, (void)keys, (void)n_keys, (void)crew;
}
void model_costs_time(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    (void)costs, (void)keys, (void)n_keys, (void)crew;
}
void model_costs_price(ModelCosts *costs, const LayoutCost *layout, bool splits) {
    (void)costs, (void)layout, (void)splits;
}
const LayoutCost *model_costs_place(ModelCosts *costs, const LayoutKey *key,
                                    const char **out_reason) {
    return model_costs_divided(costs, key->t, key->c, key->e, key->sequence_parallel,
                               key->recompute, key->micro_batch, key->lanes, out_reason);
}

void model_costs_split(ModelCosts *costs, const LayoutCost *layout) {
    ptrdiff_t at = layout - synthetic_layouts;
    (void)costs;
    if (layout->split || layout->recompute == RECOMPUTE_FULL) return;
    LayoutCost *split = &synthetic_splits[at];
    *split = *layout;
    split->split = NULL;
    split->kinds = synthetic_split_kinds[at];
    for (int k = 0; k < synthetic.n_kinds; k++) {
        split->kinds[k] = layout->kinds[k];
        synthetic_split(&split->kinds[k]);
    }
    synthetic_split(&split->after);
    synthetic_layouts[at].split = split;
}

/* Sequences are too short for c. */
const LayoutCost *model_costs_divided(ModelCosts *costs, int t, int c, int e,
                                      bool sequence_parallel, Recompute recompute, int micro_batch,
                                      int lanes, const char **out_reason) {
    if (c > 1 || e > 1 || lanes > 1) BUG("made-up costs with c=%d, e=%d, lanes=%d", c, e, lanes);
    return model_costs_at(costs, t, sequence_parallel, recompute, micro_batch, out_reason);
}

/* A DGX A100 with 8 x HDR, roughly. */
static void synthetic_use(Synthetic model, int n_blocks) {
    static int kinds[4096];
    synthetic = model;
    n_synthetic_layouts = 0;
    synthetic_cluster = (Cluster){.name = "made-up"};
    synthetic_cluster.device.memory_bytes = 80e9;
    synthetic_cluster.device.memory_usable = 0.95;
    synthetic_cluster.node = (ClusterNode){
        .n_devices = 8, .link_bytes_per_second = 230e9, .link_latency_us = 4, .switched = true};
    synthetic_cluster.network =
        (ClusterNetwork){.n_nics = 8, .nic_bytes_per_second = 21e9, .latency_us = 12};
    synthetic_cluster.software = (ClusterSoftware){.name = "made-up",
                                                   .overlaps_gradients = true,
                                                   .overlaps_pipeline = true,
                                                   .gradient_bytes = 4,
                                                   .zero_stages = 3,
                                                   .splits_backward = true};
    for (int b = 0; b < n_blocks; b++) kinds[b] = model.n_kinds > 1 ? b % 2 : 0;
    synthetic_costs = (ModelCosts){.model = "made-up",
                                   .cluster = &synthetic_cluster,
                                   .n_blocks = n_blocks,
                                   .n_kinds = model.n_kinds,
                                   .kind_of_block = kinds,
                                   .seq = (int64_t)model.seq,
                                   .vocab = (int64_t)model.vocab};
}

static const Synthetic SYNTHETIC_175B = {2048, 12288, 96, 51200, 200e12, 60, 1};

#endif
