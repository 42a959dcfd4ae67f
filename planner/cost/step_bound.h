/* Step bound: what a candidate needs at least, before its layout is priced or its blocks are split.
 *
 * A layout's plan of a thin model says what a block keeps of a micro-batch of any size, and what
 * its weights take; how many blocks a stage gets follows from times, which are not known yet. So
 * the question is asked of all ways to split: how many blocks would fit on each stage, and are
 * these all of the model's? Most layouts of a large model fit nowhere, and their prices are then
 * never made.
 */
#ifndef PLANNER_COST_STEP_BOUND_H
#define PLANNER_COST_STEP_BOUND_H

#include "planner/cost/step_cost.h"

/* Blocks of one kind, or all with what each of them has at least. Weights: whole, of those that e
 * divides and of all others; what ZeRO-1, 2 and 3 divide apart. */
enum { N_BOUND_PARTS = 2, N_BOUND_CLASSES = 3 };
typedef struct BlockBound {
    int n_blocks;
    int64_t kept_bytes, scratch_bytes;
    int64_t weights[N_BOUND_PARTS][N_BOUND_CLASSES];
    int64_t low[N_BOUND_PARTS]; /* of gradients: what those of one micro-batch in bf16 save */
} BlockBound;

struct LayoutBound {
    BlockBound kind, all;                /* the kind that keeps most, times its blocks */
    int64_t border_bytes, after_scratch; /* that of what comes after the blocks */
};

/* False: the candidate needs more than limit_bytes a device, however its blocks are split, with
 * every stage of ZeRO up to most_zero, and with every number of replicas. `candidate` is without
 * replicas (r is 1); of a layout that was placed (model_costs_place). */
bool step_may_fit(const ModelCosts *costs, const LayoutCost *layout, const Candidate *candidate,
                  int most_zero, double limit_bytes);

/* What one micro-batch takes in all blocks and both ends, messages within them included: p stages
 * together are at it for as long, so no step is shorter than that times n_micro / p. */
double layout_work_us(const ModelCosts *costs, const LayoutCost *layout);

#endif
