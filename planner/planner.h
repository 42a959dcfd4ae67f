/* From a forward graph to a plan: the pipeline of passes (passes.def) and what follows them. */
#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H

#include "planner/options.h"
#include "planner/plan/plan.h"

typedef struct PlanRequest {
    const char *model;    /* name */
    const char *settings; /* lines "name=value", kept in the plan; NULL: none */
    const Graph *forward;
    int n_blocks;
    int64_t seq, vocab;
    TrainingRecipe recipe;
    PlanOptions options;
} PlanRequest;

/* NULL: reported. The plan has been verified. `forward` was built with batch = micro_batch * d. */
Plan *plan_make(Arena *arena, const PlanRequest *request, Diag *diag);

/* What plans of one stage and one chunk have in common that differ in recomputation, or in whether
 * backwards are cut in two, alone: the graph as it is before. The first plan makes it; its arena
 * has to last as long. */
typedef struct PlanStem PlanStem;
PlanStem *plan_stem_create(void);
void plan_stem_destroy(PlanStem *stem);
Plan *plan_make_of_stem(Arena *arena, const PlanRequest *request, PlanStem *stem, Diag *diag);

/* One pass on a graph, for `perilune opt`; passes after sharding need the graph's mesh to be set.
 */
Graph *planner_run_pass(Arena *arena, const Graph *graph, const char *pass, Diag *diag);
/* Names of the passes in order, with the reason for each; index >= count gives NULL. */
const char *planner_pass_name(int index);
const char *planner_pass_reason(int index);

#endif
