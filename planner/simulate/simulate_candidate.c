#include "planner/simulate/simulate_candidate.h"

#include "planner/cost/border_time.h"
#include "planner/cost/offload_cost.h"
#include "planner/cost/shared_weights.h"

#include <string.h>

/* The update: gradients of tied weights, norm, optimizer, parameters. */
enum { PART_TIED, PART_NORM, PART_UPDATE, PART_GATHER, N_PARTS };

/* What one chunk, or all of a stage, has; counts of parameters are of one rank. */
typedef struct Share {
    FrameCost frame;                 /* of one chunk */
    double update_us, low_update_us; /* see SegmentCost */
    MuonCost muon;
    StageWeights weights;
    int64_t scratch_bytes;
    StageCalls calls;
} Share;

/* A load and what it points to: one block of memory. */
typedef struct CandidateLoad {
    PipelineLoad load;
    const ModelCosts *costs;
    const LayoutCost *layout;
    const Candidate *candidate;
    Placement placement;
    ZeroChoice zero;
    PipelinePart parts[N_PARTS];
    PipelineJoin all, *tied; /* tied: of the first and the last stage, and of shared weights */
    int n_tied, end_stages[2];
    PipelineChunk *chunks;
    PipelineLink *links;
    Share *shares;
    double *part_us[N_PARTS], *constant_bytes;
    int *stages;        /* 0, 1, ... p - 1 */
    int *weight_chunks; /* [n_shared][p]: find_weight_chunks */
    int *weight_stages; /* [n_shared][p]: those that have the weight */
} CandidateLoad;

/* Hands out `bytes` of the block; with a block of NULL only counts. */
static void *carve(char *block, size_t *at, size_t bytes) {
    void *at_block = block ? block + *at : NULL;
    *at += (bytes + 15) / 16 * 16;
    return at_block;
}

static size_t lay_out(char *block, const LayoutCost *layout, const Candidate *candidate) {
    size_t at = 0, p = (size_t)candidate->p, n_shared = (size_t)layout->n_shared;
    CandidateLoad dry, *of = carve(block, &at, sizeof(CandidateLoad));
    if (!of) of = &dry;
    *of = (CandidateLoad){.layout = layout, .candidate = candidate};
    size_t n_chunks = p * (size_t)candidate->n_chunks;
    of->chunks = carve(block, &at, n_chunks * sizeof(PipelineChunk));
    of->links = carve(block, &at, 4 * p * sizeof(PipelineLink));
    of->shares = carve(block, &at, p * sizeof(Share));
    for (int i = 0; i < N_PARTS; i++) of->part_us[i] = carve(block, &at, p * sizeof(double));
    of->constant_bytes = carve(block, &at, p * sizeof(double));
    of->stages = carve(block, &at, p * sizeof(int));
    of->tied = carve(block, &at, (n_shared + 1) * sizeof(PipelineJoin));
    of->weight_chunks = carve(block, &at, n_shared * p * sizeof(int));
    of->weight_stages = carve(block, &at, n_shared * p * sizeof(int));
    return at;
}

static void add_segment(PipelineChunk *chunk, Share *share, UpdateKind update,
                        const SegmentCost *segment, bool is_block) {
    chunk->forward_us += segment->forward.us;
    chunk->backward_us += segment->backward.us;
    chunk->weights_us += segment->weights.us;
    chunk->forward_tensor_us += segment->forward.collective_us;
    chunk->backward_tensor_us += segment->backward.collective_us;
    chunk->weights_tensor_us += segment->weights.collective_us;
    frame_cost_add(&share->frame, segment, 1);
    share->update_us += segment->update_us;
    share->low_update_us += segment->low_update_us;
    muon_cost_add(&share->muon, &segment->muon, 1);
    stage_weights_add(&share->weights, segment, 1, is_block);
    stage_calls_add(&share->calls, segment, update, 1);
    if (segment->scratch_bytes > share->scratch_bytes) {
        share->scratch_bytes = segment->scratch_bytes;
    }
}

