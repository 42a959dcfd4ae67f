/* Collective time: closed forms in ideal cases, what NCCL would choose, growth with bytes and
 * members, the published all-reduce times of an 8-GPU A100 node, and where groups sit in nodes.
 * What it would catch: a wrong number of steps, a NIC counted twice, a border that is missed. */
#include "planner/cost/border_time.h"

#include "ir/mesh.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static Cluster ideal(void) {
    Cluster cluster = {.name = "ideal"};
    cluster.node = (ClusterNode){
        .n_devices = 8, .link_bytes_per_second = 300e9, .link_fraction = 1, .switched = true};
    cluster.network = (ClusterNetwork){
        .n_nics = 8, .nic_bytes_per_second = 25e9, .nic_fraction = 1, .oversubscription = 1};
    return cluster;
}

static Cluster a100(void) {
    Cluster cluster = ideal();
    cluster.node.link_fraction = 0.72;
    cluster.node.link_latency_us = 0.6;
    cluster.node.link_ramp_bytes = 256 * 1024;
    cluster.node.collective_base_us = 40;
    cluster.network.nic_fraction = 0.86;
    cluster.network.latency_us = 14;
    return cluster;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void test_closed_forms(void) {
    Cluster cluster = ideal();
    CollectiveGroup node = {8, 8, 1}, alone = {1, 1, 1}, two = {16, 8, 1}, pairs = {4, 1, 8};
    check_begin("ring: 2(n-1)/n of the bytes at the link's rate");
    double us = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 3e8, &node);
    CHECK(near(us, 3e8 * 2 * 7 / 8 / 300e3), "all-reduce %.3f us", us);
    double gather = collective_us(&cluster, COLLECTIVE_ALL_GATHER, 3e8, &node);
    double scatter = collective_us(&cluster, COLLECTIVE_REDUCE_SCATTER, 3e8, &node);
    CHECK(near(gather, us / 2) && near(scatter, us / 2), "gather %.3f, scatter %.3f", gather,
          scatter);
    CHECK(collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 3e8, &alone) == 0, "a group of one");

    check_begin("between nodes: the node's NICs, shared by groups that leave it together");
    us = collective_us(&cluster, COLLECTIVE_ALL_GATHER, 3e8, &two);
    CHECK(near(us, 3e8 * 15 / 16 / 200e3), "8 NICs: %.3f us", us);
    us = collective_us(&cluster, COLLECTIVE_ALL_GATHER, 3e8, &pairs);
    CHECK(near(us, 3e8 * 3 / 4 / 25e3), "one NIC of eight: %.3f us", us);
    cluster.network.n_nics = 4;
    us = collective_us(&cluster, COLLECTIVE_ALL_GATHER, 3e8, &pairs);
    CHECK(near(us, 3e8 * 3 / 4 / 12.5e3), "half a NIC: %.3f us", us);
    cluster.network.oversubscription = 2;
    CHECK(near(collective_us(&cluster, COLLECTIVE_ALL_GATHER, 3e8, &pairs), 2 * us),
          "oversubscription does not halve the rate");

    check_begin("messages: one NIC's rate, or a share of the node's");
    cluster = ideal();
    CHECK(near(message_us(&cluster, 3e8, false, 8), 1000), "inside a node");
    CHECK(near(message_us(&cluster, 25e6, true, 1), 1000), "alone, one NIC");
    cluster.network.n_nics = 4;
    CHECK(near(message_us(&cluster, 25e6, true, 8), 2000), "eight on four NICs");
}

static void test_algorithms(void) {
    Cluster cluster = a100();
    CollectiveGroup many = {1024, 8, 1}, node = {8, 8, 1};
    check_begin("small messages over many nodes go by tree, large ones by ring");
    const char *small = collective_algorithm(&cluster, COLLECTIVE_ALL_REDUCE, 1e4, &many);
    const char *large = collective_algorithm(&cluster, COLLECTIVE_ALL_REDUCE, 1e11, &many);
    CHECK(!strcmp(small, "tree"), "small: %s", small);
    CHECK(!strcmp(large, "ring"), "large: %s", large);
    const char *gather = collective_algorithm(&cluster, COLLECTIVE_ALL_GATHER, 1e4, &many);
    CHECK(!strcmp(gather, "ring"), "a gather by %s", gather);

    check_begin("a switch that reduces beats the ring");
    double ring = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e8, &node);
    cluster.node.reduces_in_switch = true;
    double nvls = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e8, &node);
    const char *name = collective_algorithm(&cluster, COLLECTIVE_ALL_REDUCE, 1e8, &node);
    CHECK(nvls < 0.8 * ring && !strcmp(name, "nvls"), "%s: %.0f us; ring %.0f", name, nvls, ring);
}

