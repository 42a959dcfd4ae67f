/* The search as all commands do it: what is no axis of search_layouts is tried around it. */
#ifndef FRONTEND_COMMANDS_SEARCH_FIND_H
#define FRONTEND_COMMANDS_SEARCH_FIND_H

#include "frontend/commands/search_args.h"

/* What was found, and what to plan it with. */
typedef struct SearchFind {
    SearchResult *result; /* NULL: reported */
    ModelCosts *costs;
    PlanRequest
        plan; /* options: expert_parts, loss_parts, split_masters, offload... as they were found */
} SearchFind;

/* The fastest layouts of a request. Where nothing fits otherwise, copies of weights are halves of
 * them, logits go in parts, states and masters lie in the hosts' memory, or, last, activations:
 * with --offload auto they do where that is faster, too. If `runs`, also experts' slots in two
 * runs, whose all-to-alls hide beside each other's work, where that is faster. What was said by
 * hand stays. */
SearchFind search_find(CliArgs *args, SearchJob *job, const SearchRequest *request, bool runs,
                       Diag *diag);

/* Would `runs` look at anything else? */
bool search_has_runs(const CliArgs *args, const SearchJob *job, const SearchRequest *request);

/* Of a request for which nothing fits: what would let something fit but rounds otherwise, and so is
 * not chosen unasked; NULL: nothing. */
const char *search_remedy(CliArgs *args, SearchJob *job, const SearchRequest *request);

#endif
