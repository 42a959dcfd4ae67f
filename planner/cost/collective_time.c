#include "planner/cost/collective_time.h"

#include "ir/mesh.h"

#include <math.h>

/* NCCL's own constants (src/graph/tuning.cc): a tree's links carry a little less than a ring's; on
 * Hopper a reduction in the switch reaches less of the link, and starts in 25 us. */
static const double TREE_FRACTION = 0.92, IN_SWITCH_FRACTION = 0.85, IN_SWITCH_BASE_US = 25;

typedef struct Choice {
    double us;
    const char *algorithm;
} Choice;

static int n_nodes(const CollectiveGroup *group) {
    int per_node = group->per_node > 0 ? group->per_node : 1;
    return (group->n_ranks + per_node - 1) / per_node;
}

/* Bytes per microsecond of one device to others of its node. */
static double link_rate(const ClusterNode *node) {
    return node->link_bytes_per_second * node->link_fraction * 1e-6;
}

/* Bytes per microsecond that one of `sharing` groups gets out of a node in which it has `members`:
 * at most its members' own NICs. */
static double network_rate(const Cluster *cluster, int members, int sharing) {
    const ClusterNetwork *network = &cluster->network;
    double nics = (double)network->n_nics / (sharing > 1 ? sharing : 1);
    double own = (double)network->n_nics / cluster->node.n_devices;
    if (own < 1) own = 1;
    if (nics > own * members) nics = own * members;
    double through = network->oversubscription > 1 ? network->oversubscription : 1;
    return nics * network->nic_bytes_per_second * network->nic_fraction * 1e-6 / through;
}

/* Every step moves 1/n of the bytes over every link; the slowest link sets the pace. The ramps are
 * bytes that each step seems to carry beyond its own. */
static double ring_us(const Cluster *cluster, double passes, double bytes,
                      const CollectiveGroup *group, double rate) {
    const ClusterNode *node = &cluster->node;
    const ClusterNetwork *network = &cluster->network;
    int n = group->n_ranks, nodes = n_nodes(group);
    double steps = passes * (n - 1), between = nodes > 1 ? passes * (nodes - 1) : 0;
    double us = node->collective_base_us + bytes * steps / n / rate;
    us += (steps - between) * (node->link_latency_us + node->link_ramp_bytes / link_rate(node));
    if (between > 0) us += between * (network->latency_us + network->ramp_bytes / rate);
    return us;
}

/* Up the tree of nodes and down again, a chain within each node. */
static double tree_us(const Cluster *cluster, double bytes, const CollectiveGroup *group,
                      double rate) {
    const ClusterNode *node = &cluster->node;
    double nodes = n_nodes(group), inside = group->n_ranks / nodes - 1;
    return node->collective_base_us +
           2 * (inside * node->link_latency_us + log2(nodes) * cluster->network.latency_us) +
           2 * bytes / (TREE_FRACTION * rate);
}

/* Each member sends 1/n of what it has to each, as NCCL does: pair by pair, all at once. In the
 * node over its own links; what leaves over its share of the cards, but for what rows have in
 * common: that is handed on inside the node that it arrives at. */
double exchange_us(const Cluster *cluster, double bytes, const CollectiveGroup *group,
                   double crossing) {
    if (group->n_ranks <= 1) return 0;
    const ClusterNode *node = &cluster->node;
    const ClusterNetwork *network = &cluster->network;
    double n = group->n_ranks, inside = group->per_node < n ? group->per_node : n;
    double rate = link_rate(node), us = node->collective_base_us;
    if (!node->switched && group->sharing > 1) rate /= group->sharing;
    double inside_us = bytes * (inside - 1) / n / rate + (inside > 1 ? node->link_latency_us : 0) +
                       (inside - 1) * node->link_ramp_bytes / rate;
    if (n_nodes(group) == 1) return us + inside_us;
    /* All members of a node send at once: of its cards each has an equal share. */
    double card = network_rate(cluster, group->per_node, group->sharing) / group->per_node;
    double out = fmin(link_rate(node), card), peers = n - inside;
    double outside_us =
        peers * (crossing * bytes / n + network->ramp_bytes) / out + network->latency_us;
    if (crossing < 1) inside_us = bytes * (inside - 1) / inside / rate + node->link_latency_us;
    return us + (outside_us > inside_us ? outside_us : inside_us);
}

