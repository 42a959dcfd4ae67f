#include "planner/cost/step_cost.h"

#include "planner/cost/border_time.h"
#include "planner/cost/shared_weights.h"
#include "planner/cost/span_memo.h"
#include "planner/cost/stage_sums.h"
#include "planner/plan/plan_library.h"

#include <math.h>
#include <string.h>

enum { CACHED = 12 };

struct StepPricer {
    const ModelCosts *costs;
    StageSums sums;
    /* Of sums, in a schedule of so many micro-batches: frames, and of them inputs [stage]. */
    bool has_frames;
    int schedule, n_micro;
    int64_t *activation_bytes, *input_bytes, *host_frames_bytes;
    /* What ranks have of a layout's weights. */
    const LayoutCost *zero_layout;
    Replicas replicas;
    ZeroChoice zero;
    /* Of the last candidate: sums with messages of its tasks, and times as PipelineTimes has them.
     */
    StageSum *chunks, *stages;
    double *forward_us, *backward_us, *weights_us, *border_us, *free;
    SpanMemo free_span, span; /* were messages between stages free, and as they are */
};

/* One candidate while it is priced; chunks [global chunk], stages [stage]. */
typedef struct Pricing {
    const ModelCosts *costs;
    const LayoutCost *layout;
    const Candidate *candidate;
    const int *split;
    PipelineShape shape;
    Placement placement;
    ZeroChoice zero;
    const StageSum *chunks, *stages; /* of the pricer, with messages of tasks in times */
    double *forward_us, *backward_us, *weights_us, *border_us; /* as PipelineTimes has them */
    double *free;                                              /* p zeros */
    BorderTime border[2];                                      /* inside the node, and out of it */
    StageMessage known[CACHED];
    double known_us[CACHED];
    DataRanks known_ranks[CACHED];
    int n_known;
    const StageWeights *reduced; /* of the last reduce_us; NULL: none yet */
    double reduced_us;
    int n_reduced;
} Pricing;

static bool same_task_work(const StageSum *a, const StageSum *b) {
    return a->forward_us == b->forward_us && a->backward_us == b->backward_us &&
           a->weights_us == b->weights_us && a->weights.n_weights == b->weights.n_weights &&
           a->weights.n_parameters == b->weights.n_parameters &&
           a->weights.frozen_bytes == b->weights.frozen_bytes;
}

/* Adds messages of weights and gradients within tasks, with ZeRO-2 and 3, to `chunks`. */
static void add_task_data(const Pricing *x, StageSum *chunks) {
    int n_total = x->shape.p * x->shape.n_chunks;
    DataGroups groups = data_groups(&x->placement);
    TaskData data = {0};
    const StageSum *before = NULL; /* as it was without them */
    for (int g = 0; g < n_total; g++) {
        StageSum *chunk = &chunks[g];
        const StageSum *plain = &x->chunks[g];
        if (!before || !same_task_work(plain, before)) { /* in the middle mostly are alike */
            data = task_data_us(x->costs->cluster, groups.of, &x->zero, &chunk->weights,
                                chunk->forward_us, chunk->backward_us, chunk->weights_us);
            before = plain;
        }
        chunk->forward_us += data.forward_us;
        chunk->backward_us += data.backward_us;
        chunk->weights_us += data.weights_us;
        chunk->data_us = data.forward_us + data.backward_us + data.weights_us;
    }
}

/* A channel has room for a message that is read and one that arrives. */
enum { CHANNEL_SLOTS = 2 };

/* Channels that the stage has, and of them those forward. */
static int count_channels(const PipelineShape *shape, int stage, int *out_forward) {
    int p = shape->p, below = stage + 1 < p, above = stage > 0;
    bool ring = shape->n_chunks > 1, turns = shape->path == PATH_V;
    *out_forward = 0;
    if (p == 1) return 0;
    *out_forward = turns ? below + above : ring || below;
    return *out_forward + (turns ? below + above : ring || above);
}

int64_t step_border_slots(const PipelineShape *shape, int stage) {
    int n_forward;
    return CHANNEL_SLOTS * count_channels(shape, stage, &n_forward);
}

static int64_t message_bytes(const Pricing *x, int stage) {
    int n_forward, n_channels = count_channels(&x->shape, stage, &n_forward);
    return CHANNEL_SLOTS *
           (n_channels * x->layout->border_bytes + n_forward * x->layout->border_padding_bytes);
}

/* Frames on the device, and on the host, which have as many slots. */
typedef struct Frames {
    int64_t bytes, host;
} Frames;

static Frames larger_frames(Frames a, Frames b) {
    return (Frames){a.bytes > b.bytes ? a.bytes : b.bytes, a.host > b.host ? a.host : b.host};
}

static Frames add_frames(Frames sum, int n, Frames each) {
    return (Frames){sum.bytes + n * each.bytes, sum.host + n * each.host};
}

