#include "planner/search/search_records.h"

#include "ir/base/memory.h"
#include "planner/cost/step_bound.h"

#include <stdlib.h>
#include <string.h>

/* Layouts asked for, by what they depend on: open addressing. */
typedef struct LayoutSlot {
    bool used, known;
    bool may_fit, may_split; /* something of it; of it with backwards in two */
    LayoutKey key;
    const LayoutCost *layout; /* once known; NULL: the model cannot be divided like this */
} LayoutSlot;

enum { LAYOUT_SLOTS = 1 << 14 };

static void refuse(SearchRecords *records, int t, const char *reason) {
    for (int i = 0; i < records->n_refusals; i++) {
        if (records->refusals[i].t == t) return;
    }
    SearchRefusal refusal = {t, arena_strdup(records->arena, reason)};
    ARENA_PUSH(records->arena, records->refusals, records->n_refusals, records->refusal_capacity,
               refusal);
}

static LayoutKey layout_key(const Candidate *c) {
    return (LayoutKey){c->t,
                       candidate_c(c),
                       candidate_e(c),
                       c->micro_batch,
                       candidate_lanes(c),
                       c->sequence_parallel,
                       c->recompute,
                       false};
}

/* Where the layout is kept; NULL: there is no room for more. */
static LayoutSlot *find_slot(SearchRecords *records, const LayoutKey *key) {
    uint32_t at =
        ((uint32_t)key->t * 1000003u + (uint32_t)key->micro_batch * 8191u +
         (uint32_t)key->recompute * 131u + (uint32_t)key->c * 17u + (uint32_t)key->e * 257u +
         (uint32_t)key->lanes * 65537u + key->sequence_parallel) %
        LAYOUT_SLOTS;
    for (;; at = (at + 1) % LAYOUT_SLOTS) {
        LayoutSlot *slot = &records->layouts[at];
        if (!slot->used) break;
        const LayoutKey *other = &slot->key;
        if (other->t == key->t && other->c == key->c && other->e == key->e &&
            other->micro_batch == key->micro_batch && other->recompute == key->recompute &&
            other->sequence_parallel == key->sequence_parallel && other->lanes == key->lanes) {
            return slot;
        }
    }
    if (records->n_layouts >= LAYOUT_SLOTS / 2) return NULL;
    records->n_layouts++;
    records->layouts[at] = (LayoutSlot){.used = true, .key = *key};
    return &records->layouts[at];
}

static const LayoutCost *find_layout(SearchRecords *records, const Candidate *c) {
    const LayoutKey key = layout_key(c);
    LayoutSlot *slot = find_slot(records, &key);
    if (slot && slot->known) return slot->layout;
    const char *reason = NULL;
    bool whole = key.micro_batch % key.lanes == 0; /* else there is no such thing */
    const LayoutCost *layout =
        slot && whole
            ? model_costs_place(records->costs, &key, &reason)
            : model_costs_divided(records->costs, key.t, key.c, key.e, key.sequence_parallel,
                                  key.recompute, key.micro_batch, key.lanes, &reason);
    const SearchRequest *request = records->space.request;
    bool may = (key.c == 1 || request->c != ANY) && /* else t is not to blame */
               (key.e == 1 || request->e != ANY) && (key.lanes == 1 || request->lanes != ANY);
    if (!layout && may)
        refuse(records, key.t, reason ? reason : "the model cannot be divided like this");
    if (slot) slot->known = true, slot->layout = layout;
    return layout;
}

/* The values of an axis that a candidate may have, in order; returns how many. */
static int axis_values(const SearchSpace *space, const SearchAxis *axis, const Candidate *candidate,
                       int values[MOST_VALUES]) {
    int fixed = axis->fixed(space);
    if (fixed < 0) return axis->values(space, candidate, values);
    values[0] = fixed;
    return axis->allows(space, candidate, fixed);
}

/* Does some candidate from here on cut its backwards in two? */
static bool may_split(const SearchSpace *space, int row, Candidate candidate) {
    if (row == N_SEARCH_AXES) return schedule_splits(candidate.schedule);
    int values[MOST_VALUES], n = axis_values(space, &SEARCH_AXES[row], &candidate, values);
    for (int i = 0; i < n; i++) {
        SEARCH_AXES[row].set(space, &candidate, values[i]);
        if (may_split(space, row + 1, candidate)) return true;
    }
    return false;
}

