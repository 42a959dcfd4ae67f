#include "planner/cost/stage_weights.h"

#include "planner/plan/zero.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

void stage_weights_add(StageWeights *sum, const SegmentCost *segment, int count, bool is_block) {
    sum->n_weights += count * segment->n_weights;
    sum->n_parameters += count * segment->n_parameters;
    sum->parameter_bytes += count * segment->parameter_bytes;
    sum->gradient_bytes += count * segment->gradient_bytes;
    sum->optimizer_bytes += count * segment->optimizer_bytes;
    sum->n_whole += count * segment->n_whole;
    sum->whole_bytes += count * segment->whole_bytes;
    if (count <= 0) return;
    sum->largest = larger(sum->largest, segment->largest_weight);
    if (!is_block) return;
    sum->largest_in_block = larger(sum->largest_in_block, segment->largest_weight);
}

void stage_weights_join(StageWeights *sum, const StageWeights *other) {
    sum->n_weights += other->n_weights;
    sum->n_parameters += other->n_parameters;
    sum->parameter_bytes += other->parameter_bytes;
    sum->gradient_bytes += other->gradient_bytes;
    sum->optimizer_bytes += other->optimizer_bytes;
    sum->n_whole += other->n_whole;
    sum->whole_bytes += other->whole_bytes;
    sum->largest = larger(sum->largest, other->largest);
    sum->largest_in_block = larger(sum->largest_in_block, other->largest_in_block);
}

/* `whole` of the bytes are never divided. */
static int64_t part_of(int64_t bytes, int64_t whole, bool divided, int d) {
    return divided ? whole + (bytes - whole + d - 1) / d : bytes;
}

/* Of bytes that all parameters have alike, those of what is never divided. */
static int64_t whole_of(const StageWeights *stage, int64_t bytes) {
    if (stage->n_whole == 0) return 0;
    return (int64_t)((double)bytes * (double)stage->n_whole / (double)stage->n_parameters);
}

int64_t stage_divided_bytes(const StageWeights *stage, int64_t bytes) {
    return bytes - whole_of(stage, bytes);
}

ReducedParameters stage_reduced_parameters(const StageWeights *stage, int zero) {
    int64_t divided = stage->n_parameters - stage->n_whole;
    if (zero == ZERO_NOTHING) return (ReducedParameters){stage->n_parameters, 0};
    return (ReducedParameters){stage->n_whole, zero == ZERO_OPTIMIZER ? divided : 0};
}

/* At once there is the largest weight, and, where messages have ZERO_LEAD times their bytes of work
 * beside them, so many and one more of those in blocks. */
static int64_t moving_parameters(const StageWeights *stage, const Cluster *cluster) {
    int64_t n = stage->largest;
    if (!cluster->is_cpu) n += (ZERO_LEAD + 1) * stage->largest_in_block;
    int64_t all = stage->n_parameters - stage->n_whole;
    return n < all ? n : all;
}

WeightBytes stage_weight_bytes(const StageWeights *stage, const Cluster *cluster, int zero, int d) {
    if (d == 1) zero = ZERO_NOTHING;
    WeightBytes bytes = {
        .parameter = part_of(stage->parameter_bytes, whole_of(stage, stage->parameter_bytes),
                             zero >= ZERO_PARAMETERS, d),
        .gradient = part_of(stage->gradient_bytes, whole_of(stage, stage->gradient_bytes),
                            zero >= ZERO_GRADIENTS, d),
        .optimizer = part_of(stage->optimizer_bytes, stage->whole_bytes, zero >= ZERO_OPTIMIZER, d),
    };
    if (zero < ZERO_GRADIENTS || stage->n_parameters == 0) return bytes;
    double moving = (double)moving_parameters(stage, cluster), n = (double)stage->n_parameters;
    bytes.moving = (int64_t)(moving / n * (double)stage->gradient_bytes);
    if (zero < ZERO_PARAMETERS) return bytes;
    bytes.moving += (int64_t)(moving / n * (double)stage->parameter_bytes);
    return bytes;
}

double exposed_us(const ClusterSoftware *software, double all_us, double ends_us, double work_us) {
    if (!software->overlaps_gradients) return all_us;
    double hidden_us = all_us - ends_us < work_us ? all_us - ends_us : work_us;
    if (hidden_us < 0) hidden_us = 0;
    return all_us - hidden_us + software->overlap_slowdown * hidden_us;
}

TaskData task_data_us(const Cluster *cluster, const CollectiveGroup *group, int zero,
                      const StageWeights *chunk, double forward_us, double backward_us,
                      double weights_us) {
    TaskData data = {0, 0, 0};
    if (zero < ZERO_GRADIENTS || group->n_ranks < 2 || chunk->n_weights == 0) return data;
    const ClusterSoftware *software = &cluster->software;
    double n = chunk->n_weights, gather_us = 0;
    double n_divided = (double)(chunk->n_parameters - chunk->n_whole);
    double gradient_bytes = n_divided * software->gradient_bytes;
    double reduce_us = collective_us(cluster, COLLECTIVE_REDUCE_SCATTER, gradient_bytes / n, group);
    if (zero >= ZERO_PARAMETERS) {
        double bytes = (double)stage_divided_bytes(chunk, chunk->parameter_bytes) / n;
        gather_us = collective_us(cluster, COLLECTIVE_ALL_GATHER, bytes, group);
        data.forward_us = exposed_us(software, n * gather_us, gather_us, forward_us);
    }
    if (weights_us > 0) {
        data.backward_us = exposed_us(software, n * gather_us, gather_us, backward_us);
        data.weights_us = exposed_us(software, n * reduce_us, reduce_us, weights_us);
        return data;
    }
    double ends_us = gather_us + reduce_us;
    data.backward_us = exposed_us(software, n * ends_us, ends_us, backward_us);
    return data;
}
