/* ZB-V (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 6, and "Pipeline Parallelism
 * with Controllable Memory", arXiv 2405.15362; PyTorch's ScheduleZBVZeroBubble is its like).
 *
 * Chunk 0 goes down the stages, chunk 1 back up, so that stage 0 has a micro-batch's first forward
 * and its last, and can begin its backward at once. Where B, W and F take equally long no stage
 * waits but for its first micro-batch. Stage s, of which r = p - s is the distance to the turn:
 *
 *   F0 2r - 1 times              until the first micro-batch is back
 *   F1 F0, s times               one up for each down
 *   F1 B1 W1, r times            the first of them are through, and come down again
 *   F0 B0 W0 F1 B1 W1, ...       each micro-batch in turn
 *   B0 B1, s times               no forward is left
 *   B0 W0, r times
 *   W1, then W0                  what waited: there was something others wait for
 *
 * A frame lives until its W. A stage has as many of chunk 0 as it is far from the turn, twice, and
 * of chunk 1 as it is from the top: 2 p in all, each half a stage's, which is what 1F1B has on
 * stage 0. A micro-batch's W1 comes before its W0, as what the turn hands over needs (path.h). */
#include "planner/plan/schedule.h"
#include "planner/schedules/played_span.h"

static int at_most(int a, int b) {
    return a < b ? a : b;
}

typedef struct Writer {
    Task *out;
    int n_micro, next[N_TASK_KINDS][2]; /* micro-batch, of each chunk */
} Writer;

/* The next micro-batch's, if there is one. */
static void put(Writer *w, TaskKind kind, int chunk) {
    int micro = w->next[kind][chunk]++;
    if (micro >= w->n_micro) return;
    *w->out++ = (Task){.kind = (uint8_t)kind, .chunk = (uint8_t)chunk, .micro = micro};
}

static void put_backward(Writer *w, int chunk) {
    put(w, TASK_BACKWARD, chunk);
    put(w, TASK_WEIGHTS, chunk);
}

void schedule_zb_v(const PipelineShape *shape, int stage, Task *out) {
    Writer w = {.out = out, .n_micro = shape->n_micro};
    int p = shape->p, m = shape->n_micro, to_turn = p - stage;
    if (m < 2 * p - 1) m = 2 * p - 1; /* the order of so many, less those that there are not */
    for (int i = 0; i < 2 * to_turn - 1; i++) put(&w, TASK_FORWARD, 0);
    for (int i = 0; i < stage; i++) {
        put(&w, TASK_FORWARD, 1);
        put(&w, TASK_FORWARD, 0);
    }
    for (int i = 0; i < to_turn; i++) {
        put(&w, TASK_FORWARD, 1);
        put_backward(&w, 1);
    }
    for (int i = 0; i < m - p; i++) {
        put(&w, TASK_FORWARD, 0);
        put_backward(&w, 0);
        put(&w, TASK_FORWARD, 1);
        put_backward(&w, 1);
    }
    for (int i = 0; i < stage; i++) {
        put(&w, TASK_BACKWARD, 0);
        put(&w, TASK_BACKWARD, 1);
    }
    for (int i = 0; i < to_turn; i++) put_backward(&w, 0);
    for (int i = 0; i < stage; i++) put(&w, TASK_WEIGHTS, 1);
    for (int i = 0; i < stage; i++) put(&w, TASK_WEIGHTS, 0);
}

double schedule_zb_v_span(const PipelineTimes *times) {
    return played_span(schedule_zb_v, PATH_V, times);
}

int schedule_zb_v_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    int m = shape->n_micro, down = 2 * shape->p - stage, up = at_most(stage + 1, m);
    if (chunk == NO_CHUNK) return at_most(down - 1, m) + up;
    if (chunk >= 2) return 0;
    return (chunk == 0) == alone ? at_most(down, m) : up;
}
