/* Search: every way to divide a model over a cluster's ranks, priced, pruned and ranked.
 *
 * The space is a table of axes (search_axes.c): tensor, pipeline and data degree, chunks,
 * micro-batch, schedule, recomputation, ZeRO stage, sequence parallelism, lanes. What the user
 * fixed stays fixed. Candidates that cannot be (divisibility, memory) are pruned exactly, the rest
 * ranked by step_cost, the finalists simulated. Deterministic: the same request gives the same
 * answer on any number of cores.
 */
#ifndef PLANNER_SEARCH_SEARCH_H
#define PLANNER_SEARCH_SEARCH_H

#include "planner/cost/step_cost.h"

enum { ANY = 0 };

/* Of a result, what nobody will look at: bits. */
typedef enum SearchPart {
    PART_SAMPLES = 1,
    PART_RANKS = 2,  /* how many would do, when nothing fits */
    PART_MISSING = 4 /* what is lacking then: a search that cannot find anything ends at once */
} SearchPart;

typedef struct SearchRequest {
    int n_ranks, global_batch;
    /* What was fixed by hand; ANY (0), NULL or -1: searched. */
    int t, p, d, n_chunks, micro_batch;
    int c; /* ANY: searched where sequences are long, else 1 */
    int e; /* ANY: searched where there are experts, else 1 */
    int r; /* ANY: searched where d is, else 1 */
    const char *schedule;
    int recompute;             /* Recompute, or -1 */
    int zero;                  /* ZeroStage, or -1 */
    int messages;              /* with ZeRO-2 and 3, of 1: each weight, 2: a block; or ANY */
    int sequence_parallel;     /* 0, 1, or -1 */
    int lanes;                 /* ANY: 1, or 2 where messages would be waited for */
    double memory_limit_bytes; /* per device; 0: the cluster's */
    int n_top;                 /* how many to return; 0: 10 */
    int most_simulated;        /* of the fastest, by their estimates; 0: 512 */
    Crew crew;                 /* who works, and is told how far it is */
    bool explain;
    int leaves_out; /* SearchPart */
    /* Only a search whose best takes no longer is of interest; else nothing is found. 0: any. */
    double beats_us;
} SearchRequest;
/* d as it is fixed by hand, times r if that is; ANY: it is searched. */
int search_fixed_data(const SearchRequest *request);

typedef struct Found {
    Candidate candidate;
    StepCost cost; /* step_us from the simulator for the finalists */
    bool simulated;
    /* Outside of what predictions were compared with; why: NULL, or a list of what is and how far
     * the comparison went: "p 128 (compared: to 64), ranks 4096 (compared: to 3072)". */
    bool unusual;
    const char *why;
    int *split; /* [p * n_chunks]; NULL in samples */
} Found;

/* Why an alternative on one axis, everything else left free, is not the choice. */
typedef struct Alternative {
    const char *axis;  /* "t", "p", "d", "chunks", "micro-batch", "schedule", "recompute", ... */
    const char *value; /* "16" */
    bool fits;         /* does any candidate with it fit? */
    double slowdown;   /* best step time with it / the winner's, if one fits */
    int64_t missing_bytes; /* the least that candidates with it lack, if none fits */
    const char *reason;    /* "t=16 leaves the NVLink domain: +38% step time" */
    Candidate best;
} Alternative;

typedef struct SearchResult {
    int n_found; /* best first */
    Found *found;
    /* Simulated; no other is known to have less time and less memory; by time. */
    int n_pareto;
    Found *pareto;
    /* By their estimates these could be faster than found[0], but were too many to simulate. */
    int n_open;
    int64_t n_candidates, n_fit; /* all that divisibility allows; of them, those that fit */
    const char *remark;          /* on the number of ranks: a sentence, or NULL */
    double seconds;
    int n_alternatives;
    Alternative *alternatives;
    /* A sample of all candidates for pictures, at most MAX_SAMPLES, the best always among them. */
    int n_samples;
    Found *samples;
    /* When nothing fits: */
    int64_t least_missing_bytes; /* of the candidate that lacks least */
    Candidate least_missing;
    StepCost least_memory; /* what it needs */
    int least_ranks; /* the smallest number of ranks (a multiple of a node) that would do; 0: none
                      */
    const char *remedy; /* options with which something would fit, set by who tried; or NULL */
} SearchResult;
enum { MAX_SAMPLES = 4000 };

/* NULL: reported (fixed options that contradict each other, ranks that cannot be factored, ...).
 * A result with n_found == 0: nothing fits. */
SearchResult *search_layouts(Arena *arena, ModelCosts *costs, const SearchRequest *request,
                             Diag *diag);

/* Would it find anything? */
bool search_finds_any(ModelCosts *costs, const SearchRequest *request);

#endif