/* What the chunk's lanes, which begin and end with it, wait for once. */
static void add_edge(PipelineChunk *chunk, const SegmentCost *block) {
    chunk->forward_us += block->forward.edge_us;
    chunk->backward_us += block->backward.edge_us;
    chunk->forward_tensor_us += block->forward.edge_us;
    chunk->backward_tensor_us += block->backward.edge_us;
}

/* What goes to the host is not in the device's frames. */
static void add_offload(PipelineChunk *chunk, Share *share, const OffloadChunk *offload) {
    chunk->forward_us += offload->forward_us;
    chunk->backward_us += offload->backward_us;
    share->frame.kept -= offload->host_bytes;
    share->calls.per_micro += offload->n_calls;
    if (offload->scratch_bytes > share->scratch_bytes)
        share->scratch_bytes = offload->scratch_bytes;
}

static void add_share(Share *sum, const Share *other) {
    sum->update_us += other->update_us;
    sum->low_update_us += other->low_update_us;
    muon_cost_add(&sum->muon, &other->muon, 1);
    stage_weights_join(&sum->weights, &other->weights);
    sum->calls.per_micro += other->calls.per_micro;
    sum->calls.per_update += other->calls.per_update;
    if (other->scratch_bytes > sum->scratch_bytes) sum->scratch_bytes = other->scratch_bytes;
}

static double messages_us(const Cluster *cluster, const StageMessages *list,
                          const CollectiveGroup *group) {
    double us = 0;
    for (int i = 0; i < list->n; i++) {
        us += list->of[i].count * stage_message_us(cluster, &list->of[i], group);
    }
    return us;
}

/* *out_n: how many messages. */
static double reduce_us(const CandidateLoad *of, const StageWeights *weights, int *out_n) {
    const Cluster *cluster = of->costs->cluster;
    DataGroups groups = data_groups(&of->placement);
    double us = 0;
    *out_n = 0;
    for (int experts = 0; experts < 2; experts++) {
        const CollectiveGroup *group = &groups.of[experts];
        if (experts && of->candidate->d == 1) continue; /* c does not divide their gradients */
        StageMessages list = stage_reductions(weights, experts, cluster, &of->zero, group->n_ranks);
        us += messages_us(cluster, &list, group);
        *out_n += stage_messages_count(&list);
    }
    if (candidate_r(of->candidate) == 1) return us;
    StageMessages shards = replicated_messages(cluster, weights, of->candidate, &of->zero);
    *out_n += stage_messages_count(&shards);
    return us + messages_us(cluster, &shards, &groups.of[DATA_REPLICAS]);
}

/* Gradients leave block by block, or, where that takes fewer messages, message by message. */
static void add_reductions(const CandidateLoad *of, PipelineChunk *chunk,
                           const StageWeights *weights) {
    int n;
    chunk->data_us = reduce_us(of, weights, &n);
    bool fewer = of->costs->cluster->software.separate_messages && n < chunk->data_pieces;
    if (fewer) chunk->data_pieces = n;
}

/* Of updated weights. *out_n: how many messages; *out_casts_us: of what rounds them. */
static double gathers_us(const CandidateLoad *of, const StageWeights *weights, int *out_n,
                         double *out_casts_us) {
    const Cluster *cluster = of->costs->cluster;
    DataGroups groups = data_groups(&of->placement);
    double us = 0;
    *out_n = 0;
    *out_casts_us = 0;
    for (int experts = 0; zero_gathers_updated(of->candidate->zero) && experts < 2; experts++) {
        const CollectiveGroup *group = &groups.of[experts];
        StageMessages list = stage_gathers(weights, experts, cluster, &of->zero, group->n_ranks);
        us += messages_us(cluster, &list, group);
        *out_n += stage_messages_count(&list);
        *out_casts_us += stage_casts_us(weights, cluster, &list, group->n_ranks);
    }
    return us;
}