static void test_growth(void) {
    Cluster cluster = a100();
    check_begin("grows with bytes and with members");
    for (int kind = 0; kind < N_COLLECTIVE_KINDS; kind++)
        for (int n = 2; n <= 512; n *= 2)
            for (double bytes = 1e3; bytes < 1e10; bytes *= 4) {
                CollectiveGroup group = {n, n < 8 ? n : 8, 1},
                                larger = {2 * n, n < 4 ? 2 * n : 8, 1};
                double us = collective_us(&cluster, (CollectiveKind)kind, bytes, &group);
                CHECK(collective_us(&cluster, (CollectiveKind)kind, bytes * 1.1, &group) > us,
                      "kind %d, %d ranks: less for more than %.0f bytes", kind, n, bytes);
                CHECK(collective_us(&cluster, (CollectiveKind)kind, bytes, &larger) >= us,
                      "kind %d, %.0f bytes: less for more than %d ranks", kind, bytes, n);
            }
}

/* vTrain's table of measured all-reduces (VIA-Research/vTrain, trace/a100): an A100 node. */
static void test_published(void) {
    static const struct {
        int n;
        double mib, us;
    } rows[] = {{2, 1, 44.2}, {2, 16, 131.9}, {2, 128, 763.6},  {2, 1024, 5442.8},
                {4, 2, 55.7}, {4, 16, 179.6}, {4, 128, 998.6},  {4, 1024, 7259.4},
                {8, 4, 95.8}, {8, 32, 358.1}, {8, 128, 1162.0}, {8, 1024, 8193.0}};
    Cluster cluster = a100();
    double sum = 0;
    int n = sizeof(rows) / sizeof(rows[0]);
    check_begin("published all-reduces of an A100 node: 10 % on average, 20 % at most");
    for (int i = 0; i < n; i++) {
        CollectiveGroup group = {rows[i].n, rows[i].n, 1};
        double bytes = rows[i].mib * 1048576;
        double us = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, bytes, &group);
        double error = fabs(us / rows[i].us - 1);
        sum += error;
        CHECK(error < 0.2, "%d GPUs, %.0f MiB: %.1f us, measured %.1f", rows[i].n, rows[i].mib, us,
              rows[i].us);
    }
    CHECK(sum / n < 0.1, "mean error %.3f", sum / n);
}

static void expect_group(const Placement *placement, int axis, int per_node, int sharing) {
    CollectiveGroup group = placement_group(placement, axis);
    CHECK(group.per_node == per_node && group.sharing == sharing,
          "t=%d d=%d p=%d, axis %s: %d in a node, %d share", placement->t, placement->d,
          placement->p, mesh_axis_name(axis), group.per_node, group.sharing);
}

static void test_placement(void) {
    check_begin("placement: t innermost, then d, then p");
    Placement large = {8, 8, 32, 4, 1, 1, 1}, mixed = {8, 2, 16, 2, 1, 1, 1},
              small = {8, 2, 2, 2, 1, 1, 1}, wide = {8, 16, 4, 1, 1, 1, 1};
    Placement odd = {8, 3, 4, 1, 1, 1, 1};
    expect_group(&large, MESH_T, 8, 1);
    expect_group(&large, MESH_D, 1, 8);
    expect_group(&large, MESH_P, 1, 8);
    expect_group(&mixed, MESH_T, 2, 1);
    expect_group(&mixed, MESH_D, 4, 2);
    expect_group(&small, MESH_D, 2, 2);
    expect_group(&small, MESH_P, 2, 4);
    expect_group(&wide, MESH_T, 8, 1);
    expect_group(&wide, MESH_D, 1, 8);
    expect_group(&odd, MESH_T, 2, 1);

    check_begin("placement: which borders leave the node");
    CHECK(placement_border_crosses(&large, 0), "a stage of many nodes");
    CHECK(!placement_border_crosses(&small, 0), "all in one node");
    Placement four = {8, 2, 2, 4, 1, 1, 1};
    CHECK(!placement_border_crosses(&four, 0) && placement_border_crosses(&four, 1) &&
              !placement_border_crosses(&four, 2),
          "two stages to a node");
}

