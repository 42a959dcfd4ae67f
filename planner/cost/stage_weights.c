#include "planner/cost/stage_weights.h"

#include "ir/message_group.h"
#include "planner/cost/device_time.h"
#include "planner/plan/update_groups.h"
#include "planner/plan/zero.h"

#include <math.h>

enum { SMALL_BYTES = 1 << 14 }; /* of a gain's or a bias's gradient: its latency counts */

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void add_experts(ExpertWeights *sum, const ExpertWeights *other, int count) {
    sum->n_weights += count * other->n_weights;
    sum->n_small += count * other->n_small;
    sum->n_frozen += count * other->n_frozen;
    sum->frozen_bytes += count * other->frozen_bytes;
    sum->n_parameters += count * other->n_parameters;
    sum->parameter_bytes += count * other->parameter_bytes;
    sum->gradient_bytes += count * other->gradient_bytes;
    sum->low_gradients += count * other->low_gradients;
    sum->upper_bytes += count * other->upper_bytes;
    sum->optimizer_bytes += count * other->optimizer_bytes;
    sum->offloaded_bytes += count * other->offloaded_bytes;
}

StageWeights stage_weights_part(const StageWeights *stage, bool experts) {
    const ExpertWeights *of = &stage->experts;
    StageWeights part = {.n_weights = of->n_weights,
                         .n_small = of->n_small,
                         .n_frozen = of->n_frozen,
                         .frozen_bytes = of->frozen_bytes,
                         .n_parameters = of->n_parameters,
                         .parameter_bytes = of->parameter_bytes,
                         .gradient_bytes = of->gradient_bytes,
                         .low_gradients = of->low_gradients,
                         .upper_bytes = of->upper_bytes,
                         .optimizer_bytes = of->optimizer_bytes,
                         .offloaded_bytes = of->offloaded_bytes,
                         .largest = stage->largest,
                         .largest_in_block = stage->largest_in_block,
                         .largest_frozen = stage->largest_frozen,
                         .largest_frozen_in_block = stage->largest_frozen_in_block,
                         .n_blocks = of->n_weights + of->n_frozen > 0 ? stage->n_blocks : 0,
                         .n_in_blocks = of->n_weights,
                         .n_frozen_in_blocks = of->n_frozen,
                         .block_parameters = of->n_parameters,
                         .block_bytes = of->parameter_bytes + of->frozen_bytes,
                         .block_low_gradients = of->low_gradients,
                         .largest_block = stage->largest_block,
                         .largest_frozen_block = stage->largest_frozen_block};
    if (experts) return part;
    part.n_blocks = stage->n_blocks;
    part.n_in_blocks = stage->n_in_blocks - part.n_in_blocks;
    part.n_frozen_in_blocks = stage->n_frozen_in_blocks - part.n_frozen_in_blocks;
    part.block_parameters = stage->block_parameters - part.block_parameters;
    part.block_bytes = stage->block_bytes - part.block_bytes;
    part.block_low_gradients = stage->block_low_gradients - part.block_low_gradients;
    part.low_gradients = stage->low_gradients - part.low_gradients;
    part.upper_bytes = stage->upper_bytes - part.upper_bytes;
    part.n_weights = stage->n_weights - part.n_weights;
    part.n_small = stage->n_small - part.n_small;
    part.n_frozen = stage->n_frozen - part.n_frozen;
    part.frozen_bytes = stage->frozen_bytes - part.frozen_bytes;
    part.n_parameters = stage->n_parameters - part.n_parameters;
    part.parameter_bytes = stage->parameter_bytes - part.parameter_bytes;
    part.gradient_bytes = stage->gradient_bytes - part.gradient_bytes;
    part.optimizer_bytes = stage->optimizer_bytes - part.optimizer_bytes;
    part.offloaded_bytes = stage->offloaded_bytes - part.offloaded_bytes;
    return part;
}

