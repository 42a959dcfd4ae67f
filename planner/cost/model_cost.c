#include "planner/cost/model_cost.h"

#include "ir/ops/parts.h"
#include "ir/ops/route.h"
#include "planner/cost/count_calls.h"
#include "planner/cost/layout_cost.h"
#include "planner/cost/thin_model.h"

#include <string.h>

typedef struct CachedCost {
    int lowered;
    LayoutCost cost;
} CachedCost;

struct ModelCostsCache {
    Arena *arena;
    PlanRequest request;   /* of the thin model */
    double *mask_elements; /* of dropout, by kind; then before, after */
    int n_lowered, lowered_capacity;
    Lowered *lowered;
    int n_costs, costs_capacity;
    const CachedCost **costs;
};

/* Nodes without a block come before them or after; backward nodes go by what they follow. A partial
 * sum is completed where it is first read, which may be the next block: it is who made it that
 * needs the message. */
static void find_segments(Lowered *lowered, Arena *arena) {
    const Graph *graph = lowered->plan->programs[0].graph;
    int n = graph->n_nodes;
    lowered->segment = ARENA_ARRAY(arena, int, n + 1);
    bool *follows = ARENA_ARRAY(arena, bool, n + 1); /* a block's node of the same phase */
    for (int i = 0; i < n; i++) {
        const Node *node = graph->nodes[i];
        bool leaf = OPS[node->op].flags & LEAF;
        follows[i] = node->block != NO_BLOCK && !leaf;
        for (int k = 0; k < node->n_inputs; k++) {
            const Node *from = node->inputs[k].node;
            follows[i] |= from->phase == node->phase && follows[from->id];
        }
        bool after = node->phase == PHASE_FORWARD ? follows[i] : !follows[i];
        lowered->segment[i] = node->block != NO_BLOCK ? node->block
                              : after                 ? SEGMENT_AFTER
                                                      : SEGMENT_BEFORE;
        bool completes = node->op == OP_ALL_REDUCE || node->op == OP_REDUCE_SCATTER;
        if (completes && node->inputs[0].node->phase == node->phase) {
            lowered->segment[i] = lowered->segment[node->inputs[0].node->id];
        }
    }
}

/* Leaves sit where they are read in forward or backward. What belongs to a parameter (state,
 * accumulator, optimizer) goes with it. */
static void place_leaves(Lowered *lowered, Arena *arena) {
    const Graph *graph = lowered->plan->programs[0].graph;
    lowered->places = find_leaf_places(graph, lowered->segment, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->block != NO_BLOCK || !(OPS[node->op].flags & LEAF)) continue;
        lowered->segment[n] = lowered->places.before[n] ? SEGMENT_BEFORE : SEGMENT_AFTER;
    }
}

static Lowered *lower(ModelCosts *costs, int t, int c, int e, int lanes, bool sequence_parallel,
                      Recompute recompute, bool zero, bool split) {
    struct ModelCostsCache *cache = costs->cache;
    sequence_parallel &= t > 1;
    for (int i = 0; i < cache->n_lowered; i++) {
        Lowered *known = &cache->lowered[i];
        if (known->t == t && known->c == c && known->e == e && known->lanes == lanes &&
            known->sequence_parallel == sequence_parallel && known->recompute == recompute &&
            known->zero == zero && known->split == split) {
            return known;
        }
    }
    Lowered lowered = {.t = t,
                       .c = c,
                       .e = e,
                       .lanes = lanes,
                       .sequence_parallel = sequence_parallel,
                       .recompute = recompute,
                       .zero = zero,
                       .split = split};
    PlanRequest request = cache->request;
    int n_batches = (zero ? 2 : 1) * e * lanes;
    if (n_batches > 1) {
        request.forward = graph_scale_batch(request.forward, n_batches, cache->arena);
    }
    for (int axis = 0; axis < N_MESH_AXES; axis++) request.options.mesh.size[axis] = 1;
    request.options.mesh.size[MESH_T] = t;
    request.options.mesh.size[MESH_C] = c;
    request.options.mesh.size[MESH_E] = e;
    request.options.sequence_parallel = sequence_parallel;
    request.options.mesh.size[MESH_D] = zero ? 2 : 1;
    request.options.zero = zero;
    request.options.micro_batch = request.options.lanes = lanes;
    request.options.global_batch = n_batches;
    request.options.n_chunks = 1;
    request.options.recompute = recompute;
    request.options.schedule = split ? "zb-h1" : "1f1b";
    request.options.split = NULL;
    request.options.dump_after = NULL;
    request.options.priced = true;
    request.options.waits_for_messages = !costs->cluster->software.overlaps_block;
    Diag *diag = diag_create();
    lowered.plan = plan_make(cache->arena, &request, diag);
    if (lowered.plan) {
        find_segments(&lowered, cache->arena);
        place_leaves(&lowered, cache->arena);
    } else {
        const char *text = diag_text(diag);
        lowered.reason = arena_strndup(cache->arena, text, strcspn(text, "\n"));
    }
    diag_destroy(diag);
    ARENA_PUSH(cache->arena, cache->lowered, cache->n_lowered, cache->lowered_capacity, lowered);
    return &cache->lowered[cache->n_lowered - 1];
}

