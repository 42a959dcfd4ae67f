#include "planner/clusters/cluster_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NICS_PER_DEVICE = 8 };

const char *cluster_number(Arena *arena, double value) {
    char text[40], *out = arena_alloc(arena, sizeof(text));
    if (isnan(value)) return "nan"; /* whose sign differs from machine to machine */
    bool plain = fabs(value) < 1e6 && (value == 0 || fabs(value) >= 1e-3);
    if (plain || !isfinite(value)) {
        snprintf(out, sizeof(text), "%.12g", value);
        return out;
    }
    int digits = 0; /* as few as show the number */
    do {
        snprintf(text, sizeof(text), "%.*e", digits, value);
    } while (digits++ < 11 && fabs(strtod(text, NULL) - value) > 1e-11 * fabs(value));
    char *power = strchr(text, 'e');
    snprintf(out, sizeof(text), "%.*se%d", (int)(power - text), text, atoi(power + 1));
    return out;
}

static const char *check_math(Arena *arena, const ClusterDevice *device, const char **out_why) {
    static const char *const NAMES[N_MATH_KINDS] = {"f32", "bf16", "fp8"};
    for (int i = 0; i < N_MATH_KINDS; i++) {
        bool peak = device->peak_flops[i] > 0, fraction = device->product_fraction[i] > 0;
        if (peak == fraction) continue;
        *out_why = arena_printf(arena, "device.%s.%s is missing: device.%s has one",
                                peak ? "product_fraction" : "peak_flops", NAMES[i],
                                peak ? "peak_flops" : "product_fraction");
        return arena_printf(arena, "device.%s.%s", peak ? "product_fraction" : "peak_flops",
                            NAMES[i]);
    }
    return NULL;
}

/* Nothing reaches a device faster than its own memory does. */
static const char *check_rate(Arena *arena, const Cluster *cluster, double rate, const char *path,
                              const char **out_why) {
    double most = cluster->device.memory_bytes_per_second;
    if (rate <= most) return NULL;
    *out_why = arena_printf(arena, "%s is %s: more than the %s of the device's own memory", path,
                            cluster_number(arena, rate), cluster_number(arena, most));
    return path;
}

static const char *check_node(Arena *arena, const Cluster *cluster, const char **out_why) {
    const ClusterNode *node = &cluster->node;
    if (node->reduces_in_switch && !node->switched) {
        *out_why = "node.reduces_in_switch is true without a switch: node.switched is false";
        return "node.reduces_in_switch";
    }
    const char *path = check_rate(arena, cluster, node->link_bytes_per_second,
                                  "node.link_bytes_per_second", out_why);
    if (!path) {
        path = check_rate(arena, cluster, node->host_bytes_per_second, "node.host_bytes_per_second",
                          out_why);
    }
    const bool rate = node->host_bytes_per_second > 0, memory = node->host_memory_bytes > 0;
    if (path || rate == memory) return path;
    *out_why = rate ? "node.host_memory_bytes is missing: node.host_bytes_per_second is there"
                    : "node.host_bytes_per_second is missing: node.host_memory_bytes is there";
    return rate ? "node.host_memory_bytes" : "node.host_bytes_per_second";
}

static const char *check_network(Arena *arena, const Cluster *cluster, const char **out_why) {
    int n_devices = cluster->node.n_devices, n_nics = cluster->network.n_nics;
    if (n_nics == 0 && (cluster->max_devices == 0 || cluster->max_devices > n_devices)) {
        *out_why = arena_printf(arena,
                                "network is missing: without one max_devices must be stated, and "
                                "at most the %d of a node",
                                n_devices);
        return "network";
    }
    if (n_nics > MOST_NICS_PER_DEVICE * n_devices) {
        *out_why = arena_printf(arena,
                                "network.n_nics is %d for a node of %d device%s: at most %d for "
                                "each",
                                n_nics, n_devices, n_devices == 1 ? "" : "s", MOST_NICS_PER_DEVICE);
        return "network.n_nics";
    }
    double all = n_nics * cluster->network.nic_bytes_per_second;
    if (all > n_devices * cluster->device.memory_bytes_per_second) {
        *out_why =
            arena_printf(arena,
                         "network.nic_bytes_per_second is %s: %d such cards are faster than "
                         "the node's memory",
                         cluster_number(arena, cluster->network.nic_bytes_per_second), n_nics);
        return "network.nic_bytes_per_second";
    }
    if (n_nics && cluster->max_devices % n_devices != 0) {
        *out_why =
            arena_printf(arena, "max_devices is %" PRId64 ": must be whole nodes of %d devices",
                         cluster->max_devices, n_devices);
        return "max_devices";
    }
    return NULL;
}

static const char *check_storage(Arena *arena, const Cluster *cluster, const char **out_why) {
    const ClusterStorage *storage = &cluster->storage;
    double node = storage->node_bytes_per_second, all = storage->bytes_per_second;
    if (all > 0 && node > all) {
        *out_why = arena_printf(arena,
                                "storage.node_bytes_per_second is %s: more than the %s of all "
                                "nodes (storage.bytes_per_second)",
                                cluster_number(arena, node), cluster_number(arena, all));
        return "storage.node_bytes_per_second";
    }
    if (storage->n_nodes > 0 && all <= 0) {
        *out_why = "storage.bytes_per_second is missing: storage.n_nodes is there";
        return "storage.bytes_per_second";
    }
    if (node > cluster->node.n_devices * cluster->device.memory_bytes_per_second) {
        *out_why = arena_printf(arena,
                                "storage.node_bytes_per_second is %s: faster than the memory of "
                                "the node's devices",
                                cluster_number(arena, node));
        return "storage.node_bytes_per_second";
    }
    return NULL;
}

const char *cluster_check(Arena *arena, const Cluster *cluster, const char **out_why) {
    const char *path = check_math(arena, &cluster->device, out_why);
    if (!path) path = check_node(arena, cluster, out_why);
    if (!path) path = check_network(arena, cluster, out_why);
    if (!path) path = check_storage(arena, cluster, out_why);
    return path;
}
