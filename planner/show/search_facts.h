/* The figures that every form of a search's result prints, computed once, and the sentences that
 * explain them. Internal to show_search*.c and show_scale*.c.
 *
 * Utilisation: *model* FLOPs are those of the mathematics, forward and backward, without
 * recomputation (MFU); *hardware* FLOPs are those that run (HFU). Published figures use either.
 */
#ifndef PLANNER_SHOW_SEARCH_FACTS_H
#define PLANNER_SHOW_SEARCH_FACTS_H

#include "planner/cost/run_goodput.h"
#include "planner/show/show_search.h"

/* What a step's time is made of, in StepCost's order. */
typedef enum StepPart {
    PART_COMPUTE,
    PART_TENSOR,
    PART_PIPELINE,
    PART_BUBBLE,
    PART_DATA,
    PART_UPDATE,
    N_STEP_PARTS
} StepPart;
typedef struct StepPartInfo {
    const char *key;  /* of JSON, and CSS class */
    const char *name; /* "tensor messages" */
} StepPartInfo;
extern const StepPartInfo STEP_PARTS[N_STEP_PARTS];
double step_part_us(const StepCost *cost, StepPart part);

/* What memory is made of, in stacking order. */
enum { N_MEMORY_PARTS = 7 };
typedef struct MemoryPartInfo {
    const char *key, *name;
} MemoryPartInfo;
extern const MemoryPartInfo MEMORY_PARTS[N_MEMORY_PARTS];
int64_t memory_part_bytes(const StepCost *cost, int part);
/* "weights 15.2 GiB, gradients 29.9 GiB, ..." */
void memory_put_parts(StrBuf *out, const StepCost *cost);

typedef struct LayoutFacts {
    const Found *found;
    double step_seconds, tokens_per_second;
    double model_tflops, hardware_tflops; /* per device and second */
    double mfu, hfu;                      /* of the peak; 0: the device states none */
    double slowdown;                      /* step time / the best's - 1 */
    const char *why;                      /* "bubble +1.9 s, compute -0.3 s"; the best: "" */
    double days, price; /* for the report's tokens, without failures; 0: not asked, not stated */
    RunGoodput goodput; /* where days are asked for */
    double real_days, real_price; /* with failures, where they are counted; 0: no end */
} LayoutFacts;

typedef struct SearchFacts {
    Arena *arena;
    const SearchReport *report;
    const Cluster *cluster;
    double n_tokens;    /* per step */
    double limit_bytes; /* per device */
    double peak_tflops; /* 0: not stated */
    int n_nodes;
    LayoutFacts best;
    int n_others; /* runners-up: at most report->n_top */
    LayoutFacts *others;
    int n_pareto;
    LayoutFacts *pareto;
    const char *bottleneck;   /* a sentence or two */
    IslandExchange islands;   /* of the best; where report->islands asks */
    const char *islands_text; /* in a sentence; NULL: not asked for */
    const char *cut_short;    /* a sentence if more should have been simulated; else NULL */
} SearchFacts;

SearchFacts *search_facts_create(Arena *arena, const SearchReport *report);

/* NULL: all that could be the fastest, by their estimates, were simulated. */
const char *search_cut_short(Arena *arena, const SearchResult *result);

/* The figures of one layout without a comparison: slowdown 0, why "". */
LayoutFacts layout_facts(const SearchReport *report, const Found *found);

/* "t=8 d=6 p=64, interleaved x2, b=2, selective, ZeRO-1, sp" */
enum { LAYOUT_TEXT = 192 };
const char *layout_text(const Candidate *candidate, char *text);

/* What a layout has that is no axis of the search, but was found around it; n of them. */
enum { SEARCH_REMARKS = 4 };
typedef struct SearchRemark {
    const char *label, *text; /* "logits", "of 1/16 of the positions at a time" */
} SearchRemark;
int search_remarks(Arena *arena, const PlanOptions *options, const Found *found,
                   SearchRemark out[SEARCH_REMARKS]);

/* What the update does beside training, whatever the layout; n of them. */
enum { UPDATE_REMARKS = 3 };
int search_update_remarks(Arena *arena, const PlanOptions *options,
                          SearchRemark out[UPDATE_REMARKS]);

/* After "in fp8": how its products run; "" of other precisions. */
const char *search_fp8_text(const PlanOptions *options, const Cluster *cluster);

/* With --gradients bf16: what weights' gradients are in the layout. */
const char *search_gradients_text(const Candidate *candidate);

/* "t=8 d=6 p=64 (2.10 s): its plan needs 75 GiB of 70 GiB, though 69 GiB were predicted":
 * refused[i] of the report. */
void refused_put(StrBuf *out, const SearchReport *report, int i, double limit_bytes);

/* "34.1" or "128", of little "0.0021"; the text holds UNIT_TEXT. */
const char *days_text(double days, char *text);
/* As unit_count; of little as many digits: "0.0048". */
const char *small_text(double count, char *text);
/* "34.1 days"; of less than a tenth of one "17.3 minutes". The text holds 2 UNIT_TEXT. */
const char *duration_text(double days, char *text);

/* The same as columns of a table, and the step's time: b is the micro-batch, rec. recomputation;
 * more: Z1 for ZeRO-1, sp for sequence-parallel, c2, e2 and r2 for these axes. */
void layout_put_columns(StrBuf *out, const Candidate *of, const char *step);
void layout_put_heads(StrBuf *out);

/* Per device: what the user said, or what the cluster's software can use. */
double search_memory_limit(const SearchRequest *request, const Cluster *cluster);

#endif