/* Notes all layouts that enumerate will ask for. */
static void collect(SearchRecords *records, int row, Candidate candidate) {
    const SearchSpace *space = &records->space;
    if (row == SEARCH_LAYOUT_AXES) {
        const LayoutKey key = layout_key(&candidate);
        LayoutSlot *slot = find_slot(records, &key);
        if (slot && !slot->key.splits) slot->key.splits = may_split(space, row, candidate);
        return;
    }
    int values[MOST_VALUES], n = axis_values(space, &SEARCH_AXES[row], &candidate, values);
    for (int i = 0; i < n; i++) {
        SEARCH_AXES[row].set(space, &candidate, values[i]);
        collect(records, row + 1, candidate);
    }
}

/* The most of ZeRO's stages that a candidate with these degrees may have. */
static int most_zero(const SearchSpace *space, const Candidate *candidate) {
    const SearchRequest *request = space->request;
    if (request->zero >= 0) return request->zero;
    return candidate_replicas(candidate) > 1 ? space->costs->cluster->software.zero_stages : 0;
}

bool search_may_fit(const SearchSpace *space, const SearchRecord *record, double limit_bytes) {
    Candidate candidate = record->candidate;
    candidate.d *= candidate_r(&candidate);
    candidate.r = 1;
    return step_may_fit(space->costs, record->layout, &candidate, most_zero(space, &candidate),
                        limit_bytes);
}

/* Of what follows row SEARCH_LAYOUT_AXES, which schedules and chunks say about frames. */
static void find_fitting(const SearchRecords *records, int row, Candidate candidate,
                         LayoutSlot *slot) {
    const SearchSpace *space = &records->space;
    bool splits = row > SEARCH_LAYOUT_AXES && schedule_splits(candidate.schedule);
    if (slot->may_fit && row > SEARCH_LAYOUT_AXES && (!splits || slot->may_split)) return;
    if (row == SEARCH_FRAME_AXES) {
        const SearchRecord record = {candidate, slot->layout, INFINITY, 0};
        if (splits && !slot->layout->can_split) return;
        if (!search_may_fit(space, &record, records->limit_bytes)) return;
        slot->may_fit = true;
        slot->may_split |= splits;
        return;
    }
    const SearchAxis *axis = &SEARCH_AXES[row];
    int values[MOST_VALUES], n = axis_values(space, axis, &candidate, values);
    for (int i = 0; i < n; i++) {
        axis->set(space, &candidate, values[i]);
        find_fitting(records, row + 1, candidate, slot);
    }
}

/* Which layouts are there, and does anything of them fit? */
static void bound_layouts(SearchRecords *records, int row, Candidate candidate) {
    const SearchSpace *space = &records->space;
    if (row == SEARCH_LAYOUT_AXES) {
        const LayoutKey key = layout_key(&candidate);
        LayoutSlot *slot = find_slot(records, &key);
        const LayoutCost *layout = slot ? find_layout(records, &candidate) : NULL;
        if (layout && !(slot->may_fit && (slot->may_split || !layout->can_split)))
            find_fitting(records, row, candidate, slot);
        return;
    }
    int values[MOST_VALUES], n = axis_values(space, &SEARCH_AXES[row], &candidate, values);
    for (int i = 0; i < n; i++) {
        SEARCH_AXES[row].set(space, &candidate, values[i]);
        bound_layouts(records, row + 1, candidate);
    }
}

/* Stages are at it for as long on average, so one of them is: all ranks of t and c that are there
 * share what a micro-batch takes. */
static bool is_slow(const SearchRecords *records, const LayoutKey *key, double work_us) {
    double ranks = (double)records->space.n_ranks / key->t / key->c;
    double n_micro = (double)records->space.global_batch / key->micro_batch;
    return work_us * n_micro / ranks * (1 - 1e-9) > records->most_us;
}

