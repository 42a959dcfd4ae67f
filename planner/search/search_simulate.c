/* Simulating a candidate of any length: once the pipeline is full every group of p micro-batches
 * takes as long as the one before, so of thousands a few groups are played, twice. */
#include "planner/search/search_records.h"

enum {
    SHORT_GROUPS = 8,
    LONG_GROUPS = 12,
    FEW_TASKS = 100000 /* played as they are */
};

static int64_t count_tasks(const Candidate *candidate, int n_micro) {
    return 2 * (int64_t)candidate->p * candidate->n_chunks * n_micro;
}

/* So many groups, and what is left over of the last one as there really is. */
static int count_micro(const Candidate *candidate, int n_groups) {
    return n_groups * candidate->p + candidate->n_micro % candidate->p;
}

static bool is_played_whole(const Candidate *candidate) {
    return count_tasks(candidate, candidate->n_micro) <= FEW_TASKS ||
           candidate->n_micro < count_micro(candidate, 2 * (SHORT_GROUPS + LONG_GROUPS));
}

int64_t search_count_tasks(const Candidate *candidate) {
    if (is_played_whole(candidate)) return count_tasks(candidate, candidate->n_micro);
    return count_tasks(candidate, count_micro(candidate, SHORT_GROUPS)) +
           count_tasks(candidate, count_micro(candidate, LONG_GROUPS));
}

bool search_simulate(PipelineSim *sim, const ModelCosts *costs, const LayoutCost *layout,
                     const Candidate *candidate, const int *split, StepCost *cost, Diag *diag) {
    if (is_played_whole(candidate)) {
        return simulate_candidate(sim, costs, layout, candidate, split, cost, diag);
    }
    Candidate few = *candidate, more = *candidate;
    StepCost a = *cost, b = *cost;
    few.n_micro = count_micro(candidate, SHORT_GROUPS);
    more.n_micro = count_micro(candidate, LONG_GROUPS);
    if (!simulate_candidate(sim, costs, layout, &few, split, &a, diag) ||
        !simulate_candidate(sim, costs, layout, &more, split, &b, diag)) {
        return false;
    }
    double beyond = (double)(candidate->n_micro - more.n_micro) / (more.n_micro - few.n_micro);
    cost->step_us = b.step_us + beyond * (b.step_us - a.step_us);
    cost->compute_us = b.compute_us + beyond * (b.compute_us - a.compute_us);
    cost->tensor_us = b.tensor_us + beyond * (b.tensor_us - a.tensor_us);
    cost->pipeline_us = b.pipeline_us + beyond * (b.pipeline_us - a.pipeline_us);
    cost->bubble_us = b.bubble_us + beyond * (b.bubble_us - a.bubble_us);
    cost->wait_us = b.wait_us + beyond * (b.wait_us - a.wait_us);
    cost->data_us = b.data_us + beyond * (b.data_us - a.data_us);
    cost->update_us = b.update_us + beyond * (b.update_us - a.update_us);
    cost->bubble_fraction = cost->step_us > 0 ? cost->bubble_us / cost->step_us : 0;
    return true;
}
