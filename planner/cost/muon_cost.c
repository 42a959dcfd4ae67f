#include "planner/cost/muon_cost.h"

#include <math.h>

void muon_cost_note(MuonCost *cost, int shape, double us, double bytes) {
    int k = shape < MUON_SHAPES ? shape : MUON_SHAPES;
    cost->us[k] += us;
    cost->bytes[k] += bytes;
    cost->n[k]++;
}

void muon_cost_add(MuonCost *sum, const MuonCost *other, int count) {
    for (int k = 0; k <= MUON_SHAPES; k++) {
        sum->us[k] += count * other->us[k];
        sum->bytes[k] += count * other->bytes[k];
        sum->n[k] += count * other->n[k];
    }
}

double muon_cost_us(const MuonCost *stage, const Cluster *cluster, const CollectiveGroup *group,
                    bool divided) {
    double us = 0;
    for (int k = 0; k <= MUON_SHAPES; k++) {
        double n = stage->n[k], ranks = group->n_ranks, groups = ceil(n / ranks);
        if (stage->n[k] == 0) continue;
        if (k == 0 || !divided || ranks < 2) {
            us += stage->us[k];
            continue;
        }
        /* Sizes of a group's matrices, shards to whole ones, and back. */
        double sizes = collective_us(cluster, COLLECTIVE_ALL_REDUCE, 4 * ranks, group);
        double moves = collective_us(cluster, COLLECTIVE_ALL_TO_ALL, stage->bytes[k] / n, group);
        us += groups * (stage->us[k] / n + sizes + 2 * moves);
    }
    return us;
}