/* Slots of what may fit, as keys. */
static int list_fitting(const SearchRecords *records, LayoutKey *keys) {
    int n = 0;
    for (int i = 0; i < LAYOUT_SLOTS; i++) {
        const LayoutSlot *slot = &records->layouts[i];
        if (!slot->used || !slot->may_fit) continue;
        bool slow = is_slow(records, &slot->key, slot->layout->work_us);
        bool splits = slot->may_split && !is_slow(records, &slot->key, slot->layout->split_work_us);
        if (slow && !splits) continue;
        keys[n] = slot->key;
        keys[n++].splits = splits;
    }
    return n;
}

void search_prepare(SearchRecords *records) {
    LayoutKey *keys = ARENA_ARRAY(records->arena, LayoutKey, LAYOUT_SLOTS);
    const Crew *crew = &records->space.request->crew;
    int n = list_fitting(records, keys);
    if (records->most_us < INFINITY) {
        model_costs_time(records->costs, keys, n, crew);
        n = list_fitting(records, keys);
    }
    model_costs_prepare(records->costs, keys, n, crew);
}

/* Plans of thin models, by all threads, and what bounds say of them. */
static void plan_layouts(SearchRecords *records) {
    LayoutKey *keys = ARENA_ARRAY(records->arena, LayoutKey, LAYOUT_SLOTS);
    const Crew *crew = &records->space.request->crew;
    int n = 0;
    collect(records, 0, (Candidate){0});
    for (int i = 0; i < LAYOUT_SLOTS; i++) {
        const LayoutKey *key = &records->layouts[i].key;
        if (records->layouts[i].used && key->micro_batch % key->lanes == 0) keys[n++] = *key;
    }
    model_costs_plan(records->costs, keys, n, crew);
    bound_layouts(records, 0, (Candidate){0});
}

/* Millions: grown where they lie, if that can be, and not in the arena, which keeps what is too
 * small. */
static void add_record(SearchRecords *records, SearchRecord record) {
    if (records->n == records->capacity) {
        int capacity = records->capacity ? 2 * records->capacity : 4096;
        SearchRecord *grown = realloc(records->items, (size_t)capacity * sizeof(*grown));
        if (!grown) memory_exhausted((size_t)capacity * sizeof(*grown));
        records->items = grown;
        records->capacity = capacity;
    }
    records->items[records->n++] = record;
}

void search_records_end(SearchRecords *records) {
    free(records->items);
    records->items = NULL;
}

static void enumerate(SearchRecords *records, int row, Candidate candidate,
                      const LayoutCost *layout) {
    const SearchSpace *space = &records->space;
    if (row == SEARCH_LAYOUT_AXES) {
        layout = find_layout(records, &candidate);
        if (!layout) return;
    }
    if (row == N_SEARCH_AXES) {
        bool splits = schedule_splits(candidate.schedule);
        if (splits && layout->priced && !layout->bound) model_costs_split(records->costs, layout);
        if (splits && !layout->can_split && !layout->split) return;
        add_record(records, (SearchRecord){candidate, layout, INFINITY, 0});
        return;
    }
    const SearchAxis *axis = &SEARCH_AXES[row];
    int values[MOST_VALUES], n = axis_values(space, axis, &candidate, values);
    if (n == 0 && row > records->stuck_axis) {
        records->stuck_axis = row;
        records->stuck_value = axis->fixed(space);
        records->stuck = candidate;
    }
    for (int i = 0; i < n; i++) {
        axis->set(space, &candidate, values[i]);
        enumerate(records, row + 1, candidate, layout);
    }
}

static double most_us(const SearchRequest *request) {
    return request->beats_us > 0 ? request->beats_us * (1 + 2 * ESTIMATE_SLACK) : INFINITY;
}

SearchRecords *search_enumerate(Arena *arena, ModelCosts *costs, const SearchSpace *space,
                                double limit_bytes) {
    SearchRecords *records = ARENA_NEW(arena, SearchRecords);
    *records = (SearchRecords){.space = *space,
                               .costs = costs,
                               .arena = arena,
                               .stuck_axis = -1,
                               .limit_bytes = limit_bytes,
                               .most_us = most_us(space->request)};
    records->layouts = ARENA_ARRAY(arena, LayoutSlot, LAYOUT_SLOTS);
    plan_layouts(records);
    search_prepare(records);
    enumerate(records, 0, (Candidate){0}, NULL);
    return records;
}

