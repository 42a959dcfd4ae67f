#include "planner/cost/stage_sums.h"

#include "planner/cost/offload_cost.h"
#include "planner/cost/shared_weights.h"
#include "planner/plan/plan_library.h"

#include <string.h>

static void add_calls(StageSum *sum, const SegmentCost *segment, int count) {
    sum->micro_calls += (int64_t)count * segment->micro_calls;
    for (int kind = 0; kind < N_UPDATE_KINDS; kind++)
        sum->update_calls[kind] += (int64_t)count * segment->update_calls[kind];
}

static void add_segment(StageSum *sum, const SegmentCost *segment, int count, bool is_block) {
    sum->forward_us += count * segment->forward.us;
    sum->backward_us += count * segment->backward.us;
    sum->weights_us += count * segment->weights.us;
    sum->tensor_us += count * (segment->forward.collective_us + segment->backward.collective_us +
                               segment->weights.collective_us);
    sum->update_us += count * segment->update_us;
    sum->low_update_us += count * segment->low_update_us;
    muon_cost_add(&sum->muon, &segment->muon, count);
    sum->flops +=
        count * (segment->forward.flops + segment->backward.flops + segment->weights.flops);
    frame_cost_add(&sum->frame, segment, count);
    stage_weights_add(&sum->weights, segment, count, is_block);
    add_calls(sum, segment, count);
    if (segment->scratch_bytes > sum->scratch_bytes) sum->scratch_bytes = segment->scratch_bytes;
}

static void add_sum(StageSum *sum, const StageSum *other) {
    sum->forward_us += other->forward_us;
    sum->backward_us += other->backward_us;
    sum->weights_us += other->weights_us;
    sum->tensor_us += other->tensor_us;
    sum->data_us += other->data_us;
    sum->update_us += other->update_us;
    sum->low_update_us += other->low_update_us;
    muon_cost_add(&sum->muon, &other->muon, 1);
    sum->flops += other->flops;
    stage_weights_join(&sum->weights, &other->weights);
    sum->micro_calls += other->micro_calls;
    for (int kind = 0; kind < N_UPDATE_KINDS; kind++)
        sum->update_calls[kind] += other->update_calls[kind];
    if (other->scratch_bytes > sum->scratch_bytes) sum->scratch_bytes = other->scratch_bytes;
}

/* What the chunk's lanes, which begin and end with it, wait for once. */
static void add_edge(StageSum *sum, const SegmentCost *block) {
    sum->forward_us += block->forward.edge_us;
    sum->backward_us += block->backward.edge_us;
    sum->tensor_us += block->forward.edge_us + block->backward.edge_us;
}

/* What goes to the host is in its frames, not in the device's. */
static void add_offload(StageSum *sum, const OffloadChunk *offload) {
    sum->forward_us += offload->forward_us;
    sum->backward_us += offload->backward_us;
    sum->frame.kept -= offload->host_bytes;
    sum->frame.host += offload->host_bytes;
    sum->micro_calls += offload->n_calls;
    if (offload->scratch_bytes > sum->scratch_bytes) sum->scratch_bytes = offload->scratch_bytes;
}

/* Blocks of one kind from `first` on. */
static int count_alike(const ModelCosts *costs, int first, int end) {
    int n = costs->n_kinds == 1 ? end - first : 1;
    while (first + n < end && costs->kind_of_block[first + n] == costs->kind_of_block[first]) n++;
    return n;
}

/* The model on its way through one pipeline. */
typedef struct Way {
    const ModelCosts *costs;
    const LayoutCost *layout;
    const Candidate *candidate;
    const int *split;
    Path path;
    int n_total;
} Way;