/* What messages of shards are packed in, whatever d is. 0 where such a plan cannot be. */
static int64_t zero_bytes(const Lowered *zero) {
    if (!zero->plan) return 0;
    return program_workspace(zero->plan->programs[0].graph, zero->plan->cuda).bytes[WORKSPACE_DATA];
}

static CalledGraph called_graph(const Lowered *lowered, LayoutCost *out, Arena *work) {
    const Graph *graph = lowered->plan->programs[0].graph;
    CalledGraph called = {graph, ARENA_ARRAY(work, SegmentCost *, graph->n_nodes + 1),
                          lowered->places.tied};
    for (int n = 0; n < graph->n_nodes; n++) called.segments[n] = lowered_segment(lowered, n, out);
    return called;
}

static void count_lowered_calls(const Lowered *lowered, const Lowered *zero, LayoutCost *out) {
    Arena *work = arena_create();
    CalledGraph whole = called_graph(lowered, out, work), divided;
    bool alike = zero->plan && zero->places.n_weights == lowered->places.n_weights;
    if (alike) divided = called_graph(zero, out, work);
    count_calls(&whole, alike ? &divided : NULL, out, work);
    arena_destroy(work);
}

const LayoutCost *model_costs_at(ModelCosts *costs, int t, bool sequence_parallel,
                                 Recompute recompute, int micro_batch, const char **out_reason) {
    return model_costs_divided(costs, t, 1, 1, sequence_parallel, recompute, micro_batch, 1,
                               out_reason);
}

const LayoutCost *model_costs_divided(ModelCosts *costs, int t, int c, int e,
                                      bool sequence_parallel, Recompute recompute, int micro_batch,
                                      int lanes, const char **out_reason) {
    struct ModelCostsCache *cache = costs->cache;
    if (micro_batch % lanes) {
        if (out_reason) *out_reason = "a micro-batch has no multiple of as many sequences as lanes";
        return NULL;
    }
    /* Where scores are kept, what is selected for recomputation is attention: priced, not lowered.
     */
    bool scores = costs->cluster->software.attention == ATTENTION_MATERIALISED;
    bool priced = scores && recompute == RECOMPUTE_SELECTIVE;
    const Lowered *lowered = lower(costs, t, c, e, lanes, sequence_parallel,
                                   priced ? RECOMPUTE_NONE : recompute, false, false);
    int index = (int)(lowered - cache->lowered);
    if (out_reason) *out_reason = lowered->reason;
    if (!lowered->plan) return NULL;
    for (int i = 0; i < cache->n_costs; i++) {
        const CachedCost *known = cache->costs[i];
        if (known->lowered == index && known->cost.micro_batch == micro_batch &&
            known->cost.recompute == recompute) {
            return &known->cost;
        }
    }
    const LayoutCost *none = NULL;
    if (recompute != RECOMPUTE_NONE) {
        none = model_costs_divided(costs, t, c, e, sequence_parallel, RECOMPUTE_NONE, micro_batch,
                                   lanes, out_reason);
        if (!none) return NULL;
        lowered = &cache->lowered[index]; /* the array may have moved */
    }
    CachedCost *made = ARENA_NEW(cache->arena, CachedCost);
    made->lowered = index;
    made->cost = (LayoutCost){.t = t,
                              .c = c,
                              .e = e,
                              .lanes = lanes,
                              .micro_batch = micro_batch,
                              .sequence_parallel = sequence_parallel,
                              .recompute = recompute};
    made->cost.kinds = ARENA_ARRAY(cache->arena, SegmentCost, costs->n_kinds + 1);
    made->cost.n_shared = lowered->places.n_weights;
    made->cost.shared = make_shared_weights(&lowered->places, costs, cache->arena);
    layout_cost_price(costs, lowered, cache->mask_elements, &made->cost);
    const Lowered *zero = lower(costs, t, c, e, lanes, false, RECOMPUTE_NONE, true, false);
    lowered = &cache->lowered[index];
    made->cost.zero_bytes = zero_bytes(zero);
    count_lowered_calls(lowered, zero, &made->cost);
    if (none) layout_cost_compare(costs, none, &made->cost);
    const CachedCost *kept = made;
    ARENA_PUSH(cache->arena, cache->costs, cache->n_costs, cache->costs_capacity, kept);
    return &made->cost;
}

