/* ZeRO: what each of the d data-parallel ranks keeps only 1/d of (Rajbhandari et al. 2020, arXiv
 * 1910.02054). Each stage includes those before it; planner/passes/shard_update.c makes them. */
#ifndef PLANNER_PLAN_ZERO_H
#define PLANNER_PLAN_ZERO_H

#include <stdbool.h>

typedef enum ZeroStage {
    ZERO_NOTHING,
    ZERO_OPTIMIZER,  /* the optimizer's state, and the update */
    ZERO_GRADIENTS,  /* the sums of gradients over micro-batches */
    ZERO_PARAMETERS, /* the weights, which are gathered where they are read */
    N_ZERO_STAGES
} ZeroStage;

/* Parameters of less than this part of the largest one's elements are not divided: gains, biases.
 * Where others have copies in 16 bits, one that has none, as tables of positions have, would need
 * a message of its own in the update: it has to have so many elements, too. */
enum { ZERO_LEAST_SHARE = 4096, ZERO_LEAST_UNCOPIED = 4 << 20 };
/* On a GPU a message over d has the work on so many times its own bytes of weights beside it. */
enum { ZERO_LEAD = 2 };

/* Do updated weights come back to all ranks, once a step? */
static inline bool zero_gathers_updated(int stage) {
    return stage == ZERO_OPTIMIZER || stage == ZERO_GRADIENTS;
}

/* "optimizer state", "optimizer state and gradients", ...: what the stage divides over d. */
const char *zero_stage_text(int stage);
/* What comes behind "divided over d". */
const char *zero_replicas_text(bool over_c, bool over_e);

#endif