/* One of each per thread. */
typedef struct Pricers {
    Arena *arenas[MOST_CREW];
    StepPricer *pricers[MOST_CREW];
    SearchSplits splits[MOST_CREW];
} Pricers;

typedef struct Pricing {
    SearchRecords *records;
    double limit_bytes;
    bool times;
    Pricers by;
} Pricing;

SearchSplits search_splits_create(const ModelCosts *costs, Arena *arena) {
    SearchSplits splits = {.stride = costs->n_blocks + MOST_BARE_CHUNKS};
    splits.blocks = ARENA_ARRAY(arena, int, N_PATH_KINDS *MAX_CHUNKS *splits.stride);
    return splits;
}

const int *search_find_split(SearchSplits *splits, const ModelCosts *costs,
                             const SearchRecord *record) {
    const Candidate *c = &record->candidate;
    const Path path = candidate_path(c);
    int slot = (int)path.kind * MAX_CHUNKS + c->n_chunks - 1;
    int *split = splits->blocks + (size_t)slot * (size_t)splits->stride;
    if (splits->layout != record->layout || splits->p != c->p) {
        memset(splits->known, 0, sizeof(splits->known));
        splits->layout = record->layout;
        splits->p = c->p;
    }
    bool *known = &splits->known[path.kind][c->n_chunks - 1];
    bool even = costs->cluster->software.even_split;
    if (!*known && !split_blocks(costs, record->layout, path, c->n_chunks, even, split)) {
        BUG("no split of %d blocks over p=%d, %d chunks", costs->n_blocks, c->p, c->n_chunks);
    }
    *known = true;
    return split;
}

/* Bytes of a device; what a node's memory has no room for would have to be there, and there is none
 * either. */
static int64_t counted_bytes(const ModelCosts *costs, const StepCost *cost, double limit_bytes) {
    int64_t missing = step_missing_host_bytes(costs->cluster, cost);
    if (missing <= 0) return cost->memory_bytes;
    int64_t bytes = cost->memory_bytes + missing;
    return (double)bytes <= limit_bytes ? (int64_t)limit_bytes + missing : bytes;
}

static void price_record(const Pricing *pricing, StepPricer *pricer, const int *split,
                         SearchRecord *record) {
    const Candidate *c = &record->candidate;
    StepCost cost;
    step_pricer_memory(pricer, record->layout, c, split, &cost);
    record->memory_bytes = counted_bytes(pricing->records->costs, &cost, pricing->limit_bytes);
    if ((double)record->memory_bytes > pricing->limit_bytes || !pricing->times) return;
    step_pricer_cost(pricer, record->layout, c, split, &cost);
    record->step_us = cost.step_us;
}

/* Of one layout, and neighbours: do they differ in ZeRO and replicas alone? */
static bool same_frames(const SearchRecord *a, const SearchRecord *b) {
    const Candidate *one = &a->candidate, *other = &b->candidate;
    return a->layout == b->layout && one->p == other->p && one->schedule == other->schedule &&
           one->n_chunks == other->n_chunks && one->n_micro == other->n_micro &&
           one->d * candidate_r(one) == other->d * candidate_r(other);
}

static bool is_too_slow(const SearchRecords *records, const SearchRecord *record) {
    if (records->most_us == INFINITY) return false;
    const LayoutKey key = layout_key(&record->candidate);
    const LayoutCost *layout = record->layout;
    bool splits = schedule_splits(record->candidate.schedule);
    if (!layout->priced || (splits && !layout->split)) return true; /* or it does not fit */
    return is_slow(records, &key, layout_work_us(records->costs, splits ? layout->split : layout));
}