void stage_weights_add(StageWeights *sum, const SegmentCost *segment, int count, bool is_block) {
    for (int i = 0; i < WEIGHT_SHAPES; i++) sum->of_shape[i] += count * segment->of_shape[i];
    sum->n_weights += count * segment->n_weights;
    sum->n_small += count * segment->n_small;
    sum->n_tensor += count * segment->n_tensor;
    sum->n_frozen += count * segment->n_frozen;
    sum->frozen_bytes += count * segment->frozen_bytes;
    sum->n_parameters += count * segment->n_parameters;
    sum->parameter_bytes += count * segment->parameter_bytes;
    sum->gradient_bytes += count * segment->gradient_bytes;
    sum->low_gradients += count * segment->low_gradients;
    sum->upper_bytes += count * segment->upper_bytes;
    sum->optimizer_bytes += count * segment->optimizer_bytes;
    sum->offloaded_bytes += count * segment->offloaded_bytes;
    add_experts(&sum->experts, &segment->experts, count);
    if (is_block) {
        sum->n_blocks += count;
        sum->n_in_blocks += count * segment->n_weights;
        sum->n_frozen_in_blocks += count * segment->n_frozen;
        sum->block_parameters += count * segment->n_parameters;
        sum->block_bytes += count * (segment->parameter_bytes + segment->frozen_bytes);
        sum->block_low_gradients += count * segment->low_gradients;
    }
    if (count <= 0) return;
    sum->largest = larger(sum->largest, segment->largest_weight);
    sum->largest_frozen = larger(sum->largest_frozen, segment->largest_frozen);
    if (!is_block) return;
    sum->largest_frozen_in_block = larger(sum->largest_frozen_in_block, segment->largest_frozen);
    sum->largest_in_block = larger(sum->largest_in_block, segment->largest_weight);
    sum->largest_block = larger(sum->largest_block, segment->n_parameters);
    sum->largest_frozen_block = larger(sum->largest_frozen_block, segment->frozen_bytes);
}

void stage_weights_join(StageWeights *sum, const StageWeights *other) {
    for (int i = 0; i < WEIGHT_SHAPES; i++) sum->of_shape[i] += other->of_shape[i];
    sum->n_weights += other->n_weights;
    sum->n_small += other->n_small;
    sum->n_tensor += other->n_tensor;
    sum->n_frozen += other->n_frozen;
    sum->frozen_bytes += other->frozen_bytes;
    sum->n_parameters += other->n_parameters;
    sum->parameter_bytes += other->parameter_bytes;
    sum->gradient_bytes += other->gradient_bytes;
    sum->low_gradients += other->low_gradients;
    sum->upper_bytes += other->upper_bytes;
    sum->optimizer_bytes += other->optimizer_bytes;
    sum->offloaded_bytes += other->offloaded_bytes;
    add_experts(&sum->experts, &other->experts, 1);
    sum->largest = larger(sum->largest, other->largest);
    sum->largest_in_block = larger(sum->largest_in_block, other->largest_in_block);
    sum->largest_frozen = larger(sum->largest_frozen, other->largest_frozen);
    sum->largest_frozen_in_block =
        larger(sum->largest_frozen_in_block, other->largest_frozen_in_block);
    sum->n_blocks += other->n_blocks;
    sum->n_in_blocks += other->n_in_blocks;
    sum->n_frozen_in_blocks += other->n_frozen_in_blocks;
    sum->block_parameters += other->block_parameters;
    sum->block_bytes += other->block_bytes;
    sum->block_low_gradients += other->block_low_gradients;
    sum->largest_block = larger(sum->largest_block, other->largest_block);
    sum->largest_frozen_block = larger(sum->largest_frozen_block, other->largest_frozen_block);
}

static int64_t part_of(int64_t bytes, bool divided, int d) {
    return divided ? (bytes + d - 1) / d : bytes;
}

double gradient_message_bytes(const ClusterSoftware *software, int64_t n_parameters, int64_t low) {
    double less = software->gradient_bytes - dtype_bytes(DTYPE_BF16);
    return (double)n_parameters * software->gradient_bytes - (less > 0 ? less * (double)low : 0);
}

/* So many tensors of so many bytes together; squares: the sum of each one's bytes squared. */
typedef struct Tensors {
    int n;
    double bytes, squares;
} Tensors;

/* Adds one message each, or groups of `full` bytes, give or take what a tensor makes of it. */
static void add_groups(StageMessages *list, const Cluster *cluster, CollectiveKind kind, Tensors of,
                       double limit, double full) {
    if (of.n < 1) return;
    double count = of.n;
    int least = (of.n + MESSAGE_GROUP_MOST - 1) / MESSAGE_GROUP_MOST;
    bool groups = !cluster->is_cpu && of.bytes / of.n < limit;
    if (groups) count = fmin(of.n, fmax(least, ceil(of.bytes / full)));
    list->of[list->n++] = (StageMessage){kind, (int)count, of.bytes / count, of.n};
}

