/* Stage sums: what chunks and stages of a pipeline add up to, of the costs of their parts.
 *
 * They follow from a layout, the way through the stages and how blocks are split, and from nothing
 * else of a candidate; so a search that goes through schedules and ZeRO's stages makes them once
 * for many. Messages over d are not in them.
 */
#ifndef PLANNER_COST_STAGE_SUMS_H
#define PLANNER_COST_STAGE_SUMS_H

#include "planner/cost/step_cost.h"

/* What one chunk, or all chunks of a stage, sum up to. */
typedef struct StageSum {
    double forward_us, backward_us, weights_us, tensor_us, update_us, low_update_us, flops;
    MuonCost muon;
    double data_us; /* of forward, backward and weights: exposed messages of axis d */
    FrameCost frame;
    int64_t scratch_bytes;
    StageWeights weights;
    int64_t micro_calls, update_calls[N_UPDATE_KINDS];
} StageSum;

typedef struct StageSums {
    /* What they are of; layout: NULL: nothing yet. */
    const LayoutCost *layout;
    Path path;
    int n_chunks;
    Recompute recompute;
    int *split;                /* a copy */
    StageSum *chunks, *stages; /* [global chunk], [stage] */
    bool *repeats;             /* [stage]: weights to the bit as the stage's before */
} StageSums;

/* Makes them for the candidate, unless that is what they are: false. `layout` is
 * candidate_layout's. There is room for its chunks. */
bool stage_sums_make(StageSums *sums, const ModelCosts *costs, const LayoutCost *layout,
                     const Candidate *candidate, const int *split);

/* Stages of these chunks. */
void stage_sums_add_up(const StageSum *chunks, Path path, int n_chunks, StageSum *out_stages);

#endif