static void add_gathers(const CandidateLoad *of, PipelineChunk *chunk,
                        const StageWeights *weights) {
    const ClusterSoftware *software = &of->costs->cluster->software;
    int n;
    if (!stage_gathers_early(weights, software)) return;
    chunk->gather_us = gathers_us(of, weights, &n, &chunk->once_us);
    chunk->gather_pieces = stage_gather_pieces(software, n);
}

static Share share_of(const SegmentCost *weights, UpdateKind update, int count) {
    Share share = {.update_us = count * weights->update_us,
                   .low_update_us = count * weights->low_update_us};
    muon_cost_add(&share.muon, &weights->muon, count);
    stage_weights_add(&share.weights, weights, count, true);
    stage_calls_add(&share.calls, weights, update, count);
    return share;
}

/* Which chunk of each stage counts each of the weights that blocks share. */
static void find_shared(CandidateLoad *of, const int *split) {
    int p = of->candidate->p;
    for (int i = 0; i < of->layout->n_shared; i++) {
        int *chunks = &of->weight_chunks[i * p], *stages = &of->weight_stages[i * p], n = 0;
        find_weight_chunks(&of->layout->shared[i], split, candidate_path(of->candidate),
                           of->candidate->n_chunks, chunks);
        for (int s = 0; s < p; s++) {
            if (chunks[s] >= 0) stages[n++] = s;
        }
        if (n > 1) of->tied[of->n_tied++] = (PipelineJoin){n, stages};
    }
}

/* The join that sums a shared weight's gradient over stages; NULL: one stage has it. */
static const PipelineJoin *join_of_weight(const CandidateLoad *of, int weight) {
    for (int j = 0; j < of->n_tied; j++) {
        if (of->tied[j].stages == &of->weight_stages[weight * of->candidate->p]) {
            return &of->tied[j];
        }
    }
    return NULL;
}

static void add_shared(const CandidateLoad *of, int global, UpdateKind update, Share *share) {
    int p = of->candidate->p, stage = path_stage(candidate_path(of->candidate), global);
    for (int i = 0; i < of->layout->n_shared; i++) {
        if (of->weight_chunks[i * p + stage] != global) continue;
        const SegmentCost *cost = &of->layout->shared[i].cost;
        Share weight = share_of(cost, update, 1);
        if (join_of_weight(of, i)) {
            weight.calls.per_update +=
                cost->update_calls[UPDATE_REDUCED] - cost->update_calls[UPDATE_ALONE];
        }
        add_share(share, &weight);
    }
}

/* Messages of weights and gradients within tasks, with ZeRO-2 and 3. */
static void add_task_data(const CandidateLoad *of, PipelineChunk *chunk, Share *share) {
    DataGroups groups = data_groups(&of->placement);
    TaskData data = task_data_us(of->costs->cluster, groups.of, &of->zero, &share->weights,
                                 chunk->forward_us, chunk->backward_us, chunk->weights_us);
    chunk->forward_us += data.forward_us, chunk->forward_data_us = data.forward_us;
    chunk->backward_us += data.backward_us, chunk->backward_data_us = data.backward_us;
    chunk->weights_us += data.weights_us, chunk->weights_data_us = data.weights_us;
    share->calls.per_micro += zero_micro_calls(of->candidate, &share->weights);
}

/* Chunks' times, and what each stage holds. Gradients that wait for the end of a stage's tasks
 * anyway are reduced together. */