/* Groups of the update: one that is full lacks a quarter of a tensor (the largest fill most). */
static void add_messages(StageMessages *list, const Cluster *cluster, CollectiveKind kind,
                         Tensors of, int n_ranks) {
    double most = (double)update_group_bytes(n_ranks), each = of.n > 0 ? of.bytes / of.n : 0;
    add_groups(list, cluster, kind, of, most / 2, most - each / 4);
}

/* Groups beside the forward, which end with the tensor that makes them full: on average half of
 * one is too much, where tensors count by their bytes. */
static void add_gathers(StageMessages *list, const Cluster *cluster, Tensors of, int n_ranks) {
    double enough = (double)weight_group_bytes(n_ranks);
    double more = of.bytes > 0 ? of.squares / of.bytes / 2 : 0;
    add_groups(list, cluster, COLLECTIVE_ALL_GATHER, of, enough, enough + more);
}

/* What messages are made of: of experts' weights, or all others'. */
typedef struct Part {
    int n_weights, n_small;
    double n_parameters, low, weight_bytes;
} Part;

static Part part_of_stage(const StageWeights *stage, bool experts) {
    const ExpertWeights *of = &stage->experts;
    if (experts) {
        return (Part){of->n_weights, of->n_small, (double)of->n_parameters,
                      (double)of->low_gradients, (double)of->parameter_bytes};
    }
    return (Part){stage->n_weights - of->n_weights, stage->n_small - of->n_small,
                  (double)(stage->n_parameters - of->n_parameters),
                  (double)(stage->low_gradients - of->low_gradients),
                  (double)(stage->parameter_bytes - of->parameter_bytes)};
}

/* Of the part's weights those of which an axis is divided, or none; that are larger than a group,
 * or are not. Those whose shape is not known are small, and as ZeRO has most. */
static Tensors count_tensors(const StageWeights *stage, const Part *part, const ZeroChoice *zero,
                             bool experts, bool whole, double each, double group_bytes,
                             Tensors *out_large) {
    Tensors small = {0, 0, 0}, known = small;
    *out_large = small;
    for (int i = 0; i < zero->n_shapes; i++) {
        double elements = (double)zero->elements[i], here = (double)stage->of_shape[i];
        bool stays = zero->stage == ZERO_NOTHING || zero->share[i] >= 1;
        if (elements <= 0 || (zero->experts >> i & 1) != experts) continue;
        Tensors of = {(int)(here / elements + 0.5), here * each, here * elements * each * each};
        known.n += of.n, known.bytes += of.bytes;
        if (stays != whole) continue;
        Tensors *to = elements * each > group_bytes ? out_large : &small;
        to->n += of.n, to->bytes += of.bytes, to->squares += of.squares;
    }
    bool has_rest = whole == (zero->stage == ZERO_NOTHING) && part->n_weights > known.n;
    if (!has_rest) return small;
    small.n += part->n_weights - known.n;
    small.bytes += fmax(0, part->n_parameters * each - known.bytes);
    return small;
}

/* The same by what a group of the update has room for: beside a large one there is none for another
 * of average size. */
static Tensors count_joined(const StageWeights *stage, const Part *part, const ZeroChoice *zero,
                            bool experts, bool whole, double each, int n_ranks,
                            Tensors *out_large) {
    double most = (double)update_group_bytes(n_ranks);
    Tensors small = count_tensors(stage, part, zero, experts, whole, each, most / 2, out_large);
    if (small.n == 0) return small;
    double room = most - small.bytes / small.n;
    return count_tensors(stage, part, zero, experts, whole, each, room, out_large);
}

