/* Searches as commands ask for them: a model, a cluster and what the options fix. */
#ifndef FRONTEND_COMMANDS_SEARCH_ARGS_H
#define FRONTEND_COMMANDS_SEARCH_ARGS_H

#include "frontend/commands/cli.h"
#include "planner/planner.h"
#include "planner/show/show_search.h"

/* Bits: what a search may be repeated with (search_find.h). */
enum {
    VARIANT_EXPERT_PARTS = 1,
    VARIANT_LOSS_PARTS = 2,
    VARIANT_LOW_STATES = 4, /* of the optimizer */
    VARIANT_LOW_GRADIENTS = 8,
    VARIANT_SPLIT_MASTERS = 16,
    VARIANT_STATES_IN_8_BITS = 32,
    VARIANT_ACTIVATIONS = 64, /* times the halves of what blocks keep that go, none to both */
    VARIANT_OFFLOAD = 256,    /* times the quarters that are offloaded, up to OFFLOAD_QUARTERS */
    OFFLOAD_QUARTERS = 4,
    N_VARIANTS = VARIANT_OFFLOAD * (OFFLOAD_QUARTERS + 1)
};

typedef struct SearchVariant {
    bool made;
    PlanRequest plan;
    ModelCosts *costs; /* NULL: the model has no such thing */
} SearchVariant;

typedef struct SearchJob {
    const Cluster *cluster;
    ModelCosts *costs;
    SearchRequest request; /* n_ranks and global_batch: 0 where they were not given */
    PlanRequest plan;      /* of one sequence; options: precision, device and seed */
    SearchVariant variants[N_VARIANTS];
    double days_tokens;
    FailureChoice failures; /* for them */
    IslandChoice islands;
} SearchJob;

/* Was a search asked for? */
bool search_is_wanted(const CliArgs *args);

/* --cluster, or what --device has by default, with --software, --price and a profile. NULL:
 * reported. */
Cluster *search_cluster_from_args(CliArgs *args, Diag *diag);

/* Everything but the numbers of ranks and sequences. NULL: reported. */
SearchJob *search_job_from_args(CliArgs *args, Diag *diag);

/* --ranks as one number, or the product of a mesh that is given whole. 0: reported. */
int search_ranks_from_args(const CliArgs *args, const SearchJob *job, Diag *diag);

/* --ranks as FIRST..LAST, or one number. False: reported. */
bool search_range_from_args(const CliArgs *args, int64_t *out_first, int64_t *out_last, Diag *diag);

/* The ends, and between them powers of two within a node, doublings of whole nodes beyond it.
 * Returns how many. */
enum { SEARCH_MOST_RUNGS = 64 };
int search_pick_ranks(int64_t first, int64_t last, int n_per_node, int out[SEARCH_MOST_RUNGS]);

/* The first line of what was reported. */
const char *search_first_line(Arena *arena, const Diag *diag);

/* Where no --global-batch was given: about a sequence a rank, 16 at least, that what is fixed
 * divides. */
int search_assumed_batch(const SearchRequest *request);

#endif