/* The frames of a stage, as plan_choose_pools divides them; *out_inputs: of it, the tokens and
 * labels of its first or last chunk. */
static Frames frames_of(const Pricing *x, int stage, int64_t *out_inputs) {
    int p = x->shape.p, v = x->shape.n_chunks, schedule = x->candidate->schedule, largest = 0;
    Frames of[v], others = {0}, each_alone = {0};
    *out_inputs = 0;
    for (int c = 0; c < v; c++) {
        int g = path_global(shape_path(&x->shape), stage, c);
        int frames = schedule_frames(schedule, &x->shape, stage, c);
        bool has_inputs = g == 0 || g + 1 == p * v;
        of[c] = (Frames){frame_cost_bytes(&x->chunks[g].frame), x->chunks[g].frame.host};
        if (has_inputs) of[c].bytes += x->layout->input_bytes;
        if (has_inputs) *out_inputs += frames * x->layout->input_bytes;
        each_alone = add_frames(each_alone, frames, of[c]);
        if (of[c].bytes > of[largest].bytes) largest = c;
    }
    if (v == 1) return each_alone;
    for (int c = 0; c < v; c++) {
        if (c != largest) others = larger_frames(others, of[c]);
    }
    Frames together =
        add_frames((Frames){0}, schedule_frames_but(schedule, &x->shape, stage, NO_CHUNK),
                   larger_frames(others, of[largest]));
    Frames largest_alone =
        add_frames((Frames){0}, schedule_frames_but(schedule, &x->shape, stage, largest), others);
    largest_alone = add_frames(largest_alone, schedule_frames(schedule, &x->shape, stage, largest),
                               of[largest]);
    Frames least = largest_alone.bytes < together.bytes ? largest_alone : together;
    return each_alone.bytes < least.bytes ? each_alone : least;
}

UpdateKind candidate_update(const Candidate *candidate) {
    if (candidate_r(candidate) > 1) return UPDATE_REPLICATED;
    return candidate_replicas(candidate) == 1 ? UPDATE_ALONE
           : candidate->zero                  ? UPDATE_DIVIDED
                                              : UPDATE_REDUCED;
}

int64_t zero_micro_calls(const Candidate *candidate, const StageWeights *weights) {
    if (candidate_replicas(candidate) == 1 || candidate->zero < ZERO_GRADIENTS) return 0;
    bool all_gathered = candidate_replicas_by_kind(candidate).experts > 1;
    bool all_summed = candidate->d > 1, gathers = candidate->zero >= ZERO_PARAMETERS;
    const StageWeights others = stage_weights_part(weights, false);
    const StageWeights *summed = all_summed ? weights : &others;
    const StageWeights *gathered = all_gathered ? weights : &others;
    int64_t calls = 2 * summed->n_weights; /* messages, and what adds them up */
    if (gathers) calls += 2 * (gathered->n_weights + gathered->n_frozen); /* forward, backward */
    if (!candidate->joins_messages || weights->n_blocks == 0) return calls;
    int64_t n_read = gathered->n_in_blocks + gathered->n_frozen_in_blocks;
    calls -= summed->n_in_blocks - summed->n_blocks;
    return calls - (gathers ? (FORWARD_EMISSIONS + 1) * (n_read - gathered->n_blocks) : 0);
}

/* Messages between stages: of each value that crosses a border, forward and backward. */
static int64_t count_border_calls(const LayoutCost *layout, const Candidate *candidate, int stage) {
    int n_borders = path_count_borders(candidate_path(candidate), candidate->n_chunks, stage);
    return (int64_t)n_borders *
           (layout->n_border_values * FORWARD_EMISSIONS + layout->n_border_gradients);
}

/* What the update has besides its parameters' calls: the norm, summed over stages, and messages
 * of gradients that the first and the last stage both have. */
static int64_t count_common_calls(const LayoutCost *layout, const Candidate *candidate, int stage) {
    int p = candidate->p;
    int64_t n = layout->update_calls[candidate_update(candidate)];
    bool apart = !path_ends_meet(candidate_path(candidate));
    if (p == 1) return n;
    const int *tied = layout->tied.update_calls;
    if (apart && (stage == 0 || stage == p - 1)) n += tied[UPDATE_REDUCED] - tied[UPDATE_ALONE];
    return n + 1;
}

/* In how many places a chunk's frames lie in turn: chunks share slots, and each comes to all. */
static int frame_places(const Candidate *candidate, int stage) {
    const PipelineShape shape = {candidate->p, candidate->n_chunks, candidate->n_micro,
                                 schedule_path(candidate->schedule)};
    return schedule_frames_but(candidate->schedule, &shape, stage, NO_CHUNK);
}

int64_t runtime_least_bytes(const Cluster *cluster) {
    return cluster->is_cpu || cluster->software.forward_op_us > 0 ? 0 : CUDA_CONTEXT_BYTES;
}