/* But for those that the ranks divide no axis of, which have no shards. */
static StageWeights divided_weights(const StageWeights *stage, const ZeroChoice *zero,
                                    bool experts) {
    StageWeights part = stage_weights_part(stage, experts);
    const Part all = part_of_stage(stage, experts);
    Tensors whole, none = count_tensors(stage, &all, zero, experts, true, 1, 0, &whole);
    int n = whole.n + none.n;
    if (n == 0 || part.n_parameters <= 0) return part;
    double share = fmax(0, 1 - whole.bytes / (double)part.n_parameters);
    part.n_weights = part.n_weights > n ? part.n_weights - n : 0;
    part.n_in_blocks = part.n_in_blocks > n ? part.n_in_blocks - n : 0;
    part.n_parameters = (int64_t)(share * (double)part.n_parameters);
    part.parameter_bytes = (int64_t)(share * (double)part.parameter_bytes);
    part.low_gradients = (int64_t)(share * (double)part.low_gradients);
    part.block_parameters = (int64_t)(share * (double)part.block_parameters);
    part.block_bytes = (int64_t)(share * (double)part.block_bytes);
    part.block_low_gradients = (int64_t)(share * (double)part.block_low_gradients);
    return part;
}

static double reduced_bytes(const Part *part, const Cluster *cluster, const ZeroChoice *zero) {
    return gradient_message_bytes(&cluster->software, (int64_t)part->n_parameters,
                                  zero->one_micro ? (int64_t)part->low : 0);
}

/* All gradients as one. */
static StageMessages one_reduction(const Part *part, const Cluster *cluster,
                                   const ZeroChoice *zero) {
    StageMessages list = {0};
    bool sends = zero->stage < ZERO_GRADIENTS && part->n_parameters > 0;
    CollectiveKind kind = zero->stage ? COLLECTIVE_REDUCE_SCATTER : COLLECTIVE_ALL_REDUCE;
    Tensors all = {.n = 1, .bytes = reduced_bytes(part, cluster, zero)};
    if (sends) list.of[list.n++] = (StageMessage){kind, 1, all.bytes, 1};
    return list;
}

StageMessages stage_reductions(const StageWeights *stage, bool experts, const Cluster *cluster,
                               const ZeroChoice *zero, int n_ranks) {
    StageMessages list = {0};
    const Part part = part_of_stage(stage, experts);
    if (!cluster->software.separate_messages) return one_reduction(&part, cluster, zero);
    if (part.n_parameters <= 0) return list;
    double each = reduced_bytes(&part, cluster, zero) / part.n_parameters;
    Tensors large, small;
    if (zero->stage == ZERO_OPTIMIZER) {
        small = count_joined(stage, &part, zero, experts, false, each, n_ranks, &large);
        add_messages(&list, cluster, COLLECTIVE_REDUCE_SCATTER, large, n_ranks);
        add_messages(&list, cluster, COLLECTIVE_REDUCE_SCATTER, small, n_ranks);
    }
    small = count_joined(stage, &part, zero, experts, true, each, n_ranks, &large);
    small.n += part.n_small, small.bytes += part.n_small * SMALL_BYTES;
    add_messages(&list, cluster, COLLECTIVE_ALL_REDUCE, large, n_ranks);
    add_messages(&list, cluster, COLLECTIVE_ALL_REDUCE, small, n_ranks);
    return list;
}

StageMessages stage_gathers(const StageWeights *stage, bool experts, const Cluster *cluster,
                            const ZeroChoice *zero, int n_ranks) {
    StageMessages list = {0};
    const Part part = part_of_stage(stage, experts);
    if (part.n_parameters <= 0) return list;
    if (!cluster->software.separate_messages) {
        list.of[list.n++] = (StageMessage){COLLECTIVE_ALL_GATHER, 1, part.weight_bytes, 1};
        return list;
    }
    double each = part.weight_bytes / part.n_parameters;
    Tensors large, small;
    if (stage_gathers_early(stage, &cluster->software)) {
        double enough = (double)weight_group_bytes(n_ranks);
        small = count_tensors(stage, &part, zero, experts, false, each, enough, &large);
        add_gathers(&list, cluster, large, n_ranks);
        add_gathers(&list, cluster, small, n_ranks);
        return list;
    }
    small = count_joined(stage, &part, zero, experts, false, each, n_ranks, &large);
    add_messages(&list, cluster, COLLECTIVE_ALL_GATHER, large, n_ranks);
    add_messages(&list, cluster, COLLECTIVE_ALL_GATHER, small, n_ranks);
    return list;
}

