/* Simulate a candidate: the same prices as step_cost, but played task by task (pipeline_sim.h), so
 * that uneven stages, waiting for messages and what overlaps with what come out of the run.
 *
 * What software does is the cluster's: whether messages between stages and gradients overlap with
 * compute. After its last backward a stage reduces its gradients over axis d; then the first and
 * the last sum those of tied weights; then all wait for the norm; then each updates and, with
 * ZeRO-1, gathers its parameters. Messages that leave a node wait for one another where they share
 * network cards, within a node where one stage sends both ways.
 */
#ifndef PLANNER_SIMULATE_SIMULATE_CANDIDATE_H
#define PLANNER_SIMULATE_SIMULATE_CANDIDATE_H

#include "planner/cost/step_cost.h"
#include "planner/simulate/pipeline_sim.h"

/* Sets the times of `out` and nothing else of it: those of the stage that waits least; they add up
 * to step_us. False: reported; no candidate of the search's unless it has too many tasks. */
bool simulate_candidate(PipelineSim *sim, const ModelCosts *costs, const LayoutCost *layout,
                        const Candidate *candidate, const int *split, StepCost *out, Diag *diag);

/* What it plays, to be played with spans and drawn; of axis t's and d's ranks one is shown. The
 * load is `sim`'s scratch memory, or with `sim` NULL `arena`'s. */
PipelineLoad *candidate_load(PipelineSim *sim, Arena *arena, const ModelCosts *costs,
                             const LayoutCost *layout, const Candidate *candidate,
                             const int *split);

#endif
