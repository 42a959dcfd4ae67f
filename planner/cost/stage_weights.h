/* Stage weights: what a chunk or stage has by way of parameters, and what of them a rank keeps.
 *
 * With ZeRO a rank of axis d (and c and e, but for experts) keeps 1/d of the optimizer's state
 * (stage 1), gradients (2) and weights (3); whole ones are then there only between their message
 * and the work on them (spread_messages.c).
 */
#ifndef PLANNER_COST_STAGE_WEIGHTS_H
#define PLANNER_COST_STAGE_WEIGHTS_H

#include "planner/cost/collective_time.h"
#include "planner/cost/model_cost.h"

/* Whole; counts and bytes of one rank. Without padding: compared as bytes. */
typedef struct StageWeights {
    int n_weights, n_small, n_frozen; /* each with messages of its own, or in groups */
    int n_tensor;                     /* sums of gradients over t */
    int64_t n_parameters, parameter_bytes, gradient_bytes, optimizer_bytes;
    int64_t offloaded_bytes; /* of the last */
    int64_t low_gradients, upper_bytes,
        frozen_bytes;                  /* of SegmentCost; the last of none of these */
    int64_t of_shape[WEIGHT_SHAPES];   /* of the parameters */
    int64_t largest, largest_in_block; /* parameters of one weight; in_block: that blocks read */
    int64_t largest_frozen, largest_frozen_in_block;   /* bytes of one */
    ExpertWeights experts;                             /* of the counts and bytes, what e divides */
    int64_t n_blocks, n_in_blocks, n_frozen_in_blocks; /* of these, what is in blocks */
    int64_t block_parameters, block_bytes;             /* bytes: parameter and frozen ones */
    int64_t block_low_gradients;
    int64_t largest_block, largest_frozen_block; /* parameters, and frozen bytes, of one */
} StageWeights;

/* ZeRO's stage; joins: a block has one message for its weights, and one for its gradients;
 * sums_experts: those of experts are summed over replicas, which c alone does not; one_micro: a
 * step has one micro-batch. */
typedef struct ZeroChoice {
    int stage;
    bool joins, sums_experts, one_micro;
    int n_shapes;
    unsigned experts, packs;         /* bit i: weights of shape i are of experts; are packed */
    float share[WEIGHT_SHAPES];      /* that a rank has of them; 0: 1 / d */
    int64_t elements[WEIGHT_SHAPES]; /* of one such weight */
} ZeroChoice;

/* Ranks that have the same of a parameter: of those that e divides, and of all others. */
typedef struct Replicas {
    int experts, others;
} Replicas;

/* `count` times; -1 takes away what was counted twice. */
void stage_weights_add(StageWeights *sum, const SegmentCost *segment, int count, bool is_block);
void stage_weights_join(StageWeights *sum, const StageWeights *other);

/* What one of them keeps. */
typedef struct WeightBytes {
    int64_t parameter, gradient, optimizer;
    int64_t host;      /* of the optimizer's, what is not on the device */
    int64_t workspace; /* that packs messages, all of a group's at once */
    int64_t moving;    /* whole weights and gradients between their messages and the work on them */
} WeightBytes;
WeightBytes stage_weight_bytes(const StageWeights *stage, const Cluster *cluster,
                               const ZeroChoice *zero, Replicas replicas);
/* Of an update by all, and of gradients, what a rank has with ZeRO. */
double stage_divided_share(const StageWeights *stage, const ZeroChoice *zero, Replicas replicas);
/* Those of them that e divides, or the others. */
StageWeights stage_weights_part(const StageWeights *stage, bool experts);

/* Of gradients, or, `low`, of those that nothing is added to. */
static inline int64_t stage_gradient_bytes(const StageWeights *stage, bool low) {
    int64_t less = dtype_bytes(DTYPE_F32) - dtype_bytes(DTYPE_BF16);
    return stage->gradient_bytes - (low ? less * stage->low_gradients : 0);
}
/* What the software sends as gradients of so many parameters, `low` of them in bf16. */
double gradient_message_bytes(const ClusterSoftware *software, int64_t n_parameters, int64_t low);

