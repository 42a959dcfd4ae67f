/* Layout bounds: what a plan of a thin model says of blocks before it is priced (step_bound.h). */
#ifndef PLANNER_COST_LAYOUT_BOUND_H
#define PLANNER_COST_LAYOUT_BOUND_H

#include "planner/cost/layout_cost.h"
#include "planner/cost/step_bound.h"

/* lowered->lives. */
const ScratchLives *scratch_lives_create(const Lowered *lowered, int n_kinds, Arena *arena);

/* Of the lowered program with so many times as many sequences. */
const LayoutBound *layout_bound_make(const ModelCosts *costs, const Lowered *lowered, int n_more,
                                     Arena *arena);

#endif
