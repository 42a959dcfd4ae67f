/* Step cost: time and memory of one training step for one candidate, by arithmetic alone.
 *
 * From a LayoutCost (what parts of the model cost at this t) and the degrees p, d, v and the number
 * of micro-batches. Microseconds to compute: the search calls it for every candidate. The simulator
 * (simulate.h) plays the finalists task by task; both must agree in the cases that have a closed
 * form (tests).
 */
#ifndef PLANNER_COST_STEP_COST_H
#define PLANNER_COST_STEP_COST_H

#include "planner/cost/stage_weights.h"
#include "planner/plan/schedule.h"

typedef struct Candidate {
    int t, p, d, n_chunks, micro_batch, n_micro;
    int schedule; /* schedule_name(schedule) */
    Recompute recompute;
    int zero; /* ZeroStage */
    bool sequence_parallel;
    int c, e;            /* context and expert degree; 0: 1 */
    bool joins_messages; /* of a block, with ZeRO-2 and 3 */
    int r;               /* replicas of what ZeRO divides; 0: 1 */
    int lanes;           /* that a micro-batch's sequences go through the model in; 0: 1 */
} Candidate;
static inline int candidate_lanes(const Candidate *candidate) {
    return candidate->lanes > 1 ? candidate->lanes : 1;
}
static inline ZeroChoice candidate_zero(const Candidate *candidate) {
    return (ZeroChoice){.stage = candidate->zero,
                        .joins = candidate->joins_messages,
                        .sums_experts = candidate->d > 1,
                        .one_micro = candidate->n_micro == 1};
}
static inline int candidate_c(const Candidate *candidate) {
    return candidate->c > 1 ? candidate->c : 1;
}
static inline int candidate_e(const Candidate *candidate) {
    return candidate->e > 1 ? candidate->e : 1;
}
static inline int candidate_r(const Candidate *candidate) {
    return candidate->r > 1 ? candidate->r : 1;
}
/* Ranks that divide the batch. */
static inline int candidate_data(const Candidate *candidate) {
    return candidate_r(candidate) * candidate->d * candidate_e(candidate);
}
/* Ranks that divide what ZeRO does: d, c and e; but of experts, whose gradients c does not divide,
 * d, or c where there is no d. r has all of it again. */
static inline int candidate_replicas(const Candidate *candidate) {
    return candidate->d * candidate_e(candidate) * candidate_c(candidate);
}
static inline Replicas candidate_replicas_by_kind(const Candidate *candidate) {
    return (Replicas){candidate->d > 1 ? candidate->d : candidate_c(candidate),
                      candidate_replicas(candidate)};
}
/* With what ranks have of the layout's weights, for memory. */
static inline ZeroChoice candidate_zero_of(const Candidate *candidate, const LayoutCost *layout) {
    ZeroChoice zero = candidate_zero(candidate);
    Replicas replicas = candidate_replicas_by_kind(candidate);
    zero.n_shapes = layout->shapes.n;
    for (int i = 0; i < zero.n_shapes; i++) {
        const WeightShape *shape = &layout->shapes.of[i];
        int n_ranks = shape->is_expert ? replicas.experts : replicas.others;
        bool packs;
        zero.share[i] = (float)weight_shape_share(shape, n_ranks, &packs);
        zero.experts |= (unsigned)shape->is_expert << i;
        zero.packs |= (unsigned)packs << i;
        zero.elements[i] = shape->elements;
    }
    return zero;
}
static inline Placement candidate_placement(const Cluster *cluster, const Candidate *candidate) {
    return (Placement){cluster->node.n_devices,
                       candidate->t,
                       candidate->d,
                       candidate->p,
                       candidate->c,
                       candidate->e,
                       candidate->r};
}
/* Messages of gradients and weights: of all but experts, of experts, and of what r repeats. */
typedef enum DataRanks { DATA_OTHERS, DATA_EXPERTS, DATA_REPLICAS, N_DATA_RANKS } DataRanks;
typedef struct DataGroups {
    CollectiveGroup of[N_DATA_RANKS];
} DataGroups;
static inline CollectiveGroup data_group(const Placement *placement, DataRanks of) {
    int experts = placement->d > 1 ? MESH_D : MESH_DC;
    return placement_group(placement, of == DATA_REPLICAS  ? MESH_R
                                      : of == DATA_EXPERTS ? experts
                                                           : MESH_DEC);
}
static inline DataGroups data_groups(const Placement *placement) {
    return (DataGroups){{data_group(placement, DATA_OTHERS), data_group(placement, DATA_EXPERTS),
                         data_group(placement, DATA_REPLICAS)}};
}

typedef struct StepCost {
    double step_us;
    /* What the step consists of, the mean over stages; these add up to step_us. */
    double compute_us;  /* products, attention, memory-bound, host */
    double tensor_us;   /* exposed messages of axes t, c and e */
    double pipeline_us; /* exposed messages between stages */
    double bubble_us;   /* waiting for other stages, were messages between them free */
    double data_us;     /* exposed reductions and gathers of axis d, and of tied weights */
    double update_us;   /* optimizer and norm */
    double wait_us;     /* of bubble_us, what the busiest stage waits, too: the rest is uneven */
    double bubble_fraction; /* bubble_us / step_us */
    double hardware_flops;  /* one rank's average, recomputation included; 5 products of
                               attention's backward, however many its kernels make */
    int worst_stage;        /* by memory */
    int64_t memory_bytes;   /* of the worst stage: the sum of: */
    int64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, message_bytes,
        scratch_bytes;
    int64_t runtime_bytes; /* CUDA's context and captured graphs: beyond the arena */
    int64_t host_bytes;    /* of the rank that has most, in its node's memory: in none of these */
} StepCost;

