/* GPipe (Huang et al. 2019): every micro-batch forward, then every one backward, in the same order,
 * so that the last stage can start a backward as soon as the first micro-batch is through. */
#include "planner/plan/schedule.h"

void schedule_gpipe(const PipelineShape *shape, int stage, Task *out) {
    (void)stage;
    for (int micro = 0; micro < shape->n_micro; micro++) {
        out[micro] = (Task){.kind = TASK_FORWARD, .micro = micro};
        out[shape->n_micro + micro] = (Task){.kind = TASK_BACKWARD, .micro = micro};
    }
}

/* The forwards are a flow shop, and so are the backwards, which start when the last is through. */
double schedule_gpipe_span(const PipelineTimes *times) {
    double sum = 0, forward = 0, backward = 0;
    int p = times->shape.p, m = times->shape.n_micro;
    for (int s = 0; s < p; s++) {
        double border = s + 1 < p ? times->border_us[s] : 0;
        sum += times->forward_us[s] + times->backward_us[s] + 2 * border;
        if (times->forward_us[s] > forward) forward = times->forward_us[s];
        if (times->backward_us[s] > backward) backward = times->backward_us[s];
        if (border > forward) forward = border;
        if (border > backward) backward = border;
    }
    return sum + (m - 1) * (forward + backward);
}

int schedule_gpipe_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    (void)stage;
    return (chunk == 0) == alone ? shape->n_micro : 0;
}
