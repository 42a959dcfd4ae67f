/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2).
 *
 * Micro-batches travel in groups of p: a stage takes a group through its chunk 0, then the same
 * group through chunk 1, and so on; backwards go through the chunks in reverse. The warm-up covers
 * the earlier chunks of the first group (p each) and, for each stage that follows, a forward on the
 * way there and one more while its gradient is on the way back. */
#include "planner/schedule.h"

static Task step(const PipelineShape *shape, TaskKind kind, int index) {
    int in_group = index % (shape->p * shape->n_chunks);
    int group = index / (shape->p * shape->n_chunks);
    int chunk = in_group / shape->p;
    if (kind == TASK_BACKWARD) chunk = shape->n_chunks - 1 - chunk;
    return (Task){.kind = (uint8_t)kind,
                  .chunk = (uint8_t)chunk,
                  .micro = group * shape->p + in_group % shape->p};
}

void schedule_interleaved(const PipelineShape *shape, int stage, Task *out) {
    int n_steps = shape->n_micro * shape->n_chunks;
    int n_after = shape->p - 1 - stage;
    /* With one chunk nothing is to be interleaved, and 1F1B's shorter warm-up is enough. */
    int n_warm = shape->n_chunks == 1 ? n_after : 2 * n_after + (shape->n_chunks - 1) * shape->p;
    if (n_warm > n_steps) n_warm = n_steps;
    for (int i = 0; i < n_steps + n_warm; i++) {
        if (i < n_steps) *out++ = step(shape, TASK_FORWARD, i);
        if (i >= n_warm) *out++ = step(shape, TASK_BACKWARD, i - n_warm);
    }
}
