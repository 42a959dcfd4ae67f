/* The time of Muon's products, which with ZeRO the ranks that share weights divide: matrices of one
 * kind of a stage go in groups of as many as there are such ranks, each of which does one
 * (append_update.c). So time goes by groups, full or not.
 */
#ifndef PLANNER_COST_MUON_COST_H
#define PLANNER_COST_MUON_COST_H

#include "planner/cost/collective_time.h"

/* [k]: of matrices of the k-th shape, in a model's order; 0: of no block, which no group has; the
 * last: and of all shapes that follow. */
enum { MUON_SHAPES = 12 };
typedef struct MuonCost {
    double us[MUON_SHAPES + 1];    /* of all, on one rank */
    double bytes[MUON_SHAPES + 1]; /* likewise, as products read them */
    int n[MUON_SHAPES + 1];
} MuonCost;

/* Adds one matrix. */
void muon_cost_note(MuonCost *cost, int shape, double us, double bytes);
void muon_cost_add(MuonCost *sum, const MuonCost *other, int count);

/* Of a stage, a step. `group`: the ranks that share its weights; divided: with ZeRO. */
double muon_cost_us(const MuonCost *stage, const Cluster *cluster, const CollectiveGroup *group,
                    bool divided);

#endif
