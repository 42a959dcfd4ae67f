/* GPipe (Huang et al. 2019): every micro-batch forward, then every one backward, in the same order,
 * so that the last stage can start a backward as soon as the first micro-batch is through. */
#include "planner/schedule.h"

void schedule_gpipe(const PipelineShape *shape, int stage, Task *out) {
    (void)stage;
    for (int micro = 0; micro < shape->n_micro; micro++) {
        out[micro] = (Task){.kind = TASK_FORWARD, .micro = micro};
        out[shape->n_micro + micro] = (Task){.kind = TASK_BACKWARD, .micro = micro};
    }
}