/* The parts' costs with the candidate's schedule. */
static inline const LayoutCost *candidate_layout(const LayoutCost *layout,
                                                 const Candidate *candidate) {
    return schedule_splits(candidate->schedule) && layout->split ? layout->split : layout;
}

/* The way through its stages. */
static inline Path candidate_path(const Candidate *candidate) {
    return (Path){schedule_path(candidate->schedule), candidate->p};
}

/* What a frame of the global chunk has beside its blocks': a block's output is counted where it is
 * made. The last of a chunk is sent and not kept, as the input of the next is in its place; so the
 * first chunk has one less, and the last one more. What comes backward lies beside all that the
 * forward kept, if a W reads it. At a turn the output is kept where it is made, and what comes back
 * takes its place; but where a W computes again from that output, both are there to the end. */
static inline void frame_cost_add_borders(FrameCost *frame, const LayoutCost *layout,
                                          const Candidate *candidate, int global) {
    Path path = candidate_path(candidate);
    int last = path.p * candidate->n_chunks - 1;
    if (last == 0) return;
    bool turns = global < last && path_turns(path, global), splits = frame->weights > 0;
    bool after = global == last || turns;
    bool before = global == 0 || path_turns(path, global - 1);
    bool again = turns && candidate->recompute != RECOMPUTE_NONE;
    frame->kept += (after - before) * layout->border_bytes;
    if (splits && global < last && (!turns || again)) frame->kept_rise += layout->border_bytes;
    if (splits && again) frame->weights += layout->border_bytes;
}

/* Chunks of a pipeline that may have no block: the first and the last, which have the model's ends.
 */
enum { MOST_BARE_CHUNKS = 2 };

/* blocks of each chunk, [p * n_chunks] in pipeline order (global chunks of the path): minimises the
 * slowest stage, its ends carrying `before` and `after`; as even as that allows. A chunk has no
 * block only if it is the first or the last, and if that makes the slowest stage faster or there
 * are too few. Optimal for blocks of one kind and for one chunk a stage (checked against
 * enumeration); with blocks of several kinds in several chunks, as good as moving single blocks
 * gets. `even`: as many blocks in every chunk, as the cluster's software has it. False: too few
 * blocks for the chunks, or `even` and not to be had. */
bool split_blocks(const ModelCosts *costs, const LayoutCost *layout, Path path, int n_chunks,
                  bool even, int *out_split);

/* Can the blocks be split over so many chunks as software that splits them evenly does? */
bool blocks_split_evenly(const ClusterSoftware *software, int n_blocks, int n_total);

/* All-to-alls that run beside another micro-batch's work have none on the first micro-batch's way
 * through the model, and on the last one's way back: what that adds to a step. */
double step_unpaired_us(const ModelCosts *costs, const LayoutCost *layout);

/* Prices candidates, one after the other; what neighbours have in common is made once: chunks' and
 * stages' sums of those that differ in ZeRO, replicas and micro-batches, frames of those of one
 * schedule, too. Its results are those of the functions below. Layouts have to stay where they
 * are, and as they are. In `arena`; of one thread. */
typedef struct StepPricer StepPricer;
StepPricer *step_pricer_create(const ModelCosts *costs, Arena *arena);
void step_pricer_cost(StepPricer *pricer, const LayoutCost *layout, const Candidate *candidate,
                      const int *split, StepCost *out);
void step_pricer_memory(StepPricer *pricer, const LayoutCost *layout, const Candidate *candidate,
                        const int *split, StepCost *out);

/* `split`: as from split_blocks. */
void step_cost(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
               const int *split, StepCost *out);

/* What the rank that has most would keep of offloaded bytes beyond its share of its node's memory.
 */
int64_t step_missing_host_bytes(const Cluster *cluster, const StepCost *cost);

/* Calls that a stage emits: for each micro-batch, and for the update, by its parameters. */
typedef struct StageCalls {
    int64_t per_micro, per_update;
} StageCalls;

/* Adds a segment's, `count` times. */
static inline void stage_calls_add(StageCalls *calls, const SegmentCost *segment, UpdateKind update,
                                   int count) {
    calls->per_micro += (int64_t)count * segment->micro_calls;
    calls->per_update += (int64_t)count * segment->update_calls[update];
}

/* Messages over d and sums of gradients in one micro-batch's tasks, with ZeRO-2 and 3. */
int64_t zero_micro_calls(const Candidate *candidate, const StageWeights *weights);

/* Messages of the update that its groups save, of as many as there are gradients and weights, less
 * what gathers of weights are more, if they are in the forward and so in an evaluation, too. */
int64_t joined_update_calls(const Cluster *cluster, const Candidate *candidate,
                            const ZeroChoice *zero, const StageWeights *weights);

/* Of a rank's gradients, what is summed over r: its shards. */
StageMessages replicated_messages(const Cluster *cluster, const StageWeights *weights,
                                  const Candidate *candidate, const ZeroChoice *zero);

/* Which of the update_calls are the candidate's. */
UpdateKind candidate_update(const Candidate *candidate);

/* Beyond the arena of a stage's rank: 0 where software captures no graphs. */
int64_t stage_runtime_bytes(const ModelCosts *costs, const LayoutCost *layout,
                            const Candidate *candidate, int stage, const StageCalls *calls);

/* Slots of a stage's channels, each of what crosses a border. */
int64_t step_border_slots(const PipelineShape *shape, int stage);

/* The least of it, however short the graphs are. */
int64_t runtime_least_bytes(const Cluster *cluster);
/* Of runtime_bytes, those that grow with the micro-batches. */
int64_t step_graph_bytes(const StepCost *cost);

/* The bytes of step_cost alone, and worst_stage; nothing else of `out` is touched. */
void step_memory(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
                 const int *split, StepCost *out);

#endif
