#include "planner/cost/stage_weights.h"

#include "planner/plan/zero.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void add_experts(ExpertWeights *sum, const ExpertWeights *other, int count) {
    sum->n_weights += count * other->n_weights;
    sum->n_frozen += count * other->n_frozen;
    sum->frozen_bytes += count * other->frozen_bytes;
    sum->n_parameters += count * other->n_parameters;
    sum->parameter_bytes += count * other->parameter_bytes;
    sum->gradient_bytes += count * other->gradient_bytes;
    sum->optimizer_bytes += count * other->optimizer_bytes;
}

StageWeights stage_weights_part(const StageWeights *stage, bool experts) {
    const ExpertWeights *of = &stage->experts;
    StageWeights part = {.n_weights = of->n_weights,
                         .n_frozen = of->n_frozen,
                         .frozen_bytes = of->frozen_bytes,
                         .n_parameters = of->n_parameters,
                         .parameter_bytes = of->parameter_bytes,
                         .gradient_bytes = of->gradient_bytes,
                         .optimizer_bytes = of->optimizer_bytes,
                         .largest = stage->largest,
                         .largest_in_block = stage->largest_in_block,
                         .largest_frozen = stage->largest_frozen,
                         .largest_frozen_in_block = stage->largest_frozen_in_block};
    if (experts) return part;
    part.n_weights = stage->n_weights - part.n_weights;
    part.n_frozen = stage->n_frozen - part.n_frozen;
    part.frozen_bytes = stage->frozen_bytes - part.frozen_bytes;
    part.n_parameters = stage->n_parameters - part.n_parameters;
    part.parameter_bytes = stage->parameter_bytes - part.parameter_bytes;
    part.gradient_bytes = stage->gradient_bytes - part.gradient_bytes;
    part.optimizer_bytes = stage->optimizer_bytes - part.optimizer_bytes;
    return part;
}

void stage_weights_add(StageWeights *sum, const SegmentCost *segment, int count, bool is_block) {
    sum->n_weights += count * segment->n_weights;
    sum->n_frozen += count * segment->n_frozen;
    sum->frozen_bytes += count * segment->frozen_bytes;
    sum->n_parameters += count * segment->n_parameters;
    sum->parameter_bytes += count * segment->parameter_bytes;
    sum->gradient_bytes += count * segment->gradient_bytes;
    sum->optimizer_bytes += count * segment->optimizer_bytes;
    add_experts(&sum->experts, &segment->experts, count);
    if (count <= 0) return;
    sum->largest = larger(sum->largest, segment->largest_weight);
    sum->largest_frozen = larger(sum->largest_frozen, segment->largest_frozen);
    if (!is_block) return;
    sum->largest_frozen_in_block = larger(sum->largest_frozen_in_block, segment->largest_frozen);
    sum->largest_in_block = larger(sum->largest_in_block, segment->largest_weight);
}

void stage_weights_join(StageWeights *sum, const StageWeights *other) {
    sum->n_weights += other->n_weights;
    sum->n_frozen += other->n_frozen;
    sum->frozen_bytes += other->frozen_bytes;
    sum->n_parameters += other->n_parameters;
    sum->parameter_bytes += other->parameter_bytes;
    sum->gradient_bytes += other->gradient_bytes;
    sum->optimizer_bytes += other->optimizer_bytes;
    add_experts(&sum->experts, &other->experts, 1);
    sum->largest = larger(sum->largest, other->largest);
    sum->largest_in_block = larger(sum->largest_in_block, other->largest_in_block);
    sum->largest_frozen = larger(sum->largest_frozen, other->largest_frozen);
    sum->largest_frozen_in_block =
        larger(sum->largest_frozen_in_block, other->largest_frozen_in_block);
}

static int64_t part_of(int64_t bytes, bool divided, int d) {
    return divided ? (bytes + d - 1) / d : bytes;
}

ReducedParameters stage_reduced_parameters(const StageWeights *stage, int zero) {
    if (zero == ZERO_NOTHING) return (ReducedParameters){stage->n_parameters, 0};
    return (ReducedParameters){0, zero == ZERO_OPTIMIZER ? stage->n_parameters : 0};
}

/* At once there is the largest weight, and, where messages have ZERO_LEAD times their bytes of work
 * beside them, so many and one more of those in blocks. */
static int64_t moving_parameters(const StageWeights *stage, const Cluster *cluster) {
    int64_t n = stage->largest;
    if (!cluster->is_cpu) n += (ZERO_LEAD + 1) * stage->largest_in_block;
    return n < stage->n_parameters ? n : stage->n_parameters;
}

/* Likewise, of frozen ones. */
static int64_t moving_frozen_bytes(const StageWeights *stage, const Cluster *cluster) {
    int64_t bytes = stage->largest_frozen;
    if (!cluster->is_cpu) bytes += (ZERO_LEAD + 1) * stage->largest_frozen_in_block;
    return bytes < stage->frozen_bytes ? bytes : stage->frozen_bytes;
}