StageMessages stage_replica_sums(const StageWeights *stage, const Cluster *cluster,
                                 const ZeroChoice *zero, double share, int n_ranks) {
    StageMessages list = {0};
    const bool apart = cluster->software.separate_messages;
    int64_t low = zero->one_micro ? stage->low_gradients : 0;
    double whole = gradient_message_bytes(&cluster->software, stage->n_parameters, low);
    Tensors all = {.n = stage->n_parameters > 0, .bytes = share * whole};
    if (apart) all.n = stage->n_weights + stage->n_small;
    add_messages(&list, cluster, COLLECTIVE_ALL_REDUCE, all, n_ranks);
    return list;
}

StageMessages stage_tensor_sums(const StageWeights *stage, const Cluster *cluster, int t) {
    StageMessages list = {0};
    Tensors all = {.n = stage->n_tensor, .bytes = stage->n_tensor * SMALL_BYTES};
    add_messages(&list, cluster, COLLECTIVE_ALL_REDUCE, all, t);
    return list;
}

double stage_message_us(const Cluster *cluster, const StageMessage *message,
                        const CollectiveGroup *group) {
    int n_joined = (message->n_tensors + message->count - 1) / message->count;
    return collective_group_us(cluster, message->kind, message->bytes, n_joined, group);
}

/* At once there is the largest weight, and, where messages have ZERO_LEAD times their bytes of work
 * beside them, so many and one more of those in blocks; where a block's are one, a block beside it
 * or another. */
static int64_t moving_parameters(const StageWeights *stage, const Cluster *cluster, bool joins) {
    int64_t n = stage->largest, block = stage->largest_block;
    if (!cluster->is_cpu)
        n = joins ? larger(n, block) + block : n + (ZERO_LEAD + 1) * stage->largest_in_block;
    return n < stage->n_parameters ? n : stage->n_parameters;
}

/* Likewise, of frozen ones. */
static int64_t moving_frozen_bytes(const StageWeights *stage, const Cluster *cluster, bool joins) {
    int64_t bytes = stage->largest_frozen, block = stage->largest_frozen_block;
    if (!cluster->is_cpu)
        bytes = joins ? larger(bytes, block) + block
                      : bytes + (ZERO_LEAD + 1) * stage->largest_frozen_in_block;
    return bytes < stage->frozen_bytes ? bytes : stage->frozen_bytes;
}

/* What a rank keeps of the part of a stage's weights that d ranks divide. */
static double kept_share(const StageWeights *stage, int64_t n_parameters, const ZeroChoice *zero,
                         bool experts, int d) {
    double kept = (double)n_parameters / d;
    for (int i = 0; i < zero->n_shapes; i++) {
        bool counts = zero->share[i] > 0 && (zero->experts >> i & 1) == experts;
        if (counts) kept += (double)stage->of_shape[i] * ((double)zero->share[i] - 1.0 / d);
    }
    return n_parameters > 0 ? kept / (double)n_parameters : 1;
}

double stage_divided_share(const StageWeights *stage, const ZeroChoice *zero, Replicas replicas) {
    double all = (double)stage->n_parameters, experts = (double)stage->experts.n_parameters;
    double others = all - experts;
    if (all <= 0) return 1;
    return (experts * kept_share(stage, stage->experts.n_parameters, zero, true, replicas.experts) +
            others * kept_share(stage, (int64_t)others, zero, false, replicas.others)) /
           all;
}

static int64_t kept_part(int64_t bytes, bool divided, double share) {
    return divided ? (int64_t)ceil(share * (double)bytes) : bytes;
}

/* Of parameters that d ranks have alike. */
static WeightBytes kept_bytes(const StageWeights *part, const ZeroChoice *choice, int d,
                              double share) {
    int zero = d == 1 ? ZERO_NOTHING : choice->stage;
    bool alike = zero == ZERO_NOTHING || zero >= ZERO_PARAMETERS; /* masters and copies */
    int64_t parameter = part->parameter_bytes - (alike ? part->upper_bytes : 0);
    return (WeightBytes){
        .parameter = kept_part(parameter, zero >= ZERO_PARAMETERS, share) +
                     part_of(part->frozen_bytes, zero >= ZERO_PARAMETERS, d),
        .gradient =
            kept_part(stage_gradient_bytes(part, choice->one_micro), zero >= ZERO_GRADIENTS, share),
        .optimizer =
            kept_part(part->optimizer_bytes - part->offloaded_bytes, zero >= ZERO_OPTIMIZER, share),
        .host = kept_part(part->offloaded_bytes, zero >= ZERO_OPTIMIZER, share),
    };
}

