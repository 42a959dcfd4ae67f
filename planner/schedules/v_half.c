/* V-Half: ZB-V's chunks in a V with half of its frames (Qi et al. 2024, "Pipeline Parallelism with
 * Controllable Memory", arXiv 2405.15362, section 3).
 *
 * A micro-batch's six tasks on each stage are a block in space and time, of tasks of equal length;
 * the next micro-batch's is the same block, six tasks later. So a stage's tasks never meet where
 * their starts differ modulo 6, and as many of a chunk's frames are in flight as sixes lie between
 * its F and its W: the sooner the next stage follows, the fewer.
 *
 *   F0 ->1  F1 ->2  B1 ->1  B0 ->2    tasks from stage to stage
 *
 * and what the turns wait for keeps starts apart (for V-Min, all by 1, a third of the frames is
 * enough, but where B is longer than F every stage waits for the next). W's take the two places
 * left. Once a stage has no more forwards, stage s's W's fall back behind s later ones, as nobody
 * waits for them: the end is shorter, and frames only become fewer.
 *
 * A stage has p + 1 or p + 2 frames, whichever is even, each half a stage's. Fewer micro-batches
 * than that are in the order of many, less those that there are not. */
#include "planner/plan/schedule.h"
#include "planner/schedules/played_span.h"

enum { F0, F1, B1, B0, W1, W0, N_BLOCK };

static const struct {
    TaskKind kind;
    int chunk;
} TASKS[N_BLOCK] = {
    [F0] = {TASK_FORWARD, 0},  [F1] = {TASK_FORWARD, 1}, [B1] = {TASK_BACKWARD, 1},
    [B0] = {TASK_BACKWARD, 0}, [W1] = {TASK_WEIGHTS, 1}, [W0] = {TASK_WEIGHTS, 0},
};

/* When micro-batch 0's tasks start on a stage, in tasks. */
typedef struct Block {
    int start[N_BLOCK];
} Block;

/* The first time after `time` at which, modulo 6, none of the ways' tasks start, nor `w` does. */
static int free_after(const Block *block, int time, int w) {
    bool taken[N_BLOCK] = {false};
    for (int i = 0; i <= B0; i++) taken[block->start[i] % N_BLOCK] = true;
    taken[w % N_BLOCK] = true;
    do time++;
    while (taken[time % N_BLOCK]);
    return time;
}

static Block block_of(int p, int stage) {
    int to_turn = p - 1 - stage, wait_up = p % 2 ? 1 : 4;
    Block block;
    int *start = block.start;
    start[F0] = stage;
    start[F1] = p + 2 * to_turn;
    start[B1] = p + 2 * (p - 1) + wait_up + stage;
    start[B0] = start[B1] + to_turn + 2 + 2 * to_turn;
    /* Of the two places, each W its soonest, if it can: a micro-batch's W1 comes first (path.h). */
    int w1 = free_after(&block, start[B1], start[B1]), w0 = free_after(&block, start[B0], w1);
    int early = free_after(&block, start[B0], start[B0]);
    int late = free_after(&block, start[B1], early);
    bool swap = late < early && late + early < w1 + w0;
    start[W1] = swap ? late : w1;
    start[W0] = swap ? early : w0;
    return block;
}

/* Which task, of which micro-batch, starts at a time: exactly one, modulo 6. */
typedef struct Clock {
    const Block *block;
    int n_micro, time, task_at[N_BLOCK];
} Clock;

static Clock clock_of(const Block *block, int n_micro) {
    Clock clock = {.block = block, .n_micro = n_micro};
    for (int i = 0; i < N_BLOCK; i++) clock.task_at[block->start[i] % N_BLOCK] = i;
    return clock;
}

/* The next of the tasks from `first` on; there must be one. */
static Task next_task(Clock *clock, int first) {
    while (true) {
        int task = clock->task_at[clock->time % N_BLOCK];
        int after = clock->time++ - clock->block->start[task];
        if (task < first || after < 0 || after >= N_BLOCK * clock->n_micro) continue;
        return (Task){.kind = (uint8_t)TASKS[task].kind,
                      .chunk = (uint8_t)TASKS[task].chunk,
                      .micro = after / N_BLOCK};
    }
}

void schedule_v_half(const PipelineShape *shape, int stage, Task *out) {
    Block block = block_of(shape->p, stage);
    Clock clock = clock_of(&block, shape->n_micro), weights = clock;
    int n_forward = 2 * shape->n_micro, n_behind = 0;
    for (int i = 0; i < N_BLOCK * shape->n_micro; i++) {
        Task task = next_task(&clock, F0);
        n_forward -= task.kind == TASK_FORWARD;
        if (task.kind == TASK_WEIGHTS) {
            if (n_forward == 0 && n_behind < stage) {
                n_behind++;
                continue;
            }
            task = next_task(&weights, W1);
        }
        *out++ = task;
    }
    while (n_behind-- > 0) *out++ = next_task(&weights, W1);
}

double schedule_v_half_span(const PipelineTimes *times) {
    return played_span(schedule_v_half, PATH_V, times);
}

/* Micro-batches whose task has started, at `time`. */
static int n_started(int start, int time, int m) {
    if (time < start) return 0;
    int n = (time - start) / N_BLOCK + 1;
    return n < m ? n : m;
}

static int in_flight(const Block *block, int time, int m) {
    const int *start = block->start;
    return n_started(start[F0], time, m) - n_started(start[W0], time, m) +
           n_started(start[F1], time, m) - n_started(start[W1], time, m);
}

static int frames_of_chunk(const Block *block, int f, int w, int m) {
    int n = (block->start[w] - block->start[f] + N_BLOCK - 1) / N_BLOCK;
    return n < m ? n : m;
}

int schedule_v_half_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    Block block = block_of(shape->p, stage);
    int m = shape->n_micro, most = 0;
    if (chunk >= 2) return 0;
    if (chunk != NO_CHUNK) {
        bool first = (chunk == 0) == alone;
        return first ? frames_of_chunk(&block, F0, W0, m) : frames_of_chunk(&block, F1, W1, m);
    }
    /* As many as ever from when the first micro-batch is through, while there are more forwards. */
    int through = block.start[W0] / N_BLOCK + 1;
    bool steady = m > 2 * through;
    for (int i = steady ? through : 0; i < (steady ? through + 1 : m); i++) {
        for (int f = F0; f <= F1; f++) {
            int n = in_flight(&block, block.start[f] + N_BLOCK * i, m);
            if (n > most) most = n;
        }
    }
    return most;
}