int64_t stage_runtime_bytes(const ModelCosts *costs, const LayoutCost *layout,
                            const Candidate *candidate, int stage, const StageCalls *calls) {
    const Cluster *cluster = costs->cluster;
    const int64_t least = runtime_least_bytes(cluster);
    if (least == 0) return 0;
    int64_t per_micro = calls->per_micro + count_border_calls(layout, candidate, stage);
    int64_t per_update = calls->per_update + count_common_calls(layout, candidate, stage);
    int64_t n_micro = candidate->n_micro, n_nodes = n_micro * per_micro + per_update;
    if (n_nodes > GRAPH_NODE_BUDGET) {
        int64_t unlike = frame_places(candidate, stage) + 2; /* the first and the last besides */
        if (unlike < n_micro && !costs->is_random) n_micro = unlike;
        n_nodes = n_micro * per_micro + per_update;
    }
    return least + GRAPH_NODE_BYTES * n_nodes;
}

int64_t step_graph_bytes(const StepCost *cost) {
    return cost->runtime_bytes > 0 ? cost->runtime_bytes - CUDA_CONTEXT_BYTES : 0;
}

static void price_memory(const StepPricer *pricer, const Pricing *x, StepCost *out) {
    const Candidate *candidate = x->candidate;
    const UpdateKind update = candidate_update(candidate);
    const Replicas replicas = candidate_replicas_by_kind(candidate);
    int64_t most = -1, joined = 0, of_zero = 0;
    WeightBytes weights = {0};
    out->host_bytes = 0;
    for (int s = 0; s < x->shape.p; s++) {
        const StageSum *stage = &x->stages[s];
        int64_t inputs = pricer->input_bytes[s];
        int64_t activations = pricer->activation_bytes[s] - inputs;
        if (!pricer->sums.repeats[s]) {
            weights = stage_weight_bytes(&stage->weights, x->costs->cluster, &x->zero, replicas);
            of_zero = zero_micro_calls(candidate, &stage->weights);
        }
        if (s == 0 || !stage_weights_alike(&stage->weights, &x->stages[s - 1].weights))
            joined = joined_update_calls(x->costs->cluster, candidate, &x->zero, &stage->weights);
        const StageCalls calls = {stage->micro_calls + of_zero,
                                  stage->update_calls[update] - joined};
        int64_t messages = message_bytes(x, s) + inputs;
        int64_t scratch = stage->scratch_bytes + weights.moving + x->layout->workspace_bytes;
        if (candidate->zero && candidate_replicas(candidate) > 1) {
            scratch += weights.workspace > x->layout->zero_bytes ? weights.workspace
                                                                 : x->layout->zero_bytes;
        }
        int64_t runtime = stage_runtime_bytes(x->costs, x->layout, candidate, s, &calls);
        int64_t all = weights.parameter + weights.gradient + weights.optimizer + activations +
                      messages + scratch + runtime;
        int64_t host = weights.host + pricer->host_frames_bytes[s];
        if (host > out->host_bytes) out->host_bytes = host;
        if (all <= most) continue;
        most = all;
        out->worst_stage = s;
        out->memory_bytes = all;
        out->parameter_bytes = weights.parameter;
        out->gradient_bytes = weights.gradient;
        out->optimizer_bytes = weights.optimizer;
        out->activation_bytes = activations;
        out->message_bytes = messages;
        out->scratch_bytes = scratch;
        out->runtime_bytes = runtime;
    }
}

int64_t step_missing_host_bytes(const Cluster *cluster, const StepCost *cost) {
    const double usable = 0.9; /* the rest is programs', and files' */
    double share = usable * cluster->node.host_memory_bytes / cluster->node.n_devices;
    double missing = (double)cost->host_bytes - share;
    return cluster->node.host_memory_bytes > 0 && missing > 0 ? (int64_t)ceil(missing) : 0;
}

/* Devices of one node that send across a border, or reduce with another stage, at once. */
static int count_sharing(const Pricing *x) {
    int n_stage = placement_width(&x->placement);
    return n_stage < x->placement.n_per_node ? n_stage : x->placement.n_per_node;
}

/* Fills border_us with what a message takes from each stage to the next. */
static void price_borders(Pricing *x) {
    int p = x->shape.p, sharing = count_sharing(x);
    bool is_known[2] = {false, false};
    for (int s = 0; s < p; s++) {
        bool crosses = border_crosses(&x->placement, s);
        if (!is_known[crosses]) {
            x->border[crosses] =
                border_time(x->costs->cluster, x->layout, crosses, crosses ? sharing : 1);
            is_known[crosses] = true;
        }
        x->border_us[s] = x->border[crosses].us;
    }
}

/* How long messages of a step between the stage and the next, in one direction, have the wire. */
static double wire_us(const Pricing *x, int stage, bool crosses) {
    int n_rounds = path_count_crossings(shape_path(&x->shape), x->shape.n_chunks, stage);
    const BorderTime *border = &x->border[crosses];
    if (border_crosses(&x->placement, stage) != crosses) return 0;
    return (double)x->shape.n_micro * n_rounds * (border->us - border->latency_us);
}