static Choice choose(const Cluster *cluster, CollectiveKind kind, double bytes,
                     const CollectiveGroup *group) {
    if (group->n_ranks <= 1) return (Choice){0, "none"};
    if (kind == COLLECTIVE_ALL_TO_ALL)
        return (Choice){exchange_us(cluster, bytes, group, 1), "pairs"};
    bool all_reduce = kind == COLLECTIVE_ALL_REDUCE;
    double passes = all_reduce ? 2 : 1, rate = link_rate(&cluster->node);
    bool inside = n_nodes(group) == 1;
    if (inside && !cluster->node.switched && group->sharing > 1) rate /= group->sharing;
    if (!inside) rate = fmin(rate, network_rate(cluster, group->per_node, group->sharing));
    Choice best = {ring_us(cluster, passes, bytes, group, rate), "ring"};
    if (all_reduce && !inside) {
        double us = tree_us(cluster, bytes, group, rate);
        if (us < best.us) best = (Choice){us, "tree"};
    }
    if (inside && cluster->node.reduces_in_switch && group->n_ranks > 2) {
        /* Every rank sends its part once and receives once: (n-1)/n of the bytes, or all. */
        double part = all_reduce ? 1 : (double)(group->n_ranks - 1) / group->n_ranks;
        double us = IN_SWITCH_BASE_US + bytes * part / (rate * IN_SWITCH_FRACTION);
        if (us < best.us) best = (Choice){us, "nvls"};
    }
    return best;
}

double collective_us(const Cluster *cluster, CollectiveKind kind, double bytes,
                     const CollectiveGroup *group) {
    return choose(cluster, kind, bytes, group).us;
}

double collective_group_us(const Cluster *cluster, CollectiveKind kind, double bytes, int n_joined,
                           const CollectiveGroup *group) {
    double us = collective_us(cluster, kind, bytes, group);
    if (n_joined < 2 || group->n_ranks < 2) return us;
    double steps_us = collective_us(cluster, kind, 0, group) - cluster->node.collective_base_us;
    return us + (steps_us > 0 ? steps_us : 0);
}

const char *collective_algorithm(const Cluster *cluster, CollectiveKind kind, double bytes,
                                 const CollectiveGroup *group) {
    return choose(cluster, kind, bytes, group).algorithm;
}

double message_us(const Cluster *cluster, double bytes, bool crosses_nodes, int sharing) {
    const ClusterNode *node = &cluster->node;
    double us = node->collective_base_us;
    if (!crosses_nodes)
        return us + node->link_latency_us + (bytes + node->link_ramp_bytes) / link_rate(node);
    const ClusterNetwork *network = &cluster->network;
    double rate = fmin(link_rate(node), network_rate(cluster, 1, sharing));
    return us + network->latency_us + (bytes + network->ramp_bytes) / rate;
}

/* Ranks of one axis are `stride` apart, so a group's members and those of the groups between them
 * fill a block of ranks. Blocks that do not tile a node straddle two; the worst is what counts. */
CollectiveGroup placement_group(const Placement *placement, int mesh_axis) {
    const Mesh mesh = {.size = {[MESH_T] = placement->t,
                                [MESH_C] = placement_c(placement),
                                [MESH_E] = placement_e(placement),
                                [MESH_D] = placement->d,
                                [MESH_R] = placement_r(placement),
                                [MESH_P] = placement->p}};
    int n = mesh_size(&mesh, mesh_axis), stride = 1, node = placement->n_per_node;
    for (int axis = 0; axis < mesh_group_axes(mesh_axis).axes[0]; axis++) stride *= mesh.size[axis];
    int64_t ranks = (int64_t)placement_width(placement) * placement->p;
    int64_t block = (int64_t)n * stride;
    if (block <= node && (ranks <= node || node % block == 0))
        return (CollectiveGroup){n, n, stride};
    if (block <= node) return (CollectiveGroup){n, (n + 1) / 2, stride};
    int per_node = stride < node ? node / stride : 1;
    return (CollectiveGroup){n, per_node, stride < node ? stride : node};
}

bool placement_border_crosses(const Placement *placement, int stage) {
    int64_t ranks = placement_width(placement), first = stage * ranks;
    for (int64_t i = 0; i < ranks; i++)
        if ((first + i) / placement->n_per_node != (first + i + ranks) / placement->n_per_node)
            return true;
    return false;
}
