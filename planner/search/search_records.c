#include "planner/search/search_records.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Layouts asked for, by what they depend on: open addressing. */
typedef struct LayoutSlot {
    bool used;
    int t, c, e, micro_batch, recompute, sequence_parallel, lanes;
    const LayoutCost *layout; /* NULL: the model cannot be divided like this */
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

static const LayoutCost *find_layout(SearchRecords *records, const Candidate *c) {
    uint32_t at = ((uint32_t)c->t * 1000003u + (uint32_t)c->micro_batch * 8191u +
                   (uint32_t)c->recompute * 131u + (uint32_t)candidate_c(c) * 17u +
                   (uint32_t)candidate_e(c) * 257u + (uint32_t)candidate_lanes(c) * 65537u +
                   c->sequence_parallel) %
                  LAYOUT_SLOTS;
    for (;; at = (at + 1) % LAYOUT_SLOTS) {
        LayoutSlot *slot = &records->layouts[at];
        if (!slot->used) break;
        if (slot->t == c->t && slot->c == candidate_c(c) && slot->e == candidate_e(c) &&
            slot->micro_batch == c->micro_batch && slot->recompute == (int)c->recompute &&
            slot->sequence_parallel == c->sequence_parallel && slot->lanes == candidate_lanes(c)) {
            return slot->layout;
        }
    }
    const char *reason = NULL;
    const LayoutCost *layout = model_costs_divided(
        records->costs, c->t, candidate_c(c), candidate_e(c), c->sequence_parallel, c->recompute,
        c->micro_batch, candidate_lanes(c), &reason);
    const SearchRequest *request = records->space.request;
    bool may = (candidate_c(c) == 1 || request->c != ANY) && /* else t is not to blame */
               (candidate_e(c) == 1 || request->e != ANY) &&
               (candidate_lanes(c) == 1 || request->lanes != ANY);
    if (!layout && may)
        refuse(records, c->t, reason ? reason : "the model cannot be divided like this");
    if (records->n_layouts >= LAYOUT_SLOTS / 2) return layout; /* asked again, not kept */
    records->n_layouts++;
    records->layouts[at] = (LayoutSlot){true,
                                        c->t,
                                        candidate_c(c),
                                        candidate_e(c),
                                        c->micro_batch,
                                        (int)c->recompute,
                                        c->sequence_parallel,
                                        candidate_lanes(c),
                                        layout};
    return layout;
}

static void enumerate(SearchRecords *records, int row, Candidate candidate,
                      const LayoutCost *layout) {
    const SearchSpace *space = &records->space;
    if (row == SEARCH_LAYOUT_AXES) {
        layout = find_layout(records, &candidate);
        if (!layout) return;
    }
    if (row == N_SEARCH_AXES) {
        if (schedule_splits(candidate.schedule)) model_costs_split(records->costs, layout);
        if (schedule_splits(candidate.schedule) && !layout->split) return;
        SearchRecord record = {candidate, layout, INFINITY, 0};
        ARENA_PUSH(records->arena, records->items, records->n, records->capacity, record);
        return;
    }
    const SearchAxis *axis = &SEARCH_AXES[row];
    int values[MOST_VALUES], n = 1, fixed = axis->fixed(space);
    values[0] = fixed;
    if (fixed < 0) {
        n = axis->values(space, &candidate, values);
    } else if (!axis->allows(space, &candidate, fixed)) {
        n = 0;
    }
    if (n == 0 && row > records->stuck_axis) {
        records->stuck_axis = row;
        records->stuck_value = fixed;
        records->stuck = candidate;
    }
    for (int i = 0; i < n; i++) {
        axis->set(space, &candidate, values[i]);
        enumerate(records, row + 1, candidate, layout);
    }
}

SearchRecords *search_enumerate(Arena *arena, ModelCosts *costs, const SearchSpace *space) {
    SearchRecords *records = ARENA_NEW(arena, SearchRecords);
    *records = (SearchRecords){.space = *space, .costs = costs, .arena = arena, .stuck_axis = -1};
    records->layouts = ARENA_ARRAY(arena, LayoutSlot, LAYOUT_SLOTS);
    enumerate(records, 0, (Candidate){0}, NULL);
    return records;
}

typedef struct Crew {
    SearchWork *work;
    void *context;
    int n_items, run;
    atomic_int next, n_workers;
} Crew;

static void *work_on(void *argument) {
    Crew *crew = argument;
    int worker = atomic_fetch_add(&crew->n_workers, 1);
    for (;;) {
        int begin = atomic_fetch_add(&crew->next, crew->run), end = begin + crew->run;
        if (begin >= crew->n_items) return NULL;
        crew->work(crew->context, worker, begin, end < crew->n_items ? end : crew->n_items);
    }
}

int search_count_threads(int n_threads) {
    if (n_threads <= 0) n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n_threads < 1 ? 1 : n_threads < MOST_SEARCH_THREADS ? n_threads : MOST_SEARCH_THREADS;
}

void search_in_parallel(int n_items, int run, int n_threads, SearchWork *work, void *context) {
    Crew crew = {.work = work, .context = context, .n_items = n_items, .run = run};
    pthread_t threads[MOST_SEARCH_THREADS];
    int n_started = 0, n_useful = (n_items + run - 1) / run;
    n_threads = search_count_threads(n_threads);
    for (int i = 1; i < n_threads && i < n_useful; i++) {
        if (pthread_create(&threads[n_started], NULL, work_on, &crew) == 0) n_started++;
    }
    work_on(&crew); /* this thread too: alone, if no other could be started */
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
}

typedef struct Pricing {
    SearchRecords *records;
    double limit_bytes;
} Pricing;

/* Do they differ in their replicas alone, of which the second has more, and so more memory? */
static bool has_more_replicas(const SearchRecord *before, const SearchRecord *record) {
    const Candidate *a = &before->candidate, *b = &record->candidate;
    return candidate_r(b) > candidate_r(a) && before->layout == record->layout && a->p == b->p &&
           candidate_data(a) == candidate_data(b) && a->schedule == b->schedule &&
           a->n_chunks == b->n_chunks && a->zero == b->zero &&
           a->joins_messages == b->joins_messages;
}

/* Neighbouring records often share a split. */
static void price_run(void *context, int worker, int begin, int end) {
    const Pricing *pricing = context;
    const ModelCosts *costs = pricing->records->costs;
    bool even = costs->cluster->software.even_split;
    const SearchRecord *last = NULL; /* whose split it is */
    int *split = malloc(sizeof(int) * (size_t)(costs->n_blocks + MOST_BARE_CHUNKS));
    (void)worker;
    if (!split) BUG("no memory for %d blocks", costs->n_blocks);
    for (int i = begin; i < end; i++) {
        SearchRecord *record = &pricing->records->items[i];
        const Candidate *c = &record->candidate;
        StepCost cost;
        Path path = candidate_path(c);
        const SearchRecord *before = i > begin ? record - 1 : NULL;
        if (before && (double)before->memory_bytes > pricing->limit_bytes &&
            has_more_replicas(before, record)) {
            record->memory_bytes = before->memory_bytes; /* at least */
            continue;
        }
        if (!last || last->layout != record->layout || last->candidate.p != c->p ||
            last->candidate.n_chunks != c->n_chunks ||
            candidate_path(&last->candidate).kind != path.kind) {
            if (!split_blocks(costs, record->layout, path, c->n_chunks, even, split)) {
                BUG("no split of %d blocks over p=%d, %d chunks", costs->n_blocks, c->p,
                    c->n_chunks);
            }
            last = record;
        }
        step_memory(costs, record->layout, c, split, &cost);
        record->memory_bytes = cost.memory_bytes;
        if ((double)cost.memory_bytes > pricing->limit_bytes) continue;
        step_cost(costs, record->layout, c, split, &cost);
        record->step_us = cost.step_us;
    }
    free(split);
}

void search_price(SearchRecords *records, double limit_bytes, int n_threads) {
    enum { RUN = 256 };
    Pricing pricing = {records, limit_bytes};
    search_in_parallel(records->n, RUN, n_threads, price_run, &pricing);
}

Found search_found(Arena *arena, const SearchRecords *records, const SearchRecord *record) {
    const ModelCosts *costs = records->costs;
    const Candidate *c = &record->candidate;
    Found found = {.candidate = *c};
    found.split = ARENA_ARRAY(arena, int, c->p * c->n_chunks);
    bool even = costs->cluster->software.even_split;
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