static void price_chunks(CandidateLoad *of, const int *split) {
    const Candidate *candidate = of->candidate;
    bool overlaps = of->costs->cluster->software.overlaps_gradients;
    UpdateKind update = candidate_update(candidate);
    Path path = candidate_path(candidate);
    int p = candidate->p, v = candidate->n_chunks, block = 0;
    find_shared(of, split);
    for (int g = 0; g < p * v; g++) {
        int stage = path_stage(path, g);
        PipelineChunk *chunk = &of->chunks[stage * v + path_chunk(path, g)];
        Share share = {0};
        *chunk = (PipelineChunk){.data_pieces = split[g]};
        if (g == 0) add_segment(chunk, &share, update, &of->layout->before, false);
        for (int i = 0; i < split[g]; i++, block++) {
            const SegmentCost *kind = &of->layout->kinds[of->costs->kind_of_block[block]];
            add_segment(chunk, &share, update, kind, true);
            if (i == 0) add_edge(chunk, kind);
        }
        if (g + 1 == p * v) add_segment(chunk, &share, update, &of->layout->after, false);
        OffloadChunk offload = offload_chunk(of->costs, of->layout, block - split[g], split[g],
                                             g == 0, g + 1 == p * v);
        add_offload(chunk, &share, &offload);
        if (g + 1 == p * v && path_ends_meet(path)) { /* tied weights are there once */
            Share once = share_of(&of->layout->tied, update, -1);
            add_share(&share, &once);
        }
        add_shared(of, g, update, &share);
        add_task_data(of, chunk, &share);
        if (g == 0 || g + 1 == p * v) chunk->frame_bytes += (double)of->layout->input_bytes;
        if (p * v > 1) { /* as in step_cost: a block's output is kept where it is read */
            frame_cost_add_borders(&share.frame, of->layout, candidate, g);
            bool copies = g > 0 && of->layout->n_documents;
            int tokens = g + 1 < p * v; /* the last chunk has them by its labels */
            if (copies)
                share.frame.kept +=
                    (of->layout->n_documents + tokens) * of->layout->documents_bytes;
        }
        chunk->frame_bytes += (double)frame_cost_bytes(&share.frame);
        if (overlaps) add_reductions(of, chunk, &share.weights);
        add_gathers(of, chunk, &share.weights);
        if (g < p) of->shares[stage] = (Share){0};
        add_share(&of->shares[stage], &share);
    }
    for (int s = 0; s < p; s++) {
        Share *share = &of->shares[s];
        share->calls.per_update -=
            joined_update_calls(of->costs->cluster, candidate, &of->zero, &share->weights);
    }
    for (int stage = 0; stage < p && !overlaps; stage++) {
        add_reductions(of, &of->chunks[stage * v], &of->shares[stage].weights);
    }
    of->load.overlaps_data = overlaps;
    of->load.overlaps_gathers = true;
    of->load.gather_slowdown = of->costs->cluster->software.overlap_slowdown;
    of->load.chunks = of->chunks;
}

/* Ranks of a stage that sit in one node. */
static int stage_ranks_in_node(const CandidateLoad *of) {
    int n_ranks = placement_width(&of->placement), n_node = of->placement.n_per_node;
    return n_ranks < n_node ? n_ranks : n_node;
}

/* Stages that send through the same network cards have one wire out of the node; each stage has
 * another within it. Returns the wire of the stage's cards. */
static int number_wires(const CandidateLoad *of, int stage, int64_t *last_card, int *n_wires) {
    int64_t card = border_card(of->costs->cluster, &of->placement, stage);
    if (stage == 0 || card != *last_card) (*n_wires)++;
    *last_card = card;
    return *n_wires - 1;
}

static void price_links(CandidateLoad *of) {
    const Cluster *cluster = of->costs->cluster;
    PipelineLoad *load = &of->load;
    Path path = candidate_path(of->candidate);
    int p = of->candidate->p, v = of->candidate->n_chunks;
    int64_t last_card = 0;
    BorderTime time[2];
    load->send = cluster->software.overlaps_pipeline ? SEND_OVERLAPPED : SEND_ARRIVES;
    load->links = of->links;
    if (p == 1) return;
    for (int crosses = 0; crosses < 2; crosses++) {
        int sharing = crosses ? stage_ranks_in_node(of) : 1;
        time[crosses] = border_time(cluster, of->layout, crosses, sharing);
    }
    for (int s = 0; s < p; s++) {
        int card = number_wires(of, s, &last_card, &load->n_wires);
        for (int i = 0; i < 4; i++) {
            /* Forward to s + 1, backward to s - 1; of a V also the other way round. */
            bool backward = i & 1, below = backward == (i > 1);
            int to = below ? (s + 1) % p : (s + p - 1) % p, border = below ? s : to;
            if (i > 1 && path.kind != PATH_V) break;
            if (path_count_crossings(path, v, border) == 0) continue;
            bool crosses = border_crosses(&of->placement, border);
            of->links[load->n_links++] = (PipelineLink){.from = s,
                                                        .to = to,
                                                        .backward = backward,
                                                        .wire = crosses ? card : -1 - s,
                                                        .message_us = time[crosses].us,
                                                        .latency_us = time[crosses].latency_us};
        }
    }
    for (int i = 0; i < load->n_links; i++) {
        if (of->links[i].wire < 0) of->links[i].wire = load->n_wires - 1 - of->links[i].wire;
    }
    load->n_wires += p;
}

