/* What the parts of a search share: its candidates as records, before any becomes a Found. */
#ifndef PLANNER_SEARCH_SEARCH_RECORDS_H
#define PLANNER_SEARCH_SEARCH_RECORDS_H

#include "planner/search/search_axes.h"
#include "planner/simulate/simulate_candidate.h"

#include <math.h>

typedef struct SearchRecord {
    Candidate candidate;
    const LayoutCost *layout;
    double step_us;       /* INFINITY: does not fit */
    int64_t memory_bytes; /* or MORE_BYTES */
} SearchRecord;

/* A tensor degree that the model does not allow. */
typedef struct SearchRefusal {
    int t;
    const char *reason;
} SearchRefusal;

typedef struct SearchRecords {
    SearchSpace space;
    ModelCosts *costs; /* as space.costs, but it may grow */
    Arena *arena;      /* of the records */
    int n, capacity;
    SearchRecord *items; /* in the order of the axes' values; of the heap */
    int n_refusals, refusal_capacity;
    SearchRefusal *refusals;
    /* Where a value fixed by hand could not be, furthest along the axes. */
    int stuck_axis, stuck_value;
    Candidate stuck;
    struct LayoutSlot *layouts;
    int n_layouts;
    double limit_bytes;
    double most_us; /* candidates that take longer for sure are not priced; INFINITY: all are */
} SearchRecords;

/* The closed form may be above what is simulated by this much (test_step_cost.c). */
#define ESTIMATE_SLACK 0.03

SearchSpace search_space(const ModelCosts *costs, const SearchRequest *request);

/* Of a record: more than the limit, by bounds; how much is known once it is settled. */
#define MORE_BYTES INT64_MAX

/* All candidates of the space, not priced; until search_records_end. Of layouts that need more than
 * limit_bytes whatever follows, only bounds are known. */
SearchRecords *search_enumerate(Arena *arena, ModelCosts *costs, const SearchSpace *space,
                                double limit_bytes);

/* Prices layouts that may fit, and do not take more than most_us for sure. */
void search_prepare(SearchRecords *records);

/* Can it fit, as far as bounds say? */
bool search_may_fit(const SearchSpace *space, const SearchRecord *record, double limit_bytes);

/* Sets memory_bytes of what bounds left out and may be better than *best, of those with the value
 * on an axis (any: row -1); all others of them are no better. Not for several threads. */
void search_settle_best(SearchRecords *records, int row, int value, double limit_bytes,
                        const SearchRecord **best);

void search_records_end(SearchRecords *records);

/* Prices all by the request's crew: memory first, and, if `times`, time for what fits. */
void search_price(SearchRecords *records, double limit_bytes, bool times);

/* The faster first; of what does not fit, what lacks less; then the order of the axes. */
bool search_is_better(const SearchRecord *a, const SearchRecord *b);

/* Splits of a layout over p stages: neighbouring records take turns at a few. */
typedef struct SearchSplits {
    const LayoutCost *layout;
    int p, stride;
    bool known[N_PATH_KINDS][MAX_CHUNKS];
    int *blocks; /* of each path and number of chunks, so far apart */
} SearchSplits;
SearchSplits search_splits_create(const ModelCosts *costs, Arena *arena);
/* The record's; good until the next. */
const int *search_find_split(SearchSplits *splits, const ModelCosts *costs,
                             const SearchRecord *record);

/* A record as what is returned: split and cost, priced again. */
Found search_found(Arena *arena, const SearchRecords *records, const SearchRecord *record);

/* As simulate_candidate, but many equal groups of micro-batches are not all played. */
bool search_simulate(PipelineSim *sim, const ModelCosts *costs, const LayoutCost *layout,
                     const Candidate *candidate, const int *split, StepCost *cost, Diag *diag);
/* How many tasks that plays. */
int64_t search_count_tasks(const Candidate *candidate);

double search_limit_bytes(const ModelCosts *costs, const SearchRequest *request);

/* False: reported. */
bool search_check_request(const ModelCosts *costs, const SearchSpace *space, Diag *diag);
/* Where the global batch leaves few of the data degrees: which, and what numbers of ranks near by
 * it leaves more. Else NULL. */
const char *search_remark(Arena *arena, const SearchSpace *space);
/* Says why there is not a single candidate. */
void search_report_none(const SearchRecords *records, Diag *diag);

/* The fewest ranks, in whole nodes, that something fits; 0: none. */
int search_least_ranks(ModelCosts *costs, const SearchSpace *space, double limit_bytes);
/* Does what takes least fit on so many ranks? What does but for its graphs is tried first: then all
 * that matters is how ranks and schedule are chosen. Fewer and larger micro-batches, none of them
 * computed again, have smaller graphs. */
bool search_fits_least(ModelCosts *costs, const SearchSpace *space, int n_ranks,
                       double limit_bytes);
/* No layout on so many ranks needs less on each: what is there of the model's weights, gradients
 * and optimizer state once, divided by all. */
double search_least_bytes(ModelCosts *costs, int n_ranks);

/* One row for every value of every axis that is not the winner's. `best[i]` with axis and value
 * says which record is the fastest with it (or lacks least, if none fits). */
typedef struct SearchChoice {
    int axis, value;
    const SearchRecord *best;
} SearchChoice;
int search_choices(Arena *arena, SearchRecords *records, double limit_bytes, SearchChoice **out);
void search_explain(Arena *arena, const SearchRecords *records, const SearchChoice *choices,
                    int n_choices, const Found *priced, double limit_bytes, SearchResult *result);

/* Sets unusual and why. */
void search_flag_unusual(Arena *arena, const ModelCosts *costs, Found *found);

#endif
