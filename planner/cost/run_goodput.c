#include "planner/cost/run_goodput.h"

#include <math.h>

/* What a stage's ranks save: `whole` by the first of the data axis, `divided` by all of it. */
typedef struct SavedParts {
    double whole, divided;           /* bytes of a stage */
    double whole_ranks, shard_ranks; /* that write them */
} SavedParts;

static SavedParts saved_parts(const ModelCosts *costs, const Candidate *of, bool divides_masters) {
    double weights = (double)costs->saved_weight_bytes / of->p;
    double states = (double)costs->saved_state_bytes / of->p;
    bool weights_divided = of->zero >= 3 || (of->zero >= 1 && divides_masters);
    SavedParts parts = {.whole_ranks = of->t * (costs->n_experts > 0 ? candidate_e(of) : 1),
                        .shard_ranks = of->t * candidate_replicas(of)};
    *(weights_divided ? &parts.divided : &parts.whole) += weights;
    *(of->zero >= 1 ? &parts.divided : &parts.whole) += states;
    return parts;
}

/* Of the node that writes most; t is innermost, so the first ranks of a stage share nodes. */
static double node_bytes(const Cluster *cluster, const Candidate *of, const SavedParts *parts) {
    Placement place = candidate_placement(cluster, of);
    double n = place.n_per_node, width = placement_width(&place);
    if (width <= n) {
        double stages = fmin(of->p, floor(n / width));
        return stages * (parts->whole + parts->divided);
    }
    return parts->whole * fmin(1, n / parts->whole_ranks) +
           parts->divided * fmin(1, n / parts->shard_ranks);
}

/* Of all nodes of the run. */
static double storage_rate(const Cluster *cluster, double n_nodes) {
    const ClusterStorage *storage = &cluster->storage;
    if (storage->bytes_per_second <= 0) return INFINITY;
    double units = storage->n_nodes > 0 ? ceil(n_nodes / storage->n_nodes) : 1;
    return storage->bytes_per_second * units;
}

static double node_rate(const Cluster *cluster) {
    const ClusterNetwork *network = &cluster->network;
    if (cluster->storage.node_bytes_per_second > 0) return cluster->storage.node_bytes_per_second;
    if (network->n_nics <= 0) return INFINITY;
    return network->n_nics * network->nic_bytes_per_second * network->nic_fraction;
}

double checkpoint_write_seconds(const ModelCosts *costs, const Candidate *of,
                                bool divides_masters) {
    const Cluster *cluster = costs->cluster;
    const ClusterStorage *storage = &cluster->storage;
    if (storage->bytes_per_second <= 0 && storage->node_bytes_per_second <= 0) return 0;
    Placement place = candidate_placement(cluster, of);
    double n_nodes = ceil((double)placement_width(&place) * of->p / place.n_per_node);
    SavedParts parts = saved_parts(costs, of, divides_masters);
    double all = (double)(costs->saved_weight_bytes + costs->saved_state_bytes);
    return fmax(all / storage_rate(cluster, n_nodes),
                node_bytes(cluster, of, &parts) / node_rate(cluster));
}

double checkpoint_copy_seconds(const ModelCosts *costs, const Candidate *of, bool divides_masters) {
    const Cluster *cluster = costs->cluster;
    double rate = cluster->node.host_bytes_per_second * cluster->node.host_fraction;
    if (cluster->is_cpu) { /* in the same memory, read and written */
        rate = cluster->device.memory_bytes_per_second * cluster->device.memory_fraction / 2;
    }
    SavedParts parts = saved_parts(costs, of, divides_masters);
    if (rate <= 0) return 0;
    return (parts.whole / parts.whole_ranks + parts.divided / parts.shard_ranks) / rate;
}

/* The seconds that a checkpoint takes. False: not known. */
static bool time_checkpoint(const ModelCosts *costs, const Candidate *of, bool divides_masters,
                            const FailureChoice *choice, RunGoodput *out) {
    double copy = checkpoint_copy_seconds(costs, of, divides_masters);
    double write = choice->has_write ? choice->write_seconds
                                     : checkpoint_write_seconds(costs, of, divides_masters);
    out->state = GOODPUT_NO_STORAGE;
    if (!choice->has_write && write <= 0) return false;
    out->state = GOODPUT_NO_COPY;
    if (choice->async && copy <= 0) return false;
    if (choice->async) {
        out->input.pause_seconds = copy;
        out->input.write_seconds = write;
    } else {
        out->input.pause_seconds = write + (choice->has_write ? 0 : copy);
    }
    return true;
}

RunGoodput run_goodput(const ModelCosts *costs, const Candidate *of, bool divides_masters,
                       double step_seconds, double n_steps, const FailureChoice *choice) {
    static const FailureChoice NOTHING;
    if (!choice) choice = &NOTHING;
    const ClusterFailures *failures = &costs->cluster->failures;
    Placement place = candidate_placement(costs->cluster, of);
    double n_ranks = (double)placement_width(&place) * of->p;
    double hours = choice->has_mtbf ? choice->device_mtbf_hours : failures->device_mtbf_hours;
    double minutes = choice->has_restart ? choice->restart_minutes : failures->restart_minutes;
    RunGoodput out = {.state = choice->has_mtbf ? GOODPUT_UNASKED : GOODPUT_NONE,
                      .share = 1,
                      .checkpoint_bytes =
                          (double)(costs->saved_weight_bytes + costs->saved_state_bytes)};
    if (hours <= 0 || !time_checkpoint(costs, of, divides_masters, choice, &out)) return out;
    out.input.mtbf_seconds = hours * 3600 / n_ranks;
    out.input.step_seconds = step_seconds;
    out.input.restart_seconds = minutes * 60;
    out.input.n_steps = n_steps;
    out.goodput = goodput_of(&out.input);
    out.share = out.goodput.share;
    out.state = out.goodput.hopeless ? GOODPUT_HOPELESS : GOODPUT_KNOWN;
    return out;
}