static void price_run(void *context, int worker, int begin, int end) {
    Pricing *pricing = context;
    const ModelCosts *costs = pricing->records->costs;
    SearchSplits *splits = &pricing->by.splits[worker];
    if (!pricing->by.arenas[worker]) {
        Arena *arena = pricing->by.arenas[worker] = arena_create();
        pricing->by.pricers[worker] = step_pricer_create(costs, arena);
        *splits = search_splits_create(costs, arena);
    }
    const SearchRecord *bounded = NULL; /* the last that was, and what that said */
    bool may_fit = true;
    for (int i = begin; i < end; i++) {
        SearchRecord *record = &pricing->records->items[i];
        if (!bounded || !same_frames(bounded, record)) {
            bounded = record;
            may_fit = !is_too_slow(pricing->records, record) &&
                      search_may_fit(&pricing->records->space, record, pricing->limit_bytes);
        }
        record->step_us = INFINITY;
        if (!may_fit) {
            record->memory_bytes = MORE_BYTES;
            continue;
        }
        const int *split = search_find_split(splits, costs, record);
        price_record(pricing, pricing->by.pricers[worker], split, record);
    }
}

/* Long enough for what neighbours share, short enough that nobody waits for the last one. */
static int run_length(const SearchRecords *records) {
    enum { LEAST = 256, MOST = 4096, RUNS_OF_EACH = 32 };
    int n = records->n / (crew_size(&records->space.request->crew) * RUNS_OF_EACH);
    return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

void search_price(SearchRecords *records, double limit_bytes, bool times) {
    Pricing pricing = {.records = records, .limit_bytes = limit_bytes, .times = times};
    crew_run(&records->space.request->crew, "layouts priced", records->n, run_length(records),
             price_run, &pricing);
    for (int i = 0; i < MOST_CREW; i++) arena_destroy(pricing.by.arenas[i]);
}

/* Prices a record's memory, whatever bounds say. */
static void settle(SearchRecords *records, SearchSplits *splits, StepPricer *pricer,
                   SearchRecord *record, double limit_bytes) {
    const ModelCosts *costs = records->costs;
    StepCost cost;
    model_costs_price(records->costs, record->layout, schedule_splits(record->candidate.schedule));
    const int *split = search_find_split(splits, costs, record);
    step_pricer_memory(pricer, record->layout, &record->candidate, split, &cost);
    record->memory_bytes = counted_bytes(costs, &cost, limit_bytes);
    if ((double)record->memory_bytes <= limit_bytes) BUG("a bound above what it bounds");
}

void search_settle_best(SearchRecords *records, int row, int value, double limit_bytes,
                        const SearchRecord **best) {
    Arena *scratch = arena_create();
    SearchSplits splits = search_splits_create(records->costs, scratch);
    StepPricer *pricer = step_pricer_create(records->costs, scratch);
    const SearchRecord *bounded = NULL;
    bool may_be_better = true;
    for (int i = 0; i < records->n; i++) {
        SearchRecord *record = &records->items[i];
        if (record->memory_bytes != MORE_BYTES) continue;
        if (row >= 0 && SEARCH_AXES[row].get(&record->candidate) != value) continue;
        bool known = (*best)->memory_bytes != MORE_BYTES;
        if (known && (!bounded || !same_frames(bounded, record))) {
            bounded = record;
            may_be_better = search_may_fit(&records->space, record, (double)(*best)->memory_bytes);
        }
        if (known && !may_be_better) continue;
        settle(records, &splits, pricer, record, limit_bytes);
        if (*best == record || !search_is_better(record, *best)) continue;
        *best = record;
        bounded = NULL;
    }
    arena_destroy(scratch);
}

Found search_found(Arena *arena, const SearchRecords *records, const SearchRecord *record) {
    const ModelCosts *costs = records->costs;
    const Candidate *c = &record->candidate;
    Found found = {.candidate = *c};
    found.split = ARENA_ARRAY(arena, int, c->p * c->n_chunks);
    bool even = costs->cluster->software.even_split;
    model_costs_price(records->costs, record->layout, schedule_splits(c->schedule));
    if (!split_blocks(costs, record->layout, candidate_path(c), c->n_chunks, even, found.split)) {
        BUG("a candidate without a split");
    }
    step_cost(costs, record->layout, c, found.split, &found.cost);
    return found;
}

double search_limit_bytes(const ModelCosts *costs, const SearchRequest *request) {
    const ClusterDevice *device = &costs->cluster->device;
    if (request->memory_limit_bytes > 0) return request->memory_limit_bytes;
    return device->memory_bytes * device->memory_usable;
}