/* A step cannot be over before the busiest wire has carried all its messages, after a forward's way
 * there and before the backwards that follow. Stages send both ways on one wire out of the node,
 * which others may share, and on one inside. */
static double busiest_wire_us(const Pricing *x) {
    int p = x->shape.p;
    int64_t last_card = -1;
    double most = 0, card_us = 0, card_way_us = 0, way_us = 0;
    for (int s = 0; s < p; s++) {
        int before = (s + p - 1) % p;
        int64_t card = border_card(x->costs->cluster, &x->placement, s);
        if (card != last_card) card_us = 0, card_way_us = way_us + x->chunks[s].forward_us;
        last_card = card;
        card_us += wire_us(x, s, true) + wire_us(x, before, true);
        double inside_us = wire_us(x, s, false) + wire_us(x, before, false);
        if (card_us > 0 && card_us + card_way_us > most) most = card_us + card_way_us;
        inside_us += inside_us > 0 ? way_us + x->chunks[s].forward_us : 0;
        if (inside_us > most) most = inside_us;
        way_us += x->chunks[s].forward_us + x->chunks[s].backward_us + x->border_us[s];
    }
    return most;
}

/* Messages that block their sender are part of its tasks, and no longer of the border. */
static void block_senders(Pricing *x) {
    for (int g = 0; g + 1 < x->shape.p * x->shape.n_chunks; g++) {
        int border = path_border(shape_path(&x->shape), g);
        if (border < 0) continue;
        x->forward_us[g] += x->border_us[border];
        x->backward_us[g + 1] += x->border_us[border];
    }
}

static double price_pipeline(StepPricer *pricer, Pricing *x, StepCost *out) {
    int p = x->shape.p, n_total = p * x->shape.n_chunks, m = x->shape.n_micro;
    for (int g = 0; g < n_total; g++) {
        x->forward_us[g] = x->chunks[g].forward_us;
        x->backward_us[g] = x->chunks[g].backward_us;
        x->weights_us[g] = x->chunks[g].weights_us;
    }
    double most = 0, mean = 0;
    for (int s = 0; s < p; s++) {
        double us = x->stages[s].forward_us + x->stages[s].backward_us + x->stages[s].weights_us;
        if (us > most) most = us;
        mean += us / p;
        out->tensor_us += m * x->stages[s].tensor_us / p;
        out->data_us += m * x->stages[s].data_us / p;
        x->free[s] = 0;
        out->hardware_flops += x->stages[s].flops * m / p;
    }
    PipelineTimes times = {x->shape, x->forward_us, x->backward_us, x->weights_us, x->free};
    double free_us = span_memo_us(&pricer->free_span, x->candidate->schedule, &times);
    double span_us = free_us;
    if (p > 1) {
        price_borders(x);
        if (!x->costs->cluster->software.overlaps_pipeline)
            block_senders(x);
        else
            times.border_us = x->border_us;
        span_us = span_memo_us(&pricer->span, x->candidate->schedule, &times);
        double least_us = busiest_wire_us(x);
        if (span_us < least_us) span_us = least_us;
    }
    out->compute_us = m * mean - out->tensor_us - out->data_us;
    out->bubble_us = free_us > m * mean ? free_us - m * mean : 0;
    out->wait_us = free_us > m * most ? free_us - m * most : 0;
    out->pipeline_us = span_us > free_us ? span_us - free_us : 0;
    return span_us;
}

static double known_message_us(Pricing *x, const StageMessage *message, DataRanks ranks) {
    for (int i = 0; i < x->n_known; i++) {
        const StageMessage *known = &x->known[i];
        bool same = known->bytes == message->bytes && known->kind == message->kind &&
                    known->n_tensors == message->n_tensors && known->count == message->count &&
                    x->known_ranks[i] == ranks;
        if (same) return x->known_us[i];
    }
    CollectiveGroup group = data_group(&x->placement, ranks);
    int at = x->n_known < CACHED ? x->n_known++ : CACHED - 1;
    x->known[at] = *message;
    x->known_ranks[at] = ranks;
    return x->known_us[at] = stage_message_us(x->costs->cluster, message, &group);
}

static double messages_us(Pricing *x, const StageMessages *list, DataRanks of) {
    double us = 0;
    for (int i = 0; i < list->n; i++) {
        us += list->of[i].count * known_message_us(x, &list->of[i], of);
    }
    return us;
}

static int data_ranks(const Pricing *x, DataRanks of) {
    Replicas replicas = candidate_replicas_by_kind(x->candidate);
    return of == DATA_EXPERTS ? replicas.experts : replicas.others;
}

/* Of experts, or of all others. *n: counts the messages, too. */
static double reduce_part_us(Pricing *x, const StageWeights *weights, DataRanks of, int *n) {
    StageMessages list = stage_reductions(weights, of == DATA_EXPERTS, x->costs->cluster, &x->zero,
                                          data_ranks(x, of));
    *n += stage_messages_count(&list);
    return messages_us(x, &list, of);
}

