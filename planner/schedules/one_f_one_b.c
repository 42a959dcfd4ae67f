/* One forward, one backward (PipeDream-flush: Narayanan et al. 2021, section 2.2.1).
 *
 * A stage warms up with as many forwards as there are stages after it, then alternates, then
 * drains: at most p - stage micro-batches are in flight. */
#include "planner/schedule.h"

void schedule_one_f_one_b(const PipelineShape *shape, int stage, Task *out) {
    int n_warm = shape->p - 1 - stage;
    if (n_warm > shape->n_micro) n_warm = shape->n_micro;
    for (int i = 0; i < shape->n_micro + n_warm; i++) {
        int done = i - n_warm;
        if (i < shape->n_micro) *out++ = (Task){.kind = TASK_FORWARD, .micro = i};
        if (done >= 0) *out++ = (Task){.kind = TASK_BACKWARD, .micro = done};
    }
}