/* What packs the largest weight's message, or those of a group of at most so many bytes, none of
 * them of more elements than `most`; `each`: bytes of an element. */
static int64_t packing_bytes(const StageWeights *stage, const ZeroChoice *zero, double each,
                             int64_t most, double group_bytes) {
    double largest = 0, all = 0, packed = 0;
    for (int i = 0; i < zero->n_shapes; i++) {
        double elements = (double)zero->elements[i], here = (double)stage->of_shape[i];
        bool packs = zero->packs >> i & 1;
        if (elements <= 0 || here <= 0) continue;
        if (packs && elements > largest) largest = elements;
        if (zero->elements[i] > most) continue;
        all += here;
        packed += packs ? here : 0;
    }
    double group = all > 0 ? fmin(group_bytes, all * each) * packed / all : 0;
    return (int64_t)fmax(group, largest * each);
}

static int64_t workspace_bytes(const StageWeights *stage, const Cluster *cluster,
                               const ZeroChoice *zero, int n_ranks) {
    double n = (double)stage->n_parameters;
    if (cluster->is_cpu || zero->stage == ZERO_NOTHING || n <= 0) return 0;
    double gradient = (double)stage_gradient_bytes(stage, zero->one_micro) / n;
    double weight = (double)stage->parameter_bytes / n, each = fmax(gradient, weight);
    int64_t update = 0;
    if (zero_gathers_updated(zero->stage)) {
        double group_bytes = (double)update_group_bytes(n_ranks);
        double most = zero->stage == ZERO_OPTIMIZER ? each : weight;
        update = packing_bytes(stage, zero, most, (int64_t)(group_bytes / most), group_bytes);
    }
    if (zero->stage == ZERO_OPTIMIZER) return update;
    each = fmax((double)stage_gradient_bytes(stage, true) / n, weight);
    double block_bytes = zero->joins ? (double)stage->largest_block * each : 0;
    int64_t task = packing_bytes(stage, zero, each, stage->largest_in_block, block_bytes);
    return larger(update, task);
}

/* Of the first message of gradients, or group of them: later ones take the room of gradients that
 * have left (plan_memory.c). */
static int64_t first_shard_bytes(const StageWeights *stage, const Cluster *cluster,
                                 const ZeroChoice *zero, Replicas replicas) {
    const StageWeights experts = stage_weights_part(stage, true);
    bool of_experts = 2 * experts.n_parameters > stage->n_parameters;
    int d = of_experts ? replicas.experts : replicas.others;
    double all = (double)stage_gradient_bytes(stage, zero->one_micro);
    double n = (double)stage->n_parameters, group = (double)update_group_bytes(d);
    if (n <= 0 || d < 2) return 0;
    double largest = all * (double)stage->largest_in_block / n;
    return (int64_t)(fmax(cluster->is_cpu ? 0 : fmin(group, all), largest) / d);
}

WeightBytes stage_weight_bytes(const StageWeights *stage, const Cluster *cluster,
                               const ZeroChoice *zero, Replicas replicas) {
    const StageWeights experts = stage_weights_part(stage, true);
    const StageWeights others = stage_weights_part(stage, false);
    WeightBytes bytes =
        kept_bytes(&others, zero, replicas.others,
                   kept_share(stage, others.n_parameters, zero, false, replicas.others));
    WeightBytes more =
        kept_bytes(&experts, zero, replicas.experts,
                   kept_share(stage, experts.n_parameters, zero, true, replicas.experts));
    bytes.parameter += more.parameter;
    bytes.gradient += more.gradient;
    bytes.optimizer += more.optimizer;
    bytes.host += more.host;
    const StageWeights *moves = replicas.experts > 1 ? stage : &others;
    if (replicas.others == 1) return bytes;
    bytes.workspace = workspace_bytes(stage, cluster, zero, replicas.others);
    if (zero->stage == ZERO_OPTIMIZER)
        bytes.gradient += first_shard_bytes(stage, cluster, zero, replicas);
    if (zero->stage < ZERO_GRADIENTS) return bytes;
    double moving = (double)moving_parameters(moves, cluster, zero->joins),
           n = (double)moves->n_parameters;
    double share = moving > 0 ? moving / n : 0;
    double shares = (double)stage_gradient_bytes(moves, true);
    bytes.moving = (int64_t)(share * shares);
    if (zero->stage < ZERO_PARAMETERS) return bytes;
    if (zero->joins) bytes.workspace = larger(bytes.workspace, moves->largest_frozen_block);
    int64_t trained = (int64_t)(share * (double)moves->parameter_bytes);
    bytes.moving += larger(trained, moving_frozen_bytes(moves, cluster, zero->joins));
    return bytes;
}