/* *out_n: how many messages. */
static double price_sums(Pricing *x, const StageSum *sum, int *out_n) {
    *out_n = 0;
    double us = reduce_part_us(x, &sum->weights, DATA_OTHERS, out_n);
    if (x->candidate->d > 1) us += reduce_part_us(x, &sum->weights, DATA_EXPERTS, out_n);
    if (candidate_r(x->candidate) == 1) return us;
    StageMessages shards =
        replicated_messages(x->costs->cluster, &sum->weights, x->candidate, &x->zero);
    *out_n += stage_messages_count(&shards);
    return us + messages_us(x, &shards, DATA_REPLICAS);
}

/* The same; chunks in the middle mostly are alike. */
static double reduce_us(Pricing *x, const StageSum *sum, int *out_n) {
    *out_n = 0;
    if (candidate_replicas(x->candidate) == 1) return 0;
    if (!x->reduced || !stage_weights_alike(x->reduced, &sum->weights)) {
        x->reduced_us = price_sums(x, sum, &x->n_reduced);
        x->reduced = &sum->weights;
    }
    *out_n = x->n_reduced;
    return x->reduced_us;
}

/* What a chunk's gradients are complete after. */
static double last_task_us(const Pricing *x, const StageSum *chunk) {
    return schedule_splits(x->candidate->schedule) ? chunk->weights_us : chunk->backward_us;
}

/* How long the stage is at the chunk when gradients of later ones are complete: a group of p micro-
 * batches; on the way of a V it ends with as many W's as there are stages before, and where there
 * are none, with the last backwards. */
static double last_group_us(const Pricing *x, int stage, int c) {
    const StageSum *chunk = &x->chunks[path_global(shape_path(&x->shape), stage, c)];
    int p = x->shape.p, m = x->shape.n_micro, n = m < p ? m : p;
    if (x->shape.path != PATH_V) return n * last_task_us(x, chunk);
    if (stage == 0) return n * (chunk->backward_us + chunk->weights_us);
    return (stage < m ? stage : m) * chunk->weights_us;
}

/* When the stage's gradients are reduced, from the end of its last task on. Overlapped, block
 * by block, or in as many messages as there are, if they are fewer: a chunk's first when the first
 * of its blocks is through the last backward. */
static double reduced_after_us(Pricing *x, int stage) {
    const ClusterSoftware *software = &x->costs->cluster->software;
    int n;
    if (!software->overlaps_gradients) return reduce_us(x, &x->stages[stage], &n);
    Path path = shape_path(&x->shape);
    double later_us = 0, done_us = -1e300;
    for (int c = 0; c + 1 < x->shape.n_chunks; c++) later_us += last_group_us(x, stage, c);
    for (int c = x->shape.n_chunks - 1; c >= 0; c--) {
        int g = path_global(path, stage, c);
        const StageSum *chunk = &x->chunks[g];
        double us = reduce_us(x, chunk, &n), end_us = -later_us;
        int pieces = software->separate_messages && n < x->split[g] ? n : x->split[g];
        if (pieces < 1) pieces = 1;
        double first_us = end_us - last_task_us(x, chunk) * (pieces - 1) / pieces;
        if (done_us < first_us) done_us = first_us;
        done_us += us;
        if (done_us < end_us + us / pieces) done_us = end_us + us / pieces;
        if (c > 0) later_us -= last_group_us(x, stage, c - 1);
    }
    return done_us > 0 ? done_us : 0;
}

/* One rank's gradients summed with those of the other stages that have the parameters, too. */
static double stages_reduce_us(const Pricing *x, int n_stages, int64_t n_parameters) {
    int n_ranks = x->shape.p * placement_width(&x->placement);
    bool crosses = n_ranks > x->placement.n_per_node;
    CollectiveGroup group = {n_stages, crosses ? 1 : n_stages, crosses ? count_sharing(x) : 1};
    double bytes = (double)n_parameters * x->costs->cluster->software.gradient_bytes;
    return collective_us(x->costs->cluster, COLLECTIVE_ALL_REDUCE, bytes, &group);
}

/* As if all stages waited for one another: those that share weights mostly are all. */
static double shared_reduce_us(const Pricing *x) {
    int p = x->shape.p, at[p];
    double us = 0;
    for (int i = 0; i < x->layout->n_shared && p > 1; i++) {
        const SharedWeight *weight = &x->layout->shared[i];
        int n_stages =
            find_weight_chunks(weight, x->split, shape_path(&x->shape), x->shape.n_chunks, at);
        if (n_stages > 1) us += stages_reduce_us(x, n_stages, weight->cost.n_parameters);
    }
    return us;
}