/* The norm is one number that all ranks need before any parameter may change. */
static double norm_us(const CandidateLoad *of) {
    double us = 0;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool replicas = axis == MESH_D; /* with c and e: all of them have it */
        if (axis == MESH_C || axis == MESH_R || (replicas && !of->candidate->zero)) continue;
        CollectiveGroup group = placement_group(&of->placement, replicas ? MESH_DEC : axis);
        if (group.n_ranks < 2) continue;
        us += collective_us(of->costs->cluster, COLLECTIVE_ALL_REDUCE, sizeof(float), &group);
    }
    return us;
}

/* One rank's gradients summed with those of the other stages that have the parameters, too. */
static double stages_reduce_us(const CandidateLoad *of, int n_stages, int64_t n_parameters) {
    const Candidate *candidate = of->candidate;
    bool crosses = placement_width(&of->placement) * candidate->p > of->placement.n_per_node;
    CollectiveGroup group = {n_stages, crosses ? 1 : n_stages,
                             crosses ? stage_ranks_in_node(of) : 1};
    double bytes = (double)n_parameters * of->costs->cluster->software.gradient_bytes;
    return collective_us(of->costs->cluster, COLLECTIVE_ALL_REDUCE, bytes, &group);
}

static void price_tied(CandidateLoad *of) {
    int p = of->candidate->p;
    double *us = of->part_us[PART_TIED];
    for (int s = 0; s < p; s++) us[s] = 0;
    for (int i = 0; i < of->layout->n_shared; i++) {
        const PipelineJoin *join = join_of_weight(of, i);
        if (!join) continue;
        int64_t n = of->layout->shared[i].cost.n_parameters;
        double reduce_us = stages_reduce_us(of, join->n_stages, n);
        for (int k = 0; k < join->n_stages; k++) us[join->stages[k]] += reduce_us;
    }
    if (path_ends_meet(candidate_path(of->candidate)) || of->layout->tied.n_parameters == 0) return;
    double ends_us = stages_reduce_us(of, 2, of->layout->tied.n_parameters);
    us[0] += ends_us;
    us[p - 1] += ends_us;
    of->end_stages[0] = 0, of->end_stages[1] = p - 1;
    of->tied[of->n_tied++] = (PipelineJoin){2, of->end_stages};
}

/* What ZeRO's gathers cost that are not beside the next step's first forward, and what overlapped
 * sums take from the compute beside them. */
static double gather_us(const CandidateLoad *of, int stage) {
    const ClusterSoftware *software = &of->costs->cluster->software;
    const StageWeights *weights = &of->shares[stage].weights;
    int n;
    double us = 0, casts_us = 0;
    double slowed_us = software->overlaps_gradients ? reduce_us(of, weights, &n) : 0;
    if (!stage_gathers_early(weights, software)) us = gathers_us(of, weights, &n, &casts_us);
    return us + casts_us + software->overlap_slowdown * slowed_us;
}