/* Of parameters that d ranks have alike. */
static WeightBytes kept_bytes(const StageWeights *part, int zero, int d) {
    if (d == 1) zero = ZERO_NOTHING;
    return (WeightBytes){
        .parameter = part_of(part->parameter_bytes, zero >= ZERO_PARAMETERS, d) +
                     part_of(part->frozen_bytes, zero >= ZERO_PARAMETERS, d),
        .gradient = part_of(part->gradient_bytes, zero >= ZERO_GRADIENTS, d),
        .optimizer = part_of(part->optimizer_bytes, zero >= ZERO_OPTIMIZER, d),
    };
}

WeightBytes stage_weight_bytes(const StageWeights *stage, const Cluster *cluster, int zero,
                               Replicas replicas) {
    const StageWeights experts = stage_weights_part(stage, true);
    const StageWeights others = stage_weights_part(stage, false);
    WeightBytes bytes = kept_bytes(&others, zero, replicas.others);
    WeightBytes more = kept_bytes(&experts, zero, replicas.experts);
    bytes.parameter += more.parameter;
    bytes.gradient += more.gradient;
    bytes.optimizer += more.optimizer;
    const StageWeights *moves = replicas.experts > 1 ? stage : &others;
    if (replicas.others == 1 || zero < ZERO_GRADIENTS) return bytes;
    double moving = (double)moving_parameters(moves, cluster), n = (double)moves->n_parameters;
    double share = moving > 0 ? moving / n : 0;
    bytes.moving = (int64_t)(share * (double)moves->gradient_bytes);
    if (zero < ZERO_PARAMETERS) return bytes;
    int64_t trained = (int64_t)(share * (double)moves->parameter_bytes);
    bytes.moving += larger(trained, moving_frozen_bytes(moves, cluster));
    return bytes;
}

double exposed_us(const ClusterSoftware *software, double all_us, double ends_us, double work_us) {
    if (!software->overlaps_gradients) return all_us;
    double hidden_us = all_us - ends_us < work_us ? all_us - ends_us : work_us;
    if (hidden_us < 0) hidden_us = 0;
    return all_us - hidden_us + software->overlap_slowdown * hidden_us;
}

/* Messages of a chunk's weights, or of their gradients: of one, and of all. */
typedef struct WeightTimes {
    double gather_us, reduce_us, all_gather_us, all_reduce_us;
} WeightTimes;

static WeightTimes weight_times(const Cluster *cluster, const CollectiveGroup *group, int zero,
                                const StageWeights *part) {
    WeightTimes times = {0};
    double n = part->n_weights, n_all = part->n_weights + part->n_frozen;
    if (group->n_ranks < 2 || n_all == 0) return times;
    if (n > 0) {
        double bytes = (double)part->n_parameters * cluster->software.gradient_bytes / n;
        times.reduce_us = collective_us(cluster, COLLECTIVE_REDUCE_SCATTER, bytes, group);
        times.all_reduce_us = n * times.reduce_us;
    }
    if (zero < ZERO_PARAMETERS) return times;
    double bytes = (double)(part->parameter_bytes + part->frozen_bytes);
    times.gather_us = collective_us(cluster, COLLECTIVE_ALL_GATHER, bytes / n_all, group);
    times.all_gather_us = n_all * times.gather_us;
    return times;
}

TaskData task_data_us(const Cluster *cluster, const CollectiveGroup groups[2], bool sums_experts,
                      int zero, const StageWeights *chunk, double forward_us, double backward_us,
                      double weights_us) {
    TaskData data = {0, 0, 0};
    if (zero < ZERO_GRADIENTS) return data;
    const ClusterSoftware *software = &cluster->software;
    const StageWeights others = stage_weights_part(chunk, false);
    const StageWeights experts = stage_weights_part(chunk, true);
    WeightTimes times = weight_times(cluster, &groups[0], zero, &others);
    WeightTimes more = weight_times(cluster, &groups[1], zero, &experts);
    if (!sums_experts) more.reduce_us = more.all_reduce_us = 0;
    double gathers_us = times.all_gather_us + more.all_gather_us;
    double reduces_us = times.all_reduce_us + more.all_reduce_us;
    double gather_us = times.gather_us > 0 ? times.gather_us : more.gather_us;
    double reduce_us = times.reduce_us > 0 ? times.reduce_us : more.reduce_us;
    if (zero >= ZERO_PARAMETERS) {
        data.forward_us = exposed_us(software, gathers_us, gather_us, forward_us);
    }
    if (weights_us > 0) {
        data.backward_us = exposed_us(software, gathers_us, gather_us, backward_us);
        data.weights_us = exposed_us(software, reduces_us, reduce_us, weights_us);
        return data;
    }
    data.backward_us =
        exposed_us(software, gathers_us + reduces_us, gather_us + reduce_us, backward_us);
    return data;
}