/* Stages of a V begin, and end, one after the other. */
static double price_reductions_of_v(Pricing *x) {
    double ahead_us = 0, end_us = 0;
    for (int s = x->shape.p - 1; s >= 0; s--) {
        double us = reduced_after_us(x, s) - ahead_us;
        if (us > end_us) end_us = us;
        if (s > 0) ahead_us += x->chunks[s - 1].forward_us;
    }
    return end_us;
}

/* From the end of the last stage's tasks (the first stage's, which is the last to end). */
static double price_reductions(Pricing *x) {
    int p = x->shape.p;
    if (x->shape.path == PATH_V) return price_reductions_of_v(x) + shared_reduce_us(x);
    double ahead_us = 0, end_us = 0, first_us = 0, last_us = 0;
    for (int s = 0; s < p; s++) {
        double us = reduced_after_us(x, s) - ahead_us;
        if (us > end_us) end_us = us;
        if (s == 0) first_us = us;
        if (s + 1 == p) last_us = us;
        double after_us = x->weights_us[s]; /* one more W follows the next stage's last backward */
        if (x->backward_us[s] > after_us) ahead_us += x->backward_us[s] - after_us;
        if (s + 1 < p && x->costs->cluster->software.overlaps_pipeline) {
            ahead_us += x->border_us[s];
        }
    }
    if (p > 1 && x->layout->tied.n_parameters > 0) {
        double us = first_us > last_us ? first_us : last_us;
        us += stages_reduce_us(x, 2, x->layout->tied.n_parameters);
        if (us > end_us) end_us = us;
    }
    return end_us + shared_reduce_us(x);
}

/* The norm is one number that every rank needs before any parameter may change. */
static double norm_us(const Pricing *x) {
    double us = 0;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool replicas = axis == MESH_D; /* with c and e; e alone has norms of experts */
        if (axis == MESH_C || axis == MESH_R || (replicas && !x->candidate->zero)) continue;
        CollectiveGroup group = placement_group(&x->placement, replicas ? MESH_DEC : axis);
        if (group.n_ranks == 1) continue;
        us += collective_us(x->costs->cluster, COLLECTIVE_ALL_REDUCE, sizeof(float), &group);
    }
    return us;
}

/* What ZeRO's gather costs, beside the first micro-batch's forward if the software does so, and
 * what overlapped data messages take from the compute beside them. */
static double gather_us_of(Pricing *x, const StageSum *stage, double ahead_us) {
    const ClusterSoftware *software = &x->costs->cluster->software;
    bool gathers = candidate_replicas(x->candidate) > 1 && zero_gathers_updated(x->candidate->zero);
    int n_sums, n = 0;
    double us = 0, casts_us = 0,
           slowed_us = software->overlaps_gradients ? reduce_us(x, stage, &n_sums) : 0;
    int n_kinds = candidate_replicas_by_kind(x->candidate).experts > 1 ? 2 : 1;
    for (DataRanks of = 0; gathers && of < (DataRanks)n_kinds; of++) {
        StageMessages list = stage_gathers(&stage->weights, of == DATA_EXPERTS, x->costs->cluster,
                                           &x->zero, data_ranks(x, of));
        us += messages_us(x, &list, of);
        n += stage_messages_count(&list);
        casts_us += stage_casts_us(&stage->weights, x->costs->cluster, &list, data_ranks(x, of));
    }
    if (stage_gathers_early(&stage->weights, software))
        us = exposed_gathers_us(software, us, n, stage->forward_us, ahead_us);
    return us + casts_us + software->overlap_slowdown * slowed_us;
}

StageMessages replicated_messages(const Cluster *cluster, const StageWeights *weights,
                                  const Candidate *candidate, const ZeroChoice *zero) {
    return stage_replica_sums(
        weights, cluster, zero,
        stage_divided_share(weights, zero, candidate_replicas_by_kind(candidate)),
        candidate_r(candidate));
}

/* That tensors would have, each one of its own. */
static int64_t saved_calls(const StageMessages *list) {
    int64_t n = 0;
    for (int i = 0; i < list->n; i++) n += list->of[i].n_tensors - list->of[i].count;
    return n;
}

/* What rounds each tensor, and the messages. */
static int64_t gather_calls(const StageMessages *list) {
    int64_t n = 0;
    for (int i = 0; i < list->n; i++) n += list->of[i].n_tensors + list->of[i].count;
    return n;
}

