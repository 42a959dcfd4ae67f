#include "frontend/job/job_estimate.h"

#include "planner/plan/plan_library.h"
#include "planner/simulate/simulate.h"

#include <math.h>

/* Assumed: what a process keeps of its machine's memory for CUDA, NCCL and their libraries; a CPU
 * rank's connections (rings of 4 MiB each way with those it talks to); a shared disk's rate. */
static const int64_t GPU_PROCESS_BYTES = (int64_t)4 << 30;
static const int64_t CONNECTIONS_BYTES = (int64_t)64 << 20;
static const double ASSUMED_STORAGE = 0.5e9;

static int64_t largest(int64_t a, int64_t b) {
    return a > b ? a : b;
}

JobMemory job_memory(const Plan *plan, bool cuda, int n_per_node, bool copies) {
    JobMemory memory = {0};
    const int n_ranks = mesh_rank_count(&plan->mesh);
    const int stage_ranks = mesh_stage_ranks(&plan->mesh);
    const int64_t copy_bytes = copies ? job_checkpoint_bytes(plan) / n_ranks * 3 / 2 : 0;
    memory.device_bytes = plan_fullest_bytes(plan);
    for (int first = 0; first < n_ranks; first += n_per_node) {
        int64_t node_bytes = 0;
        for (int r = first; r < first + n_per_node && r < n_ranks; r++) {
            const int s = r / stage_ranks;
            node_bytes += plan_host_bytes(plan, &plan->stages[s]) + copy_bytes;
            node_bytes += cuda ? GPU_PROCESS_BYTES
                               : plan->stages[s].arena_bytes + CONNECTIONS_BYTES +
                                     plan_process_library_bytes(plan, s);
        }
        memory.node_bytes = largest(memory.node_bytes, node_bytes);
    }
    const int64_t room = memory.node_bytes / 5 + ((int64_t)512 << 20), step = (int64_t)256 << 20;
    memory.limit_bytes = (memory.node_bytes + room + step - 1) / step * step;
    return memory;
}

/* Tied weights are on two stages, and count twice: it is a bound. */
int64_t job_checkpoint_bytes(const Plan *plan) {
    int64_t bytes = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_PARAM && (node->op != OP_STATE || node_is_copy(node))) continue;
            DType dtype = node->op == OP_PARAM ? DTYPE_F32 : node->types[0].dtype;
            if (dtype_is_moment(dtype)) dtype = DTYPE_F32; /* as files have it */
            bytes += type_elements(&node->types[0]) * dtype_bytes(dtype);
        }
    }
    return bytes;
}

double job_checkpoint_seconds(const Plan *plan, const Cluster *cluster, int n_nodes) {
    double rate = ASSUMED_STORAGE;
    if (cluster && cluster->storage.bytes_per_second > 0) {
        rate = cluster->storage.bytes_per_second;
        if (cluster->storage.node_bytes_per_second > 0) {
            rate = fmin(rate, cluster->storage.node_bytes_per_second * n_nodes);
        }
    } else if (cluster && cluster->storage.node_bytes_per_second > 0) {
        rate = cluster->storage.node_bytes_per_second * n_nodes;
    }
    return (double)job_checkpoint_bytes(plan) / rate;
}

Cluster *job_cluster(Arena *arena, const Cluster *cluster, int n_per_node) {
    Cluster *copy = ARENA_NEW(arena, Cluster);
    *copy = *cluster;
    copy->node.n_devices = n_per_node;
    return copy;
}

double job_step_seconds(Arena *arena, const Plan *plan, const Device *device, Diag *diag) {
    const Simulation *sim = simulate_plan(arena, plan, device, diag);
    return sim ? sim->step_us * 1e-6 : 0;
}

int job_torn_axis(const Mesh *mesh, int n_per_node, int *out_ranks) {
    static const int FREQUENT[] = {MESH_T, MESH_C, MESH_E};
    int torn = -1, span = 1;
    for (int i = 0; i < 3; i++) {
        span *= mesh->size[FREQUENT[i]];
        if (mesh->size[FREQUENT[i]] == 1 || n_per_node % span == 0) continue;
        if (mesh_rank_count(mesh) <= n_per_node) continue; /* one node has all */
        torn = FREQUENT[i];
        *out_ranks = span;
    }
    return torn;
}

int64_t job_stop_seconds(double step_s, double checkpoint_s) {
    return (int64_t)ceil((2 * (step_s + checkpoint_s) + 60) / 30) * 30;
}

int64_t job_steps(int64_t time_s, int64_t stop_s, double start_s, double step_s, double pause_s,
                  int64_t every) {
    double each = step_s + (every ? pause_s / (double)every : 0);
    double left = (double)(time_s - stop_s) - start_s;
    return left > 0 && each > 0 ? (int64_t)floor(left / each) : 0;
}
