/* plan_frames: where micro-batches in flight keep what their backward needs.
 *
 * A frame is one micro-batch's memory on one chunk, from its forward to its backward, or to its W
 * where the schedule has those. Frames are
 * slots of pools. Chunks of about the same size share a pool: with interleaved schedules they are
 * at their peaks at different times, so that together they need fewer slots than one by one (the
 * first stage's p (1 + (p - 1) / (p v)) blocks' worth of Narayanan et al. 2021, section 2.2).
 */
#include "planner/passes/pass.h"

#include <string.h>

int64_t plan_slot_bytes(const Plan *plan, const Stage *stage, int pool) {
    const Program *program = &plan->programs[stage->program];
    int64_t most = 0;
    for (int c = 0; c < plan->n_chunks; c++) {
        if (stage->frame_pool[c] == pool && program->frame_bytes[c] > most) {
            most = program->frame_bytes[c];
        }
    }
    return most;
}

int64_t plan_host_slot_bytes(const Plan *plan, const Stage *stage, int pool) {
    const Program *program = &plan->programs[stage->program];
    int64_t most = 0;
    for (int c = 0; c < plan->n_chunks; c++) {
        if (stage->frame_pool[c] == pool && program->host_frame_bytes[c] > most) {
            most = program->host_frame_bytes[c];
        }
    }
    return most;
}

int64_t plan_host_frames_bytes(const Plan *plan, const Stage *stage) {
    int64_t sum = 0;
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        sum += stage->frame_slots[pool] * plan_host_slot_bytes(plan, stage, pool);
    }
    return sum;
}

size_t plan_pool_frames(const Plan *plan, const Stage *stage, int pool) {
    size_t n_chunks = 0;
    for (int c = 0; c < plan->n_chunks; c++) n_chunks += stage->frame_pool[c] == pool;
    return n_chunks * (size_t)plan->n_micro;
}

void plan_frame_ends(const Stage *stage, TaskKind out_ends[MAX_CHUNKS]) {
    for (int c = 0; c < MAX_CHUNKS; c++) out_ends[c] = TASK_BACKWARD;
    for (int i = 0; i < stage->n_tasks; i++) {
        if (stage->tasks[i].kind == TASK_WEIGHTS) out_ends[stage->tasks[i].chunk] = TASK_WEIGHTS;
    }
}

int plan_frame_slots(const Plan *plan, const Stage *stage, int32_t *out_slots) {
    Arena *scratch = arena_create();
    int32_t *freed[MAX_CHUNKS];
    int n_freed[MAX_CHUNKS] = {0}, n_used[MAX_CHUNKS] = {0}, failed = -1;
    TaskKind ends[MAX_CHUNKS];
    plan_frame_ends(stage, ends);
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        freed[pool] = ARENA_ARRAY(scratch, int32_t, plan_pool_frames(plan, stage, pool) + 1);
    }
    for (int i = 0; i < stage->n_tasks && failed < 0; i++) {
        const Task *task = &stage->tasks[i];
        int pool = stage->frame_pool[task->chunk];
        int32_t *slot = &out_slots[(size_t)task->chunk * (size_t)plan->n_micro + task->micro];
        if (task->kind == TASK_FORWARD) {
            *slot = n_freed[pool] ? freed[pool][--n_freed[pool]] : n_used[pool]++;
            if (*slot >= stage->frame_slots[pool]) failed = i;
        } else if (task->kind == ends[task->chunk]) {
            freed[pool][n_freed[pool]++] = *slot;
        }
    }
    arena_destroy(scratch);
    return failed;
}

/* The most frames of each pool that are in flight at once. */
static void count_slots(const Stage *stage, const int pools[MAX_CHUNKS],
                        int out_slots[MAX_CHUNKS]) {
    int in_flight[MAX_CHUNKS] = {0};
    TaskKind ends[MAX_CHUNKS];
    plan_frame_ends(stage, ends);
    memset(out_slots, 0, MAX_CHUNKS * sizeof(int));
    for (int i = 0; i < stage->n_tasks; i++) {
        const Task *task = &stage->tasks[i];
        int pool = pools[task->chunk];
        if (task->kind == TASK_FORWARD && ++in_flight[pool] > out_slots[pool]) out_slots[pool]++;
        if (task->kind == ends[task->chunk]) in_flight[pool]--;
    }
}

static int64_t pools_bytes(const Plan *plan, const Stage *stage) {
    int64_t sum = 0;
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        sum += stage->frame_slots[pool] * plan_slot_bytes(plan, stage, pool);
    }
    return sum;
}

static int largest_chunk(const Plan *plan, const Stage *stage) {
    const Program *program = &plan->programs[stage->program];
    int largest = 0;
    for (int c = 1; c < plan->n_chunks; c++) {
        if (program->frame_bytes[c] > program->frame_bytes[largest]) largest = c;
    }
    return largest;
}

void plan_choose_pools(const Plan *plan, Stage *stage) {
    int largest = largest_chunk(plan, stage);
    enum { TOGETHER, LARGEST_ALONE, EACH_ALONE, N_WAYS };
    Stage best = *stage;
    for (int way = 0; way < N_WAYS; way++) {
        Stage tried = *stage;
        for (int c = 0; c < plan->n_chunks; c++) {
            tried.frame_pool[c] = way == TOGETHER ? 0 : way == LARGEST_ALONE ? c == largest : c;
        }
        if (way == LARGEST_ALONE && plan->n_chunks == 1) continue;
        count_slots(&tried, tried.frame_pool, tried.frame_slots);
        if (way == TOGETHER || pools_bytes(plan, &tried) < pools_bytes(plan, &best)) best = tried;
    }
    *stage = best;
}