int64_t joined_update_calls(const Cluster *cluster, const Candidate *candidate,
                            const ZeroChoice *zero, const StageWeights *weights) {
    const Replicas replicas = candidate_replicas_by_kind(candidate);
    if (!cluster->software.separate_messages) return 0;
    StageMessages tensor = stage_tensor_sums(weights, cluster, candidate->t);
    int64_t saved = saved_calls(&tensor);
    for (int experts = 0; experts < 2; experts++) {
        int n_ranks = experts ? replicas.experts : replicas.others;
        if (n_ranks < 2) continue;
        StageMessages sums = stage_reductions(weights, experts, cluster, zero, n_ranks);
        StageMessages gathers = stage_gathers(weights, experts, cluster, zero, n_ranks);
        if (!experts || zero->sums_experts) saved += saved_calls(&sums);
        if (!zero_gathers_updated(zero->stage)) continue;
        saved += saved_calls(&gathers);
        bool early = stage_gathers_early(weights, &cluster->software);
        if (early) saved -= (FORWARD_EMISSIONS - 1) * gather_calls(&gathers);
    }
    if (candidate_r(candidate) == 1) return saved;
    StageMessages shards = replicated_messages(cluster, weights, candidate, zero);
    return saved + saved_calls(&shards);
}

static void price_update(Pricing *x, StepCost *out) {
    bool divided = x->candidate->zero && candidate_replicas(x->candidate) > 1;
    const Replicas replicas = candidate_replicas_by_kind(x->candidate);
    DataGroups groups = data_groups(&x->placement);
    double most_us = 0, gather_us = 0, ahead_us = 0; /* of the first micro-batch's way to a stage */
    for (int s = 0; s < x->shape.p; s++) {
        const StageSum *stage = &x->stages[s];
        double share = divided ? stage_divided_share(&stage->weights, &x->zero, replicas) : 1;
        double saved_us = x->candidate->n_micro == 1 ? stage->low_update_us : 0;
        double update = share * (stage->update_us - saved_us) +
                        muon_cost_us(&stage->muon, x->costs->cluster, &groups.of[0], divided);
        double gather = gather_us_of(x, stage, ahead_us);
        ahead_us += x->forward_us[s] + (s + 1 < x->shape.p ? x->border_us[s] : 0);
        if (update + gather <= most_us + gather_us) continue;
        most_us = update;
        gather_us = gather;
    }
    out->update_us = norm_us(x) + most_us;
    out->data_us += gather_us;
}

static double segment_beside_us(const SegmentCost *segment) {
    return segment->forward.beside_us + segment->backward.beside_us + segment->weights.beside_us;
}

double step_unpaired_us(const ModelCosts *costs, const LayoutCost *layout) {
    if (costs->cluster->software.exchange_hidden <= 0) return 0;
    double us = segment_beside_us(&layout->before) + segment_beside_us(&layout->after);
    for (int b = 0; b < costs->n_blocks; b++) {
        us += segment_beside_us(&layout->kinds[costs->kind_of_block[b]]);
    }
    return us;
}

static void price_time(StepPricer *pricer, Pricing *x, StepCost *out) {
    double span_us = price_pipeline(pricer, x, out), task_us = out->data_us;
    double unpaired_us = step_unpaired_us(x->costs, x->layout);
    span_us += unpaired_us;
    out->tensor_us += unpaired_us;
    out->data_us += price_reductions(x);
    price_update(x, out);
    out->step_us = span_us + out->data_us - task_us + out->update_us;
    out->bubble_fraction = out->step_us > 0 ? out->bubble_us / out->step_us : 0;
}

/* Frames of all stages, unless they are the last candidate's. */
static void sum_frames(StepPricer *pricer, const Pricing *x) {
    const Candidate *candidate = x->candidate;
    if (pricer->has_frames && pricer->schedule == candidate->schedule &&
        pricer->n_micro == candidate->n_micro) {
        return;
    }
    pricer->has_frames = true;
    pricer->schedule = candidate->schedule;
    pricer->n_micro = candidate->n_micro;
    for (int s = 0; s < x->shape.p; s++) {
        Frames frames = frames_of(x, s, &pricer->input_bytes[s]);
        pricer->activation_bytes[s] = frames.bytes;
        pricer->host_frames_bytes[s] = frames.host;
    }
}

static ZeroChoice zero_of(StepPricer *pricer, const Candidate *candidate,
                          const LayoutCost *layout) {
    const Replicas replicas = candidate_replicas_by_kind(candidate);
    bool known = pricer->zero_layout == layout && pricer->replicas.experts == replicas.experts &&
                 pricer->replicas.others == replicas.others;
    if (!known) pricer->zero = candidate_zero_of(candidate, layout);
    pricer->zero_layout = layout;
    pricer->replicas = replicas;
    const ZeroChoice choice = candidate_zero(candidate);
    ZeroChoice zero = pricer->zero;
    zero.stage = choice.stage;
    zero.joins = choice.joins;
    zero.sums_experts = choice.sums_experts;
    zero.one_micro = choice.one_micro;
    return zero;
}