/* Messages of one kind and, on average, so many bytes: of each tensor, or, on GPUs, of groups of
 * them (join_update.c). */
typedef struct StageMessage {
    CollectiveKind kind;
    int count;
    double bytes;
    int n_tensors; /* in all of them */
} StageMessage;
typedef struct StageMessages {
    int n;
    StageMessage of[4];
} StageMessages;
/* Are their messages the same? */
static inline bool stage_weights_alike(const StageWeights *a, const StageWeights *b) {
    return a->n_parameters == b->n_parameters && a->n_weights == b->n_weights &&
           a->n_small == b->n_small && a->n_tensor == b->n_tensor &&
           a->low_gradients == b->low_gradients &&
           a->experts.n_parameters == b->experts.n_parameters;
}
/* Do gathers of updated weights run beside the next step's first forward? Perilune's, where a copy
 * in 16 bits is what that reads: else ranks have no shards when the step is over. */
static inline bool stage_has_copies(const StageWeights *stage) {
    return stage->parameter_bytes < 3 * stage->n_parameters; /* 2 bytes of most, 4 of few */
}
static inline bool stage_gathers_early(const StageWeights *stage, const ClusterSoftware *software) {
    bool copies = stage_has_copies(stage) || !software->separate_messages;
    return software->overlaps_parameters && copies;
}
/* What a step reduces over d once, when it has summed gradients up: all-reduced, or scattered; and
 * what it gathers after a divided update. Of experts' weights, or all others'; n_ranks have the
 * same of them. */
StageMessages stage_reductions(const StageWeights *stage, bool experts, const Cluster *cluster,
                               const ZeroChoice *zero, int n_ranks);
StageMessages stage_gathers(const StageWeights *stage, bool experts, const Cluster *cluster,
                            const ZeroChoice *zero, int n_ranks);
/* What rounding shards takes before they are gathered by these messages; 0 where weights have no
 * copies in 16 bits. */
double stage_casts_us(const StageWeights *stage, const Cluster *cluster,
                      const StageMessages *gathers, int n_ranks);
/* Sums of shards over r, whose bytes are a share of the gradients'. */
StageMessages stage_replica_sums(const StageWeights *stage, const Cluster *cluster,
                                 const ZeroChoice *zero, double share, int n_ranks);
static inline int stage_messages_count(const StageMessages *list) {
    int n = 0;
    for (int i = 0; i < list->n; i++) n += list->of[i].count;
    return n;
}
/* Sums over t of gradients of gains and biases. */
StageMessages stage_tensor_sums(const StageWeights *stage, const Cluster *cluster, int t);
double stage_message_us(const Cluster *cluster, const StageMessage *message,
                        const CollectiveGroup *group);

/* By how much longer a forward and a backward of a chunk take for one micro-batch. */
typedef struct TaskData {
    double forward_us, backward_us, weights_us;
} TaskData;

/* With ZeRO-3 every weight is gathered in the forward and again in the backward, with ZeRO-2 and 3
 * every gradient is reduced in the backward, or, if that is split, in the W (weights_us > 0).
 * groups: replicas of others, and of experts; times are the tasks' without these messages. */
TaskData task_data_us(const Cluster *cluster, const CollectiveGroup groups[2],
                      const ZeroChoice *zero, const StageWeights *chunk, double forward_us,
                      double backward_us, double weights_us);

/* Of `all_us` of messages in a task, what `work_us` beside them leaves; ends_us of them, the first
 * gather and the last reduction, have nothing beside them. All, where software does not overlap. */
double exposed_us(const ClusterSoftware *software, double all_us, double ends_us, double work_us);
/* What is waited for of `n` gathers of updated weights that a stage begins with: for the first, or
 * for the last and the work behind it, once what is before the stage is done, ahead_us; and what
 * the work beside them loses. forward_us: of its chunks, of one micro-batch. */
double exposed_gathers_us(const ClusterSoftware *software, double all_us, int n, double forward_us,
                          double ahead_us);
/* How many pieces these come in, each with its share of the work behind it. */
int stage_gather_pieces(const ClusterSoftware *software, int n);

#endif