/* A global chunk: its blocks, from `first_block` on, and the model's ends. */
static StageSum sum_chunk(const Way *way, int global, int first_block) {
    const ModelCosts *costs = way->costs;
    const LayoutCost *layout = way->layout;
    int n_blocks = way->split[global];
    bool is_first = global == 0, is_last = global + 1 == way->n_total;
    StageSum sum = {0};
    if (is_first) add_segment(&sum, &layout->before, 1, false);
    for (int b = first_block, end = b + n_blocks, run; b < end; b += run) {
        run = count_alike(costs, b, end);
        add_segment(&sum, &layout->kinds[costs->kind_of_block[b]], run, true);
    }
    if (n_blocks > 0) add_edge(&sum, &layout->kinds[costs->kind_of_block[first_block]]);
    if (is_last) add_segment(&sum, &layout->after, 1, false);
    if (layout->offload) {
        OffloadChunk offload =
            offload_chunk(costs, layout, first_block, n_blocks, is_first, is_last);
        add_offload(&sum, &offload);
    }
    frame_cost_add_borders(&sum.frame, layout, way->candidate, global);
    /* The first chunk has its documents already; others get the tokens and look, those between have
     * room for tokens besides. */
    if (!is_first && layout->n_documents) {
        sum.frame.kept += (layout->n_documents + !is_last) * layout->documents_bytes;
        sum.micro_calls += (layout->n_documents + 1) * FORWARD_EMISSIONS;
    }
    if (is_last && path_ends_meet(way->path)) { /* tied weights are there once */
        sum.update_us -= layout->tied.update_us;
        sum.low_update_us -= layout->tied.low_update_us;
        muon_cost_add(&sum.muon, &layout->tied.muon, -1);
        stage_weights_add(&sum.weights, &layout->tied, -1, false);
        add_calls(&sum, &layout->tied, -1);
    }
    return sum;
}

/* Has the chunk, whose first block is `first`, no end of the model, no turn, and the same blocks as
 * the one before? */
static bool is_like_last(const Way *way, int g, int first) {
    int n = way->split[g];
    if (g < 2 || g + 1 == way->n_total || n != way->split[g - 1]) return false;
    if (path_turns(way->path, g) || path_turns(way->path, g - 1) || path_turns(way->path, g - 2))
        return false;
    const int *kinds = way->costs->kind_of_block + first;
    return way->costs->n_kinds == 1 || memcmp(kinds, kinds - n, sizeof(int) * (size_t)n) == 0;
}

/* Weights that blocks share, with the chunk of each stage that counts them. */
static void add_shared(const Way *way, StageSum *chunks) {
    int p = way->path.p, at[p];
    for (int i = 0; i < way->layout->n_shared; i++) {
        const SharedWeight *weight = &way->layout->shared[i];
        const int *calls = weight->cost.update_calls;
        int n_stages =
            find_weight_chunks(weight, way->split, way->path, way->candidate->n_chunks, at);
        for (int s = 0; s < p; s++) {
            if (at[s] < 0) continue;
            StageSum *chunk = &chunks[at[s]];
            add_segment(chunk, &weight->cost, 1, true);
            /* Messages that sum its gradients over the stages. */
            for (int kind = 0; n_stages > 1 && kind < N_UPDATE_KINDS; kind++)
                chunk->update_calls[kind] += calls[UPDATE_REDUCED] - calls[UPDATE_ALONE];
        }
    }
}

void stage_sums_add_up(const StageSum *chunks, Path path, int n_chunks, StageSum *out_stages) {
    for (int s = 0; s < path.p; s++) out_stages[s] = (StageSum){0};
    for (int g = 0; g < path.p * n_chunks; g++)
        add_sum(&out_stages[path_stage(path, g)], &chunks[g]);
}

static bool are_of(const StageSums *sums, const LayoutCost *layout, const Candidate *candidate,
                   const int *split) {
    Path path = candidate_path(candidate);
    return sums->layout == layout && sums->path.kind == path.kind && sums->path.p == path.p &&
           sums->n_chunks == candidate->n_chunks && sums->recompute == candidate->recompute &&
           memcmp(sums->split, split, sizeof(int) * (size_t)(path.p * candidate->n_chunks)) == 0;
}

bool stage_sums_make(StageSums *sums, const ModelCosts *costs, const LayoutCost *layout,
                     const Candidate *candidate, const int *split) {
    if (sums->layout && are_of(sums, layout, candidate, split)) return false;
    Path path = candidate_path(candidate);
    const Way way = {costs, layout, candidate, split, path, path.p * candidate->n_chunks};
    sums->layout = layout;
    sums->path = path;
    sums->n_chunks = candidate->n_chunks;
    sums->recompute = candidate->recompute;
    memcpy(sums->split, split, sizeof(int) * (size_t)way.n_total);
    for (int g = 0, first = 0; g < way.n_total; first += split[g++]) {
        bool alike = is_like_last(&way, g, first);
        sums->chunks[g] = alike ? sums->chunks[g - 1] : sum_chunk(&way, g, first);
    }
    add_shared(&way, sums->chunks);
    stage_sums_add_up(sums->chunks, path, sums->n_chunks, sums->stages);
    for (int s = 0; s < path.p; s++) {
        const StageWeights *weights = &sums->stages[s].weights;
        sums->repeats[s] =
            s > 0 && memcmp(weights, &sums->stages[s - 1].weights, sizeof(*weights)) == 0;
    }
    return true;
}