double exposed_us(const ClusterSoftware *software, double all_us, double ends_us, double work_us) {
    if (!software->overlaps_gradients) return all_us;
    double hidden_us = all_us - ends_us < work_us ? all_us - ends_us : work_us;
    if (hidden_us < 0) hidden_us = 0;
    return all_us - hidden_us + software->overlap_slowdown * hidden_us;
}

/* Kernels of Perilune's that each move so many bytes of a share of a tensor's elements. */
static double moves_us(const Cluster *cluster, int n_tensors, double elements, double bytes_each) {
    if (n_tensors < 1 || cluster->is_cpu || !cluster->software.separate_messages) return 0;
    return n_tensors * device_memory_us(&cluster->device, elements * bytes_each / n_tensors);
}

double stage_casts_us(const StageWeights *stage, const Cluster *cluster,
                      const StageMessages *gathers, int n_ranks) {
    double us = 0, copy_bytes = (double)dtype_bytes(DTYPE_BF16);
    double optimizer = (double)stage->optimizer_bytes;
    double offloaded = optimizer > 0 ? (double)stage->offloaded_bytes / optimizer : 0;
    for (int i = 0; i < gathers->n && stage_has_copies(stage); i++) {
        const StageMessage *of = &gathers->of[i];
        double elements = of->count * of->bytes / copy_bytes / n_ranks;
        double move_us =
            moves_us(cluster, of->n_tensors, elements, dtype_bytes(DTYPE_F32) + copy_bytes);
        us += fmax(move_us, device_host_us(cluster, offloaded * elements * dtype_bytes(DTYPE_F32)));
    }
    return us;
}

/* A share, and the sum before and after. */
static double adds_us(const Cluster *cluster, const StageWeights *part, int n_ranks) {
    if (n_ranks < 2) return 0;
    double elements = (double)part->n_parameters / n_ranks;
    return moves_us(cluster, part->n_weights, elements, 3.0 * dtype_bytes(DTYPE_F32));
}

int stage_gather_pieces(const ClusterSoftware *software, int n) {
    const int as_they_are_read = 1 << 20;
    return software->separate_messages ? n : as_they_are_read;
}

double exposed_gathers_us(const ClusterSoftware *software, double all_us, int n, double forward_us,
                          double ahead_us) {
    int pieces = stage_gather_pieces(software, n);
    if (all_us <= 0) return 0;
    double first_us = all_us / pieces, work_us = forward_us - forward_us / pieces;
    double wait_us = fmax(0, fmax(first_us, all_us - work_us) - ahead_us);
    return wait_us + software->overlap_slowdown * fmax(0, all_us - ahead_us - wait_us);
}

/* Messages of a chunk's weights, or of their gradients: of one, and of all. */
typedef struct WeightTimes {
    double gather_us, reduce_us, all_gather_us, all_reduce_us;
} WeightTimes;

/* `n` messages of so many bytes together, and `n_blocks` groups of them, n_joined in all. */
typedef struct Messages {
    double n, bytes, n_blocks, n_joined, block_bytes;
} Messages;

static void price_messages(const Cluster *cluster, const CollectiveGroup *group,
                           CollectiveKind kind, Messages of, double *out_one_us,
                           double *out_all_us) {
    double n_units = of.n + of.n_blocks;
    if (of.n > 0) *out_all_us = of.n * collective_us(cluster, kind, of.bytes / of.n, group);
    if (of.n_blocks > 0) {
        int n_joined = (int)ceil(of.n_joined / of.n_blocks);
        *out_all_us +=
            of.n_blocks *
            collective_group_us(cluster, kind, of.block_bytes / of.n_blocks, n_joined, group);
    }
    if (n_units > 0) *out_one_us = *out_all_us / n_units;
}

/* The first gather and the last sum of a chunk with an end of the model are the table's, or head's.
 */