static Pricing pricing_of(StepPricer *pricer, const LayoutCost *layout, const Candidate *candidate,
                          const int *split) {
    layout = candidate_layout(layout, candidate);
    if (stage_sums_make(&pricer->sums, pricer->costs, layout, candidate, split))
        pricer->has_frames = false;
    Pricing x = {.costs = pricer->costs,
                 .layout = layout,
                 .candidate = candidate,
                 .split = split,
                 .shape = {candidate->p, candidate->n_chunks, candidate->n_micro,
                           schedule_path(candidate->schedule)},
                 .placement = candidate_placement(pricer->costs->cluster, candidate),
                 .zero = zero_of(pricer, candidate, layout),
                 .chunks = pricer->sums.chunks,
                 .stages = pricer->sums.stages,
                 .forward_us = pricer->forward_us,
                 .backward_us = pricer->backward_us,
                 .weights_us = pricer->weights_us,
                 .border_us = pricer->border_us,
                 .free = pricer->free};
    sum_frames(pricer, &x);
    return x;
}

void step_pricer_memory(StepPricer *pricer, const LayoutCost *layout, const Candidate *candidate,
                        const int *split, StepCost *out) {
    const Pricing x = pricing_of(pricer, layout, candidate, split);
    price_memory(pricer, &x, out);
}

void step_pricer_cost(StepPricer *pricer, const LayoutCost *layout, const Candidate *candidate,
                      const int *split, StepCost *out) {
    Pricing x = pricing_of(pricer, layout, candidate, split);
    *out = (StepCost){0};
    price_memory(pricer, &x, out);
    if (candidate->zero >= ZERO_GRADIENTS) {
        size_t n_total = (size_t)candidate->p * (size_t)candidate->n_chunks;
        memcpy(pricer->chunks, x.chunks, n_total * sizeof(StageSum));
        add_task_data(&x, pricer->chunks);
        Path path = candidate_path(candidate);
        stage_sums_add_up(pricer->chunks, path, candidate->n_chunks, pricer->stages);
        x.chunks = pricer->chunks;
        x.stages = pricer->stages;
    }
    price_time(pricer, &x, out);
}

StepPricer *step_pricer_create(const ModelCosts *costs, Arena *arena) {
    int n = costs->n_blocks + MOST_BARE_CHUNKS;
    StepPricer *pricer = ARENA_NEW(arena, StepPricer);
    *pricer = (StepPricer){.costs = costs,
                           .sums = {.split = ARENA_ARRAY(arena, int, n),
                                    .chunks = ARENA_ARRAY(arena, StageSum, n),
                                    .stages = ARENA_ARRAY(arena, StageSum, n),
                                    .repeats = ARENA_ARRAY(arena, bool, n)},
                           .activation_bytes = ARENA_ARRAY(arena, int64_t, n),
                           .input_bytes = ARENA_ARRAY(arena, int64_t, n),
                           .host_frames_bytes = ARENA_ARRAY(arena, int64_t, n),
                           .chunks = ARENA_ARRAY(arena, StageSum, n),
                           .stages = ARENA_ARRAY(arena, StageSum, n),
                           .forward_us = ARENA_ARRAY(arena, double, n),
                           .backward_us = ARENA_ARRAY(arena, double, n),
                           .weights_us = ARENA_ARRAY(arena, double, n),
                           .border_us = ARENA_ARRAY(arena, double, n),
                           .free = ARENA_ARRAY(arena, double, n),
                           .free_span = span_memo_create(n, arena),
                           .span = span_memo_create(n, arena)};
    return pricer;
}

/* On the stack, as tests and finalists price one candidate at a time, and many of them: p *
 * n_chunks is hardly more than the number of blocks. */
void step_cost(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
               const int *split, StepCost *out) {
    int p = candidate->p, n_total = p * candidate->n_chunks, own_split[n_total];
    StageSum chunks[n_total], stages[p], own_chunks[n_total], own_stages[p];
    int64_t activation_bytes[p], input_bytes[p], host_frames_bytes[p];
    double forward_us[n_total], backward_us[n_total], weights_us[n_total], border_us[p], free[p];
    bool repeats[p];
    StepPricer pricer = {
        .costs = costs,
        .sums = {.split = own_split, .chunks = chunks, .stages = stages, .repeats = repeats},
        .activation_bytes = activation_bytes,
        .input_bytes = input_bytes,
        .host_frames_bytes = host_frames_bytes,
        .chunks = own_chunks,
        .stages = own_stages,
        .forward_us = forward_us,
        .backward_us = backward_us,
        .weights_us = weights_us,
        .border_us = border_us,
        .free = free};
    step_pricer_cost(&pricer, layout, candidate, split, out);
}

void step_memory(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
                 const int *split, StepCost *out) {
    int p = candidate->p, n_total = p * candidate->n_chunks, own_split[n_total];
    StageSum chunks[n_total], stages[p];
    int64_t activation_bytes[p], input_bytes[p], host_frames_bytes[p];
    bool repeats[p];
    StepPricer pricer = {
        .costs = costs,
        .sums = {.split = own_split, .chunks = chunks, .stages = stages, .repeats = repeats},
        .activation_bytes = activation_bytes,
        .input_bytes = input_bytes,
        .host_frames_bytes = host_frames_bytes};
    step_pricer_memory(&pricer, layout, candidate, split, out);
}
