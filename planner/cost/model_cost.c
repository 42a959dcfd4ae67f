#include "planner/cost/model_cost.h"

#include "ir/ops/parts.h"
#include "ir/ops/route.h"
#include "ir/teacher.h"
#include "planner/cost/count_calls.h"
#include "planner/cost/layout_bound.h"
#include "planner/cost/layout_cost.h"
#include "planner/cost/offload_cost.h"
#include "planner/cost/thin_model.h"

#include <string.h>

typedef struct CachedCost {
    int lowered;                   /* of the cache: its program */
    int offload[N_OFFLOAD_CHAINS]; /* likewise; -1: none */
    bool wanted, wants_split;      /* is to be priced; with its backwards in two */
    bool timed, timed_split;       /* likewise */
    struct CachedCost *compared;   /* what recomputes nothing; NULL: itself */
    struct CachedCost *next;       /* of the same program */
    LayoutCost cost;
} CachedCost;

struct ModelCostsCache {
    Arena *arena;
    PlanRequest request;                  /* of the thin model */
    const struct ModelCostsCache *alike;  /* model_costs_share; NULL: none */
    ThinModel *offload[N_OFFLOAD_CHAINS]; /* NULL: none */
    double *mask_elements;                /* of dropout, by kind; then before, after */
    int n_lowered, lowered_capacity;
    Lowered *lowered;
    int n_costs;
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

static bool same_program(const Lowered *a, const Lowered *b) {
    return a->t == b->t && a->c == b->c && a->e == b->e && a->lanes == b->lanes &&
           a->sequence_parallel == b->sequence_parallel && a->recompute == b->recompute &&
           a->zero == b->zero && a->split == b->split && a->offload == b->offload;
}

static int find_lowered(const struct ModelCostsCache *cache, const Lowered *key) {
    for (int i = 0; i < cache->n_lowered; i++) {
        if (same_program(&cache->lowered[i], key)) return i;
    }
    return -1;
}

/* Its place in the cache, made if there is none: then it is still to be filled, but for what
 * another model has. */
static int place_lowered(struct ModelCostsCache *cache, Lowered key) {
    key.sequence_parallel &= key.t > 1;
    int at = find_lowered(cache, &key);
    if (at >= 0) return at;
    at = cache->alike && key.e == 1 ? find_lowered(cache->alike, &key) : -1;
    if (at >= 0) {
        key = cache->alike->lowered[at];
        key.costs = NULL;
    }
    ARENA_PUSH(cache->arena, cache->lowered, cache->n_lowered, cache->lowered_capacity, key);
    return cache->n_lowered - 1;
}

/* Do their plans have a stem in common (planner.h)? */
static bool same_stem(const Lowered *a, const Lowered *b) {
    return a->t == b->t && a->c == b->c && a->e == b->e && a->lanes == b->lanes &&
           a->sequence_parallel == b->sequence_parallel && a->zero == b->zero &&
           a->offload == b->offload;
}

/* Plans it, in an arena that the cache will keep. stem: of it, or NULL. */
static void fill_lowered(const ModelCosts *costs, Lowered *lowered, PlanStem *stem, Arena *arena) {
    PlanRequest request = costs->cache->request;
    if (lowered->offload) {
        request.forward = costs->cache->offload[lowered->offload - 1]->graph;
        request.n_blocks = costs->cache->offload[lowered->offload - 1]->n_kept;
    } else {
        request.options.offload_activations = 0;
    }
    int n_batches = (lowered->zero ? 2 : 1) * lowered->e * lowered->lanes;
    if (n_batches > 1) request.forward = graph_scale_batch(request.forward, n_batches, arena);
    for (int axis = 0; axis < N_MESH_AXES; axis++) request.options.mesh.size[axis] = 1;
    request.options.mesh.size[MESH_T] = lowered->t;
    request.options.mesh.size[MESH_C] = lowered->c;
    request.options.mesh.size[MESH_E] = lowered->e;
    request.options.sequence_parallel = lowered->sequence_parallel;
    request.options.mesh.size[MESH_D] = lowered->zero ? 2 : 1;
    request.options.zero = lowered->zero;
    request.options.micro_batch = request.options.lanes = lowered->lanes;
    request.options.global_batch = n_batches;
    request.options.n_chunks = 1;
    request.options.recompute = lowered->recompute;
    request.options.schedule = lowered->split ? "zb-h1" : "1f1b";
    request.options.split = NULL;
    request.options.dump_after = NULL;
    request.options.priced = true;
    request.options.waits_for_messages = !costs->cluster->software.overlaps_block;
    Diag *diag = diag_create();
    lowered->plan = plan_make_of_stem(arena, &request, stem, diag);
    if (lowered->plan && !lowered->offload) {
        find_segments(lowered, arena);
        place_leaves(lowered, arena);
        const Plan *plan = lowered->plan;
        if (lowered->zero)
            lowered->data_bytes =
                program_workspace(plan->programs[0].graph, plan->cuda).bytes[WORKSPACE_DATA];
        else {
            lowered->leaves = layout_cost_count_parameters(lowered, costs->n_kinds, arena);
            lowered->lives = scratch_lives_create(lowered, costs->n_kinds, arena);
        }
    } else if (!lowered->plan) {
        const char *text = diag_text(diag);
        lowered->reason = arena_strndup(arena, text, strcspn(text, "\n"));
    }
    diag_destroy(diag);
}

static bool is_filled(const Lowered *lowered) {
    return lowered->plan || lowered->reason;
}

/* The program, filled; good until the next. */
static Lowered *lower(ModelCosts *costs, Lowered key) {
    int at = place_lowered(costs->cache, key);
    Lowered *lowered = &costs->cache->lowered[at];
    if (!is_filled(lowered)) fill_lowered(costs, lowered, NULL, costs->cache->arena);
    return lowered;
}

static CalledGraph called_graph(const Lowered *lowered, LayoutCost *out, Arena *work) {
    const Graph *graph = lowered->plan->programs[0].graph;
    CalledGraph called = {graph, ARENA_ARRAY(work, SegmentCost *, graph->n_nodes + 1),
                          lowered->places.tied};
    for (int n = 0; n < graph->n_nodes; n++) called.segments[n] = lowered_segment(lowered, n, out);
    return called;
}

const LayoutCost *model_costs_at(ModelCosts *costs, int t, bool sequence_parallel,
                                 Recompute recompute, int micro_batch, const char **out_reason) {
    return model_costs_divided(costs, t, 1, 1, sequence_parallel, recompute, micro_batch, 1,
                               out_reason);
}

/* What ZeRO-1 sends does not depend on what is computed again. */
static Lowered zero_key(const LayoutKey *key) {
    return (Lowered){.t = key->t,
                     .c = key->c,
                     .e = key->e,
                     .lanes = key->lanes,
                     .zero = true,
                     .recompute = RECOMPUTE_NONE};
}

/* Where scores are kept, what is selected for recomputation is attention: priced, not lowered. */
static Recompute lowered_recompute(const ModelCosts *costs, Recompute recompute) {
    bool scores = costs->cluster->software.attention == ATTENTION_MATERIALISED;
    return scores && recompute == RECOMPUTE_SELECTIVE ? RECOMPUTE_NONE : recompute;
}

static Lowered zero_key_of(const Lowered *program) {
    const LayoutKey key = {
        .t = program->t, .c = program->c, .e = program->e, .lanes = program->lanes};
    return zero_key(&key);
}

/* What the program emits, whatever its micro-batch, becomes part of its leaves; that with ZeRO is
 * filled. */
static void count_program(const struct ModelCostsCache *cache, const Lowered *lowered) {
    const Lowered key = zero_key_of(lowered);
    const Lowered *zero = &cache->lowered[find_lowered(cache, &key)];
    LayoutCost *leaves = lowered->leaves;
    Arena *work = arena_create();
    CalledGraph whole = called_graph(lowered, leaves, work), divided;
    bool alike = zero->plan && zero->places.n_weights == lowered->places.n_weights;
    if (alike) divided = called_graph(zero, leaves, work);
    count_calls(&whole, alike ? &divided : NULL, leaves, work);
    leaves->zero_bytes = zero->data_bytes; /* whatever d is; 0 where there is no plan */
    leaves->priced = true;
    arena_destroy(work);
}

/* The program in this place, which is filled, unless that was done. */
static void count_now(ModelCosts *costs, int at) {
    if (costs->cache->lowered[at].leaves->priced) return;
    lower(costs, zero_key_of(&costs->cache->lowered[at]));
    count_program(costs->cache, &costs->cache->lowered[at]);
}

static Lowered program_key(const ModelCosts *costs, const LayoutKey *key, bool split) {
    return (Lowered){.t = key->t,
                     .c = key->c,
                     .e = key->e,
                     .lanes = key->lanes,
                     .sequence_parallel = key->sequence_parallel,
                     .recompute = lowered_recompute(costs, key->recompute),
                     .split = split};
}

/* The layout's chains, if activations go; false: they cannot, and *out_reason says why. */
static bool place_offload(ModelCosts *costs, const LayoutKey *key, int out[N_OFFLOAD_CHAINS],
                          const char **out_reason) {
    for (int which = 0; which < N_OFFLOAD_CHAINS; which++) {
        Lowered offload = program_key(costs, key, false);
        out[which] = -1;
        if (!costs->cache->offload[which]) continue;
        offload.offload = which + 1;
        const Lowered *lowered = lower(costs, offload);
        out[which] = (int)(lowered - costs->cache->lowered);
        if (lowered->plan) continue;
        if (out_reason) *out_reason = lowered->reason;
        return false;
    }
    return true;
}

static LayoutKey without_recomputing(LayoutKey key) {
    key.recompute = RECOMPUTE_NONE;
    return key;
}

static LayoutCost layout_of(const LayoutKey *key) {
    return (LayoutCost){.t = key->t,
                        .c = key->c,
                        .e = key->e,
                        .lanes = key->lanes,
                        .micro_batch = key->micro_batch,
                        .sequence_parallel = key->sequence_parallel && key->t > 1,
                        .recompute = key->recompute};
}

static LayoutKey key_of(const LayoutCost *layout) {
    return (LayoutKey){.t = layout->t,
                       .c = layout->c,
                       .e = layout->e,
                       .lanes = layout->lanes,
                       .micro_batch = layout->micro_batch,
                       .sequence_parallel = layout->sequence_parallel,
                       .recompute = layout->recompute};
}

static CachedCost *find_cost(const Lowered *lowered, const LayoutKey *key) {
    for (CachedCost *known = lowered->costs; known; known = known->next) {
        if (known->cost.micro_batch == key->micro_batch && known->cost.recompute == key->recompute)
            return known;
    }
    return NULL;
}

/* What another model has of it, perhaps its price; else nothing but what it is. */
static LayoutCost start_cost(const ModelCosts *costs, const LayoutKey *key) {
    const struct ModelCostsCache *alike = costs->cache->alike;
    Lowered program = program_key(costs, key, false);
    program.sequence_parallel &= key->t > 1;
    int at = alike && key->e == 1 ? find_lowered(alike, &program) : -1;
    const CachedCost *known = at >= 0 ? find_cost(&alike->lowered[at], key) : NULL;
    return known ? known->cost : layout_of(key);
}

/* Its place in the cache, made if there is none, as are those of what it follows from; NULL: the
 * model cannot be divided like this, and *out_reason says why. Programs are filled. */
static CachedCost *place_cost(ModelCosts *costs, const LayoutKey *key, const char **out_reason) {
    struct ModelCostsCache *cache = costs->cache;
    const Lowered *lowered = lower(costs, program_key(costs, key, false));
    int at = (int)(lowered - cache->lowered);
    if (out_reason) *out_reason = lowered->reason;
    if (!lowered->plan) return NULL;
    CachedCost *known = find_cost(lowered, key);
    if (known) return known;
    int offload[N_OFFLOAD_CHAINS];
    if (!place_offload(costs, key, offload, out_reason)) return NULL;
    CachedCost *compared = NULL;
    if (key->recompute != RECOMPUTE_NONE) {
        const LayoutKey none = without_recomputing(*key);
        compared = place_cost(costs, &none, out_reason);
        if (!compared) return NULL;
    }
    CachedCost *made = ARENA_NEW(cache->arena, CachedCost);
    made->lowered = at;
    made->compared = compared;
    memcpy(made->offload, offload, sizeof(offload));
    made->cost = start_cost(costs, key);
    made->next = cache->lowered[at].costs;
    cache->lowered[at].costs = made;
    cache->n_costs++;
    return made;
}

static const OffloadCost *fill_offload(const ModelCosts *costs, const CachedCost *made,
                                       Arena *arena) {
    const struct ModelCostsCache *cache = costs->cache;
    OffloadCost *offload = NULL;
    for (int which = 0; which < N_OFFLOAD_CHAINS; which++) {
        if (made->offload[which] < 0) continue;
        if (!offload) offload = offload_cost_create(costs->n_kinds, arena);
        offload_cost_price(costs, cache->lowered[made->offload[which]].plan, cache->offload[which],
                           made->cost.micro_batch / made->cost.lanes, which, offload);
    }
    return offload;
}

/* Prices it, in an arena that the cache will keep; what it is compared with is priced already. */
static void fill_cost(const ModelCosts *costs, CachedCost *made, BatchScaler *scaler,
                      Arena *arena) {
    const struct ModelCostsCache *cache = costs->cache;
    const Lowered *lowered = &cache->lowered[made->lowered];
    made->cost.kinds = ARENA_ARRAY(arena, SegmentCost, costs->n_kinds + 1);
    made->cost.n_shared = lowered->places.n_weights;
    made->cost.shared = make_shared_weights(&lowered->places, costs, arena);
    layout_cost_price(costs, lowered, scaler, cache->mask_elements, &made->cost);
    made->cost.offload = fill_offload(costs, made, arena);
    if (made->compared) layout_cost_compare(costs, &made->compared->cost, &made->cost);
    made->cost.priced = true;
}

static const LayoutCost *price_cost(ModelCosts *costs, CachedCost *made) {
    if (made->compared) price_cost(costs, made->compared);
    if (made->cost.priced) return &made->cost;
    count_now(costs, made->lowered);
    BatchScaler scaler = {0};
    fill_cost(costs, made, &scaler, costs->cache->arena);
    batch_scaler_end(&scaler);
    return &made->cost;
}

const LayoutCost *model_costs_divided(ModelCosts *costs, int t, int c, int e,
                                      bool sequence_parallel, Recompute recompute, int micro_batch,
                                      int lanes, const char **out_reason) {
    const LayoutKey key = {t, c, e, micro_batch, lanes, sequence_parallel, recompute, false};
    if (micro_batch % lanes) {
        if (out_reason) *out_reason = "a micro-batch has no multiple of as many sequences as lanes";
        return NULL;
    }
    CachedCost *made = place_cost(costs, &key, out_reason);
    return made ? price_cost(costs, made) : NULL;
}

/* The layout with backwards in two. */
static void fill_split(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                       const LayoutCost *layout, Arena *arena, LayoutCost *out) {
    const LayoutKey key = key_of(layout);
    *out = layout_of(&key);
    out->kinds = ARENA_ARRAY(arena, SegmentCost, costs->n_kinds + 1);
    out->n_shared = lowered->places.n_weights;
    out->shared = make_shared_weights(&lowered->places, costs, arena);
    layout_cost_price(costs, lowered, scaler, costs->cache->mask_elements, out);
    out->before.model_flops = layout->before.model_flops;
    out->after.model_flops = layout->after.model_flops;
    for (int k = 0; k < costs->n_kinds; k++) {
        out->kinds[k].model_flops = layout->kinds[k].model_flops;
    }
}

void model_costs_split(ModelCosts *costs, const LayoutCost *layout) {
    struct ModelCostsCache *cache = costs->cache;
    const LayoutKey key = key_of(layout);
    if (layout->split || layout->recompute == RECOMPUTE_FULL) return;
    const Lowered *lowered = lower(costs, program_key(costs, &key, true));
    int at = (int)(lowered - cache->lowered);
    if (!lowered->plan) return;
    count_now(costs, at);
    lowered = &cache->lowered[at];
    LayoutCost *split = ARENA_NEW(cache->arena, LayoutCost);
    BatchScaler scaler = {0};
    fill_split(costs, lowered, &scaler, layout, cache->arena, split);
    batch_scaler_end(&scaler);
    ((LayoutCost *)layout)->split = split; /* the cache's own */
}

/* What a crew works on: items of the cache, each in an arena of its worker's. */
typedef struct CostWork {
    const ModelCosts *costs;
    int first, *stems;  /* of the cache's programs to be planned; the first of each stem */
    int *counted;       /* those whose calls are to be counted */
    CachedCost **items; /* or what is to be priced, or, below, to have its backwards in two */
    const Lowered **programs;
    LayoutCost **splits;
    Arena *arenas[MOST_CREW];
    BatchScaler scalers[MOST_CREW][2]; /* of the last programs; with backwards in two */
} CostWork;

static Arena *arena_of(CostWork *work, int worker) {
    if (!work->arenas[worker]) work->arenas[worker] = arena_create();
    return work->arenas[worker];
}

static void fill_programs(void *context, int worker, int begin, int end) {
    CostWork *work = context;
    const struct ModelCostsCache *cache = work->costs->cache;
    for (int i = begin; i < end; i++) {
        const Lowered *first = &cache->lowered[work->stems[i]];
        PlanStem *stem = plan_stem_create();
        for (int at = work->stems[i]; at < cache->n_lowered; at++) {
            Lowered *lowered = &cache->lowered[at];
            if (!is_filled(lowered) && same_stem(first, lowered))
                fill_lowered(work->costs, lowered, stem, arena_of(work, worker));
        }
        plan_stem_destroy(stem);
    }
}

/* Of programs that are not planned yet the first with each stem. */
static int find_stems(const struct ModelCostsCache *cache, CostWork *work) {
    int n = 0;
    work->stems = ARENA_ARRAY(cache->arena, int, cache->n_lowered - work->first + 1);
    for (int at = work->first; at < cache->n_lowered; at++) {
        bool known = is_filled(&cache->lowered[at]);
        for (int i = 0; i < n && !known; i++)
            known = same_stem(&cache->lowered[work->stems[i]], &cache->lowered[at]);
        if (!known) work->stems[n++] = at;
    }
    return n;
}

static void count_programs(void *context, int worker, int begin, int end) {
    const CostWork *work = context;
    const struct ModelCostsCache *cache = work->costs->cache;
    (void)worker;
    for (int i = begin; i < end; i++) count_program(cache, &cache->lowered[work->counted[i]]);
}

static void fill_costs(void *context, int worker, int begin, int end) {
    CostWork *work = context;
    for (int i = begin; i < end; i++) {
        fill_cost(work->costs, work->items[i], &work->scalers[worker][0], arena_of(work, worker));
    }
}

static void fill_splits(void *context, int worker, int begin, int end) {
    CostWork *work = context;
    for (int i = begin; i < end; i++) {
        fill_split(work->costs, work->programs[i], &work->scalers[worker][1], &work->items[i]->cost,
                   arena_of(work, worker), work->splits[i]);
    }
}

static bool may_split(const LayoutKey *key) {
    return key->splits && key->recompute != RECOMPUTE_FULL;
}

/* Programs of the keys, planned by all threads; `zeros`: those whose shards are sent as well. */
static void prepare_programs(ModelCosts *costs, const LayoutKey *keys, int n_keys, bool zeros,
                             const Crew *crew, CostWork *work) {
    struct ModelCostsCache *cache = costs->cache;
    work->first = cache->n_lowered;
    for (int i = 0; i < n_keys; i++) {
        const LayoutKey none = without_recomputing(keys[i]);
        place_lowered(cache, program_key(costs, &keys[i], false));
        place_lowered(cache, program_key(costs, &none, false));
        if (zeros) place_lowered(cache, zero_key(&keys[i]));
        if (may_split(&keys[i])) place_lowered(cache, program_key(costs, &keys[i], true));
        for (int which = 0; which < N_OFFLOAD_CHAINS; which++) {
            Lowered offload = program_key(costs, &keys[i], false);
            Lowered offload_none = program_key(costs, &none, false);
            offload.offload = offload_none.offload = which + 1;
            if (!cache->offload[which]) continue;
            place_lowered(cache, offload);
            place_lowered(cache, offload_none);
        }
    }
    crew_run(crew, "thin models planned", find_stems(cache, work), 1, fill_programs, work);
}

/* Of the keys' programs, and of those that they are compared with. */
static void prepare_calls(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew,
                          CostWork *work) {
    struct ModelCostsCache *cache = costs->cache;
    bool *known = ARENA_ARRAY(cache->arena, bool, cache->n_lowered + 1);
    int n = 0;
    work->counted = ARENA_ARRAY(cache->arena, int, cache->n_lowered + 1);
    for (int i = 0; i < n_keys; i++) {
        const LayoutKey none = without_recomputing(keys[i]);
        const Lowered programs[] = {program_key(costs, &keys[i], false),
                                    program_key(costs, &none, false),
                                    program_key(costs, &keys[i], true)};
        for (int k = 0; k < 2 + may_split(&keys[i]); k++) {
            int at = place_lowered(cache, programs[k]);
            const LayoutCost *leaves = cache->lowered[at].leaves;
            if (!known[at] && leaves && !leaves->priced) work->counted[n++] = at;
            known[at] = true;
        }
    }
    crew_run(crew, "calls counted", n, 4, count_programs, work);
}

/* Those that recompute are compared with those that do not: these first. */
static void prepare_costs(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew,
                          CostWork *work) {
    struct ModelCostsCache *cache = costs->cache;
    for (int i = 0; i < n_keys; i++) {
        CachedCost *cost = place_cost(costs, &keys[i], NULL);
        for (; cost; cost = cost->compared) cost->wanted = true;
    }
    work->items = ARENA_ARRAY(cache->arena, CachedCost *, cache->n_costs + 1);
    for (int compared = 0; compared < 2; compared++) {
        int n = 0;
        for (int at = 0; at < cache->n_lowered; at++) { /* what shares a program together */
            for (CachedCost *cost = cache->lowered[at].costs; cost; cost = cost->next) {
                bool wanted = cost->wanted && !cost->cost.priced;
                if (wanted && (cost->compared != NULL) == compared) work->items[n++] = cost;
            }
        }
        crew_run(crew, "thin models priced", n, 1, fill_costs, work);
    }
}

static void prepare_splits(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew,
                           CostWork *work) {
    struct ModelCostsCache *cache = costs->cache;
    int n = 0;
    for (int i = 0; i < n_keys; i++) {
        CachedCost *cost = may_split(&keys[i]) ? place_cost(costs, &keys[i], NULL) : NULL;
        if (cost) cost->wants_split = true;
    }
    work->items = ARENA_ARRAY(cache->arena, CachedCost *, cache->n_costs + 1);
    work->splits = ARENA_ARRAY(cache->arena, LayoutCost *, cache->n_costs + 1);
    work->programs = ARENA_ARRAY(cache->arena, const Lowered *, cache->n_costs + 1);
    for (int at = 0; at < cache->n_lowered; at++) {
        for (CachedCost *cost = cache->lowered[at].costs; cost; cost = cost->next) {
            if (!cost->wants_split || cost->cost.split) continue;
            const LayoutKey key = key_of(&cost->cost);
            const Lowered *split = lower(costs, program_key(costs, &key, true));
            if (!split->plan) continue;
            work->items[n] = cost;
            work->programs[n] = split;
            work->splits[n] = ARENA_NEW(cache->arena, LayoutCost);
            cost->cost.split = work->splits[n++];
        }
    }
    crew_run(crew, "thin models with backwards in two priced", n, 1, fill_splits, work);
}

static void fill_bounds(void *context, int worker, int begin, int end) {
    CostWork *work = context;
    for (int i = begin; i < end; i++) {
        LayoutCost *cost = &work->items[i]->cost;
        const Lowered *lowered = &work->costs->cache->lowered[work->items[i]->lowered];
        int n_more = cost->micro_batch / cost->lanes;
        Arena *arena = arena_of(work, worker);
        cost->bound = layout_bound_make(work->costs, lowered, n_more, arena);
        if (work->programs[i])
            cost->split_bound = layout_bound_make(work->costs, work->programs[i], n_more, arena);
    }
}

static void prepare_bounds(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew,
                           CostWork *work) {
    struct ModelCostsCache *cache = costs->cache;
    int n = 0;
    work->items = ARENA_ARRAY(cache->arena, CachedCost *, n_keys + 1);
    work->programs = ARENA_ARRAY(cache->arena, const Lowered *, n_keys + 1);
    for (int i = 0; i < n_keys; i++) {
        CachedCost *cost = place_cost(costs, &keys[i], NULL);
        if (!cost) continue;
        const Lowered *split =
            may_split(&keys[i]) ? lower(costs, program_key(costs, &keys[i], true)) : NULL;
        if (split && !split->plan) split = NULL;
        cost->cost.can_split |= split != NULL;
        if (cost->cost.bound && (cost->cost.split_bound || !split)) continue;
        cost->cost.bound = NULL;
        work->items[n] = cost;
        work->programs[n++] = split;
    }
    crew_run(crew, "layouts bounded", n, 16, fill_bounds, work);
}

static double time_program(const ModelCosts *costs, const Lowered *lowered, BatchScaler *scaler,
                           const LayoutCost *layout) {
    Arena *work = arena_create();
    const LayoutKey key = key_of(layout);
    LayoutCost timed = layout_of(&key);
    timed.kinds = ARENA_ARRAY(work, SegmentCost, costs->n_kinds + 1);
    timed.shared = ARENA_ARRAY(work, SharedWeight, lowered->places.n_weights + 1);
    layout_cost_time(costs, lowered, scaler, &timed);
    double us = layout_work_us(costs, &timed);
    arena_destroy(work);
    return us;
}

static void fill_times(void *context, int worker, int begin, int end) {
    CostWork *work = context;
    for (int i = begin; i < end; i++) {
        LayoutCost *cost = &work->items[i]->cost;
        const Lowered *lowered = &work->costs->cache->lowered[work->items[i]->lowered];
        BatchScaler *scalers = work->scalers[worker];
        cost->work_us = time_program(work->costs, lowered, &scalers[0], cost);
        if (work->programs[i])
            cost->split_work_us = time_program(work->costs, work->programs[i], &scalers[1], cost);
    }
}

static void keep_arenas(ModelCosts *costs, CostWork *work) {
    for (int i = 0; i < MOST_CREW; i++) {
        if (work->arenas[i]) arena_own(costs->cache->arena, work->arenas[i]);
        for (int split = 0; split < 2; split++) batch_scaler_end(&work->scalers[i][split]);
    }
}

void model_costs_time(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    CostWork work = {.costs = costs};
    int n = 0;
    /* Software that computes a whole forward again is priced by what does not. */
    if (costs->cluster->software.recomputes_all) return;
    for (int i = 0; i < n_keys; i++) {
        CachedCost *cost = place_cost(costs, &keys[i], NULL);
        if (!cost || cost->cost.work_us > 0) continue;
        cost->timed = true;
        cost->timed_split |= may_split(&keys[i]);
    }
    work.items = ARENA_ARRAY(costs->cache->arena, CachedCost *, costs->cache->n_costs + 1);
    work.programs = ARENA_ARRAY(costs->cache->arena, const Lowered *, costs->cache->n_costs + 1);
    for (int at = 0; at < costs->cache->n_lowered; at++) {
        for (CachedCost *cost = costs->cache->lowered[at].costs; cost; cost = cost->next) {
            if (!cost->timed || cost->cost.work_us > 0) continue;
            const LayoutKey key = key_of(&cost->cost);
            const Lowered *split =
                cost->timed_split ? lower(costs, program_key(costs, &key, true)) : NULL;
            work.items[n] = cost;
            work.programs[n++] = split && split->plan ? split : NULL;
        }
    }
    crew_run(crew, "thin models timed", n, 1, fill_times, &work);
    keep_arenas(costs, &work);
}

void model_costs_plan(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    CostWork work = {.costs = costs};
    prepare_programs(costs, keys, n_keys, false, crew, &work);
    prepare_bounds(costs, keys, n_keys, crew, &work);
    keep_arenas(costs, &work);
}

const LayoutCost *model_costs_place(ModelCosts *costs, const LayoutKey *key,
                                    const char **out_reason) {
    CachedCost *made = place_cost(costs, key, out_reason);
    return made ? &made->cost : NULL;
}

void model_costs_price(ModelCosts *costs, const LayoutCost *layout, bool splits) {
    const LayoutKey key = key_of(layout);
    price_cost(costs, place_cost(costs, &key, NULL));
    if (splits) model_costs_split(costs, layout);
}

void model_costs_prepare(ModelCosts *costs, const LayoutKey *keys, int n_keys, const Crew *crew) {
    CostWork work = {.costs = costs};
    prepare_programs(costs, keys, n_keys, true, crew, &work);
    prepare_calls(costs, keys, n_keys, crew, &work);
    prepare_costs(costs, keys, n_keys, crew, &work);
    prepare_splits(costs, keys, n_keys, crew, &work);
    keep_arenas(costs, &work);
}

void model_costs_share(ModelCosts *costs, const ModelCosts *alike) {
    costs->cache->alike = alike->cache;
}

static void count_logical(ModelCosts *costs, const Graph *forward) {
    for (int n = 0; n < forward->n_nodes; n++) {
        const Node *node = forward->nodes[n];
        costs->is_random |= node_draws(node);
        if (node->op == OP_PARAM) {
            int64_t elements = type_elements(&node->types[0]);
            costs->n_parameters += elements;
            if (!node_is_frozen(node)) costs->n_trained += elements;
            if (!teacher_own_name(node_string(node, ATTR_name)))
                costs->saved_weight_bytes += elements * dtype_bytes(DTYPE_F32);
        }
        int at = type_find_axis(&node->types[0], axis_find(&forward->axes, "experts", 7));
        if (node->op == OP_PARAM && at >= 0) costs->n_experts = node->types[0].dims[at];
    }
    costs->n_active_parameters = route_count_active(forward);
}

/* What a checkpoint has of states and variables, by a program of one rank: of the thin model, whose
 * blocks stand for all of their kind. */
static void count_saved(ModelCosts *costs, const Lowered *whole) {
    const Graph *graph = whole->plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool state = node->op == OP_STATE && !node_is_copy(node);
        if (!state && node->op != OP_VARIABLE) continue;
        DType dtype = node->types[0].dtype;
        if (dtype_is_moment(dtype)) dtype = DTYPE_F32; /* as files have it */
        int64_t bytes = type_elements(&node->types[0]) * dtype_bytes(dtype);
        int n_alike = node->block == NO_BLOCK;
        for (int b = 0; b < costs->n_blocks && node->block != NO_BLOCK; b++) {
            n_alike += costs->kind_of_block[b] == node->block;
        }
        costs->saved_state_bytes += n_alike * bytes;
    }
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

/* Models whose activations go to the host, if that was asked for. */
static bool make_chains(ModelCosts *costs, const PlanRequest *request, Diag *diag) {
    struct ModelCostsCache *cache = costs->cache;
    const int RUNS[N_OFFLOAD_CHAINS] = {2, OFFLOAD_CHAIN_BLOCKS};
    costs->offload_activations = request->options.offload_activations;
    for (int which = 0; which < N_OFFLOAD_CHAINS && costs->offload_activations; which++) {
        if (which == OFFLOAD_PAIR && costs->n_kinds > 1) continue; /* pairs are many */
        cache->offload[which] =
            thin_chain(cache->arena, request->forward, request->n_blocks, RUNS[which], diag);
        if (!cache->offload[which]) return false;
    }
    return true;
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
    if (!make_chains(costs, request, diag)) return NULL;
    /* The whole model on one rank must be possible: it is what everything is compared with. */
    const char *reason;
    const LayoutCost *whole = model_costs_at(costs, 1, false, RECOMPUTE_NONE, 1, &reason);
    if (!whole) {
        diag_error(diag, NO_LOC, "%s", reason);
        return NULL;
    }
    count_saved(costs, lower(costs, (Lowered){.t = 1, .c = 1, .e = 1, .lanes = 1}));
    costs->model_flops = whole->before.model_flops + whole->after.model_flops;
    for (int b = 0; b < costs->n_blocks; b++) {
        costs->model_flops += whole->kinds[costs->kind_of_block[b]].model_flops;
    }
    return costs;
}
