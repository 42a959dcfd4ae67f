/* Results of a search that were thought up, for tests of how results are shown. */
#ifndef TESTS_UNIT_SEARCH_FIXTURE_H
#define TESTS_UNIT_SEARCH_FIXTURE_H

#include "planner/show/show_search.h"

#include <stdlib.h>
#include <string.h>

static inline Cluster fixture_cluster(const char *title) {
    Cluster cluster = {.name = "selene", .title = title, .source = "Narayanan et al. 2021"};
    cluster.device = (ClusterDevice){.name = "A100", .memory_bytes = 80e9, .memory_usable = 0.95};
    cluster.device.peak_flops[MATH_BF16] = 312e12;
    cluster.node.n_devices = 8;
    cluster.node.link_bytes_per_second = 300e9;
    cluster.network.n_nics = 8;
    cluster.software.name = "perilune";
    cluster.price_per_device_hour = 1.5;
    cluster.currency = "USD";
    return cluster;
}

/* Runs on 3072 devices fail every 10 hours; a checkpoint of fixture_costs takes 60 s. */
static inline void fixture_add_failures(Cluster *cluster) {
    cluster->failures = (ClusterFailures){30720, 10, "counted"};
    cluster->storage = (ClusterStorage){.node_bytes_per_second = 1e12, .bytes_per_second = 201.6e9};
}

static inline ModelCosts fixture_costs(const Cluster *cluster, const char *model) {
    return (ModelCosts){.model = model,
                        .cluster = cluster,
                        .n_blocks = 128,
                        .seq = 2048,
                        .vocab = 51200,
                        .n_parameters = 1008000000000,
                        .n_trained = 1008000000000,
                        .saved_weight_bytes = 4032000000000,
                        .saved_state_bytes = 8064000000000,
                        .n_active_parameters = 1008000000000,
                        .model_flops = 1.3e16};
}

/* What adds up adds up, whatever the numbers. */
static inline Found fixture_found(Arena *arena, Candidate candidate, double scale) {
    Found found = {.candidate = candidate, .simulated = true};
    StepCost *cost = &found.cost;
    cost->compute_us = 66e6 * scale;
    cost->tensor_us = 8e6 * scale * candidate.t / 8;
    cost->pipeline_us = 0.4e6;
    cost->bubble_us = cost->compute_us * (candidate.p - 1) / candidate.n_micro / candidate.n_chunks;
    cost->wait_us = cost->bubble_us;
    cost->data_us = 1.1e6 * candidate.d / 6;
    cost->update_us = 0.25e6;
    cost->step_us = cost->compute_us + cost->tensor_us + cost->pipeline_us + cost->bubble_us +
                    cost->data_us + cost->update_us;
    cost->bubble_fraction = cost->bubble_us / cost->step_us;
    cost->hardware_flops = 1.42e16;
    cost->parameter_bytes = (int64_t)(4.0e12 / candidate.t / candidate.p);
    cost->gradient_bytes = cost->parameter_bytes;
    cost->optimizer_bytes = 2 * cost->parameter_bytes / (candidate.zero ? candidate.d : 1);
    cost->activation_bytes = (int64_t)2e10 * candidate.micro_batch;
    cost->message_bytes = 300 << 20;
    cost->scratch_bytes = 2 << 20;
    cost->runtime_bytes = (512 << 20) + (int64_t)candidate.n_micro * (64 << 10);
    cost->memory_bytes = cost->parameter_bytes + cost->gradient_bytes + cost->optimizer_bytes +
                         cost->activation_bytes + cost->message_bytes + cost->scratch_bytes +
                         cost->runtime_bytes;
    int n = candidate.p * candidate.n_chunks;
    found.split = ARENA_ARRAY(arena, int, n);
    for (int i = 0; i < n; i++) found.split[i] = 128 / n;
    return found;
}

static inline Candidate fixture_candidate(int t, int d, int p, int v, int b) {
    Candidate of = {.t = t, .d = d, .p = p, .n_chunks = v, .micro_batch = b};
    of.n_micro = 3072 / d / b;
    for (of.schedule = 0; schedule_name(of.schedule); of.schedule++) {
        if (strcmp(schedule_name(of.schedule), v > 1 ? "interleaved" : "1f1b") == 0) break;
    }
    of.recompute = b > 1 ? RECOMPUTE_FULL : RECOMPUTE_SELECTIVE;
    of.zero = d > 6;
    of.sequence_parallel = t > 1;
    return of;
}

static inline int fixture_by_time(const void *a, const void *b) {
    double x = ((const Found *)a)->cost.step_us, y = ((const Found *)b)->cost.step_us;
    return (x > y) - (x < y);
}

static inline SearchResult fixture_result(Arena *arena, int n_samples) {
    static Alternative alternatives[] = {
        {"t", "16", true, 1.38, 0, "t=16 leaves the NVLink domain: +38 % step time", {0}},
        {"p", "1", false, 0, 212LL << 30, "p=1 does not fit: 212 GiB are missing per device", {0}},
    };
    SearchResult result = {.n_candidates = 451328,
                           .n_fit = 20311,
                           .seconds = 0.31,
                           .n_alternatives = 2,
                           .alternatives = alternatives};
    result.samples = ARENA_ARRAY(arena, Found, n_samples + 1);
    static const int T[] = {1, 2, 4, 8, 16}, V[] = {1, 2, 4};
    for (int i = 0; i < n_samples; i++) {
        int t = T[i % 5], d = 3 << (i / 5 % 5), v = V[i / 25 % 3], b = 1 << (i / 75 % 3);
        Candidate of = fixture_candidate(t, d, 3072 / t / d > 128 ? 128 : 3072 / t / d, v, b);
        double off = abs(t - 8) / 8.0 + abs(d - 6) / 24.0 + i % 97 / 300.0;
        result.samples[result.n_samples++] = fixture_found(arena, of, 1 + off);
    }
    result.found = ARENA_ARRAY(arena, Found, 16);
    result.found[result.n_found++] = fixture_found(arena, fixture_candidate(8, 6, 64, 2, 1), 1);
    for (int i = 1; i < 9; i++) {
        Candidate of = fixture_candidate(i % 2 ? 8 : 4, 6 << (i % 3), i % 2 ? 64 >> i % 3 : 32,
                                         1 + i % 2, 1 + i / 6);
        Found *found = &result.found[result.n_found++];
        *found = fixture_found(arena, of, 1 + 0.03 * i);
        found->cost.memory_bytes -= found->cost.activation_bytes / 10 * i;
        found->cost.activation_bytes -= found->cost.activation_bytes / 10 * i;
    }
    qsort(result.found, (size_t)result.n_found, sizeof(Found), fixture_by_time);
    result.samples[result.n_samples++] = result.found[0];
    result.pareto = ARENA_ARRAY(arena, Found, 16);
    result.pareto[result.n_pareto++] = result.found[0];
    for (int i = 1; i < result.n_found; i++) {
        const Found *last = &result.pareto[result.n_pareto - 1];
        if (result.found[i].cost.memory_bytes >= last->cost.memory_bytes) continue;
        result.pareto[result.n_pareto++] = result.found[i];
    }
    return result;
}

#endif