static void price_update(CandidateLoad *of) {
    const Candidate *candidate = of->candidate;
    int p = candidate->p;
    bool divided = candidate->zero && candidate_replicas(candidate) > 1;
    const Replicas replicas = candidate_replicas_by_kind(candidate);
    double norm = norm_us(of);
    DataGroups groups = data_groups(&of->placement);
    price_tied(of);
    for (int s = 0; s < p; s++) {
        const Share *share = &of->shares[s];
        double saved_us = candidate->n_micro == 1 ? share->low_update_us : 0;
        of->part_us[PART_NORM][s] = norm;
        of->part_us[PART_UPDATE][s] =
            muon_cost_us(&share->muon, of->costs->cluster, &groups.of[0], divided) +
            (share->update_us - saved_us) *
                (divided ? stage_divided_share(&share->weights, &of->zero, replicas) : 1);
        of->part_us[PART_GATHER][s] = gather_us(of, s);
        int64_t runtime = stage_runtime_bytes(of->costs, of->layout, candidate, s, &share->calls);
        WeightBytes weights = stage_weight_bytes(&share->weights, of->costs->cluster, &of->zero,
                                                 candidate_replicas_by_kind(candidate));
        of->constant_bytes[s] =
            (double)(weights.parameter + weights.gradient + weights.optimizer + weights.moving +
                     share->scratch_bytes + of->layout->workspace_bytes + runtime);
        of->stages[s] = s;
    }
    of->all = (PipelineJoin){p, of->stages};
    for (int i = 0; i < N_PARTS; i++) of->parts[i] = (PipelinePart){.us = of->part_us[i]};
    of->parts[PART_TIED].is_data = of->parts[PART_GATHER].is_data = true;
    of->parts[PART_TIED].joins = of->tied;
    of->parts[PART_TIED].n_joins = of->n_tied;
    of->parts[PART_NORM].joins = &of->all;
    of->parts[PART_NORM].n_joins = p > 1;
    of->load.parts = of->parts;
    of->load.n_parts = N_PARTS;
    of->load.constant_bytes = of->constant_bytes;
}

PipelineLoad *candidate_load(PipelineSim *sim, Arena *arena, const ModelCosts *costs,
                             const LayoutCost *layout, const Candidate *candidate,
                             const int *split) {
    layout = candidate_layout(layout, candidate);
    size_t bytes = lay_out(NULL, layout, candidate);
    char *block = sim ? pipeline_sim_scratch(sim, bytes) : arena_alloc(arena, bytes);
    lay_out(block, layout, candidate);
    CandidateLoad *of = (CandidateLoad *)block;
    of->costs = costs;
    of->placement = candidate_placement(costs->cluster, candidate);
    of->zero = candidate_zero_of(candidate, layout);
    of->load.shape = (PipelineShape){candidate->p, candidate->n_chunks, candidate->n_micro,
                                     schedule_path(candidate->schedule)};
    of->load.schedule = candidate->schedule;
    price_chunks(of, split);
    price_links(of);
    price_update(of);
    return &of->load;
}

bool simulate_candidate(PipelineSim *sim, const ModelCosts *costs, const LayoutCost *layout,
                        const Candidate *candidate, const int *split, StepCost *out, Diag *diag) {
    PipelineResult result;
    const PipelineLoad *load = candidate_load(sim, NULL, costs, layout, candidate, split);
    if (!pipeline_sim_run(sim, load, &result, diag)) return false;
    PipelineStage mean = pipeline_mean(&result);
    const PipelineStage *busiest = &result.stages[result.busiest];
    double unpaired_us = step_unpaired_us(costs, candidate_layout(layout, candidate));
    out->step_us = result.step_us + unpaired_us;
    out->compute_us = mean.compute_us;
    out->tensor_us = mean.tensor_us + unpaired_us;
    out->pipeline_us = mean.pipeline_us;
    out->bubble_us = mean.bubble_us + mean.idle_us;
    out->wait_us = busiest->bubble_us + busiest->idle_us;
    out->data_us = mean.data_us;
    out->update_us = mean.update_us;
    out->bubble_fraction = out->step_us > 0 ? out->bubble_us / out->step_us : 0;
    return true;
}