/* Members send to each other at once: inside a node 1/n of what they have to each over their links,
 * out of it over their shares of the cards. */
static void test_all_to_all(void) {
    static const Placement inside = {8, 1, 2, 1, 1, 8, 1}, outside = {8, 1, 1, 1, 1, 32, 1},
                           wide = {8, 4, 1, 1, 1, 4, 1};
    const Cluster ideal_cluster = ideal(), *cluster = &ideal_cluster;
    check_begin("all-to-all: (n - 1) / n over the links, or what leaves the node over the cards");
    double link = cluster->node.link_bytes_per_second * cluster->node.link_fraction;
    double nic = cluster->network.nic_bytes_per_second * cluster->network.nic_fraction;
    CollectiveGroup group = placement_group(&inside, MESH_E);
    CHECK(group.n_ranks == 8 && group.per_node == 8, "e=8 fills a node");
    double large = collective_us(cluster, COLLECTIVE_ALL_TO_ALL, 8e9, &group);
    CHECK(near(large, 7e9 / link * 1e6), "%g us in the node", large);
    group = placement_group(&outside, MESH_E);
    CHECK(group.n_ranks == 32 && group.per_node == 8, "e=32 fills four");
    double far = collective_us(cluster, COLLECTIVE_ALL_TO_ALL, 8e9, &group);
    CHECK(near(far, 8e9 * 24 / 32 / nic * 1e6), "%g us over four nodes", far);
    double once = exchange_us(cluster, 8e9, &group, 0.5);
    CHECK(near(once, far / 2), "%g us if half of it crosses", once);
    once = exchange_us(cluster, 8e9, &group, 1e-3);
    CHECK(near(once, 8e9 * 7 / 8 / link * 1e6), "%g us if all is handed on inside", once);
    group = placement_group(&wide, MESH_E);
    CHECK(group.per_node == 2 && group.sharing == 4, "%d in a node beside t=4", group.per_node);
    group = placement_group(&inside, MESH_DEC);
    CHECK(group.n_ranks == 16 && group.per_node == 8, "d and e together: %d", group.n_ranks);
    CHECK(strcmp(collective_algorithm(cluster, COLLECTIVE_ALL_TO_ALL, 1, &group), "pairs") == 0,
          "an algorithm");
}

/* Along a ring, groups whose members are two apart use every link twice. */
static void test_ring_of_links(void) {
    check_begin("a node without a switch: strided groups share its links");
    Cluster cluster = a100();
    CollectiveGroup near = {4, 4, 1}, strided = {4, 4, 2};
    double switched = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e9, &strided);
    CHECK(switched == collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e9, &near), "a switch");
    cluster.node.switched = false;
    double alone = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e9, &near);
    double shared = collective_us(&cluster, COLLECTIVE_ALL_REDUCE, 1e9, &strided);
    CHECK(alone == switched, "neighbours share nothing: %.1f us, %.1f", alone, switched);
    CHECK(shared > 1.9 * alone && shared <= 2 * alone, "%.1f us, alone %.1f", shared, alone);
}

/* A message between stages: its wire, and what the sender's host waits around it. */
static void test_borders(void) {
    check_begin("borders: a stall is added once; scattering divides the bytes");
    Cluster cluster = a100();
    LayoutCost layout = {.t = 4, .border_bytes = 1 << 24};
    BorderTime plain = border_time(&cluster, &layout, false, 1);
    cluster.software.message_stall_us = 200;
    BorderTime stalled = border_time(&cluster, &layout, false, 1);
    CHECK(near(stalled.us, plain.us + 200) && near(stalled.latency_us, plain.latency_us + 200),
          "%g and %g us, without %g and %g", stalled.us, stalled.latency_us, plain.us,
          plain.latency_us);
    BorderTime far = border_time(&cluster, &layout, true, 1);
    cluster.software.scatters_borders = true;
    BorderTime scattered = border_time(&cluster, &layout, true, 1);
    CHECK(scattered.us < far.us && stalled.us < far.us, "%g us scattered, %g whole", scattered.us,
          far.us);
}

int main(void) {
    test_closed_forms();
    test_borders();
    test_algorithms();
    test_growth();
    test_published();
    test_placement();
    test_all_to_all();
    test_ring_of_links();
    return check_report();
}