static LayoutCost *new_layout(ModelCosts *costs, const Lowered *lowered, Recompute recompute,
                              int micro_batch) {
    Arena *arena = costs->cache->arena;
    LayoutCost *layout = ARENA_NEW(arena, LayoutCost);
    *layout = (LayoutCost){.t = lowered->t,
                           .c = lowered->c,
                           .e = lowered->e,
                           .lanes = lowered->lanes,
                           .micro_batch = micro_batch,
                           .sequence_parallel = lowered->sequence_parallel,
                           .recompute = recompute};
    layout->kinds = ARENA_ARRAY(arena, SegmentCost, costs->n_kinds + 1);
    layout->n_shared = lowered->places.n_weights;
    layout->shared = make_shared_weights(&lowered->places, costs, arena);
    return layout;
}

void model_costs_split(ModelCosts *costs, const LayoutCost *layout) {
    bool sp = layout->sequence_parallel;
    if (layout->split || layout->recompute == RECOMPUTE_FULL) return;
    bool priced = costs->cluster->software.attention == ATTENTION_MATERIALISED;
    Recompute recompute = priced ? RECOMPUTE_NONE : layout->recompute;
    int t = layout->t, c = layout->c, e = layout->e, lanes = layout->lanes;
    const Lowered *lowered = lower(costs, t, c, e, lanes, sp, recompute, false, true);
    int index = (int)(lowered - costs->cache->lowered);
    if (!lowered->plan) return;
    LayoutCost *split = new_layout(costs, lowered, layout->recompute, layout->micro_batch);
    layout_cost_price(costs, lowered, costs->cache->mask_elements, split);
    const Lowered *zero = lower(costs, t, c, e, lanes, false, RECOMPUTE_NONE, true, false);
    split->zero_bytes = layout->zero_bytes;
    count_lowered_calls(&costs->cache->lowered[index], zero, split);
    split->before.model_flops = layout->before.model_flops;
    split->after.model_flops = layout->after.model_flops;
    for (int k = 0; k < costs->n_kinds; k++) {
        split->kinds[k].model_flops = layout->kinds[k].model_flops;
    }
    ((LayoutCost *)layout)->split = split; /* the cache's own */
}

static void count_logical(ModelCosts *costs, const Graph *forward) {
    for (int n = 0; n < forward->n_nodes; n++) {
        const Node *node = forward->nodes[n];
        if (node->op == OP_PARAM) {
            int64_t elements = type_elements(&node->types[0]);
            costs->n_parameters += elements;
            if (!node_is_frozen(node)) costs->n_trained += elements;
        }
        int at = type_find_axis(&node->types[0], axis_find(&forward->axes, "experts", 7));
        if (node->op == OP_PARAM && at >= 0) costs->n_experts = node->types[0].dims[at];
    }
    costs->n_active_parameters = route_count_active(forward);
}

static void count_masks(struct ModelCostsCache *cache, const Graph *thin, int n_kinds) {
    cache->mask_elements = ARENA_ARRAY(cache->arena, double, n_kinds + 1);
    for (int n = 0; n < thin->n_nodes; n++) {
        const Node *node = thin->nodes[n];
        if (node->op != OP_DROPOUT) continue;
        int slot = node->block == NO_BLOCK ? n_kinds : node->block;
        cache->mask_elements[slot] += (double)type_elements(&node->types[0]);
    }
}

ModelCosts *model_costs_create(Arena *arena, const PlanRequest *request, const Cluster *cluster,
                               Diag *diag) {
    ThinModel *thin = thin_model(arena, request->forward, request->n_blocks, diag);
    if (!thin) return NULL;
    ModelCosts *costs = ARENA_NEW(arena, ModelCosts);
    costs->model = request->model;
    costs->cluster = cluster;
    costs->n_blocks = request->n_blocks;
    costs->n_kinds = thin->n_kinds;
    costs->kind_of_block = thin->kind_of_block;
    costs->seq = request->seq;
    costs->source = graph_source(request->forward);
    costs->vocab = request->vocab;
    count_logical(costs, request->forward);
    costs->has_pairs = graph_has_pairs(request->forward);
    costs->cache = ARENA_NEW(arena, struct ModelCostsCache);
    costs->cache->arena = arena;
    costs->cache->request = *request;
    costs->cache->request.forward = thin->graph;
    costs->cache->request.n_blocks = thin->n_kinds;
    int *multiple = &costs->cache->request.options.vocab_multiple;
    if (!*multiple && !cluster->software.fills_vocab) *multiple = 1;
    count_masks(costs->cache, thin->graph, thin->n_kinds);
    /* The whole model on one rank must be possible: it is what everything is compared with. */
    const char *reason;
    const LayoutCost *whole = model_costs_at(costs, 1, false, RECOMPUTE_NONE, 1, &reason);
    if (!whole) {
        diag_error(diag, NO_LOC, "%s", reason);
        return NULL;
    }
    costs->model_flops = whole->before.model_flops + whole->after.model_flops;
    for (int b = 0; b < costs->n_blocks; b++) {
        costs->model_flops += whole->kinds[costs->kind_of_block[b]].model_flops;
    }
    return costs;
}
