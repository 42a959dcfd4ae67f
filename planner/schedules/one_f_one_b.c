/* One forward, one backward (PipeDream-flush: Narayanan et al. 2021, section 2.2.1).
 *
 * A stage warms up with as many forwards as there are stages after it, then alternates, then
 * drains: at most p - stage micro-batches are in flight. */
#include "planner/plan/schedule.h"

void schedule_one_f_one_b(const PipelineShape *shape, int stage, Task *out) {
    int n_warm = shape->p - 1 - stage;
    if (n_warm > shape->n_micro) n_warm = shape->n_micro;
    for (int i = 0; i < shape->n_micro + n_warm; i++) {
        int done = i - n_warm;
        if (i < shape->n_micro) *out++ = (Task){.kind = TASK_FORWARD, .micro = i};
        if (done >= 0) *out++ = (Task){.kind = TASK_BACKWARD, .micro = done};
    }
}

/* The longest of the paths through stage s, which has w warm-up forwards:
 * - all tasks of s, entered and left by the shorter way: short of w forwards or backwards;
 * - down the pipeline and back to s, then round and round between s and a later stage e, each
 *   round e - s + 1 micro-batches further on, then down and back once more. */
double schedule_one_f_one_b_span(const PipelineTimes *times) {
    enum { MOST_LEGS = 16 }; /* longer rounds differ by less than the border's 16th */
    const double *forward = times->forward_us, *backward = times->backward_us;
    int p = times->shape.p, m = times->shape.n_micro;
    double once = 0, most = 0, below = 0;
    for (int s = 0; s < p; s++) {
        once += forward[s] + backward[s] + (s + 1 < p ? 2 * times->border_us[s] : 0);
    }
    for (int s = p - 1; s >= 0; s--) {
        double own = forward[s] + backward[s], shorter = forward[s];
        int n_warm = p - 1 - s;
        if (backward[s] < shorter) shorter = backward[s];
        double more = (m - 1) * own - (n_warm < m - 1 ? n_warm : m - 1) * shorter;
        if (more > most) most = more;
        below += own + (s + 1 < p ? 2 * times->border_us[s] : 0);
        if (n_warm > m - 2) continue;
        double round = own, slowest = own;
        for (int e = s + 1; e < p; e++) {
            round += forward[e] + backward[e] + 2 * times->border_us[e - 1];
            if (round > slowest * (e - s + 1)) slowest = round / (e - s + 1);
            if (e - s > MOST_LEGS) break;
        }
        if (below > slowest * (n_warm + 1)) slowest = below / (n_warm + 1);
        more = below + (m - 2 - n_warm) * slowest;
        if (more > most) most = more;
    }
    for (int s = 0; s + 1 < p; s++) {
        if ((m - 1) * times->border_us[s] > most) most = (m - 1) * times->border_us[s];
    }
    return once + most;
}

int schedule_one_f_one_b_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    int in_flight = shape->p - stage;
    if ((chunk == 0) != alone) return 0;
    return in_flight < shape->n_micro ? in_flight : shape->n_micro;
}