static void price_ends(const Cluster *cluster, const CollectiveGroup *group,
                       const StageWeights *part, WeightTimes *times) {
    if (part->n_weights <= part->n_in_blocks || part->n_parameters <= 0) return;
    double share = (double)part->largest / (double)part->n_parameters;
    double all = gradient_message_bytes(&cluster->software, part->n_parameters, 0);
    double gathered = share * (double)part->parameter_bytes;
    times->reduce_us = collective_us(cluster, COLLECTIVE_REDUCE_SCATTER, share * all, group);
    if (times->gather_us > 0)
        times->gather_us = collective_us(cluster, COLLECTIVE_ALL_GATHER, gathered, group);
}

static WeightTimes weight_times(const Cluster *cluster, const CollectiveGroup *group,
                                const ZeroChoice *zero, const StageWeights *part) {
    WeightTimes times = {0};
    if (group->n_ranks < 2) return times;
    bool joins = zero->joins && part->n_blocks > 0;
    const ClusterSoftware *software = &cluster->software;
    double all = gradient_message_bytes(software, part->n_parameters, part->low_gradients);
    Messages reduced = {part->n_weights, all, 0, 0, 0};
    Messages gathered = {part->n_weights + part->n_frozen,
                         (double)(part->parameter_bytes + part->frozen_bytes), 0, 0, 0};
    if (joins && part->n_in_blocks > 0) {
        double blocks =
            gradient_message_bytes(software, part->block_parameters, part->block_low_gradients);
        reduced = (Messages){part->n_weights - part->n_in_blocks, all - blocks, part->n_blocks,
                             part->n_in_blocks, blocks};
    }
    int64_t n_in_blocks = part->n_in_blocks + part->n_frozen_in_blocks;
    if (joins && n_in_blocks > 0) {
        gathered = (Messages){gathered.n - n_in_blocks, gathered.bytes - (double)part->block_bytes,
                              part->n_blocks, n_in_blocks, (double)part->block_bytes};
    }
    price_messages(cluster, group, COLLECTIVE_REDUCE_SCATTER, reduced, &times.reduce_us,
                   &times.all_reduce_us);
    if (zero->stage >= ZERO_PARAMETERS) {
        price_messages(cluster, group, COLLECTIVE_ALL_GATHER, gathered, &times.gather_us,
                       &times.all_gather_us);
    }
    if (software->separate_messages) price_ends(cluster, group, part, &times);
    return times;
}

TaskData task_data_us(const Cluster *cluster, const CollectiveGroup groups[2],
                      const ZeroChoice *zero, const StageWeights *chunk, double forward_us,
                      double backward_us, double weights_us) {
    TaskData data = {0, 0, 0};
    if (zero->stage < ZERO_GRADIENTS) return data;
    const ClusterSoftware *software = &cluster->software;
    const bool apart = software->separate_messages; /* in shards of weights: not all have some */
    const StageWeights others =
        apart ? divided_weights(chunk, zero, false) : stage_weights_part(chunk, false);
    const StageWeights experts =
        apart ? divided_weights(chunk, zero, true) : stage_weights_part(chunk, true);
    WeightTimes times = weight_times(cluster, &groups[0], zero, &others);
    WeightTimes more = weight_times(cluster, &groups[1], zero, &experts);
    if (!zero->sums_experts) more.reduce_us = more.all_reduce_us = 0;
    double gathers_us = times.all_gather_us + more.all_gather_us;
    double reduces_us = times.all_reduce_us + more.all_reduce_us;
    double gather_us = times.gather_us > 0 ? times.gather_us : more.gather_us;
    double reduce_us = times.reduce_us > 0 ? times.reduce_us : more.reduce_us;
    if (zero->stage >= ZERO_PARAMETERS) {
        data.forward_us = exposed_us(software, gathers_us, gather_us, forward_us);
    }
    double added_us = adds_us(cluster, &others, groups[0].n_ranks);
    if (zero->sums_experts) added_us += adds_us(cluster, &experts, groups[1].n_ranks);
    if (weights_us > 0) {
        data.backward_us = exposed_us(software, gathers_us, gather_us, backward_us);
        data.weights_us = added_us + exposed_us(software, reduces_us, reduce_us, weights_us);
        return data;
    }
    data.backward_us = added_us + exposed_us(software, gathers_us + reduces_us,
                                             gather_us + reduce_us, backward_us);
    return data;
}
