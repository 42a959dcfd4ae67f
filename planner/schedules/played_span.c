#include "planner/schedules/played_span.h"

#include <string.h>

/* Micro-batches a stage: up to MOST_PLAYED are played as they are. */
enum { SHORT = 3, LONG = 4, MOST_PLAYED = SHORT + LONG };

typedef struct Play {
    const PipelineTimes *times;
    Path path;
    int n_total, n_micro, n_tasks; /* of one stage */
    Task *tasks;                   /* [p][n_tasks] */
    double *done[2];   /* [n_total][n_micro] forward, backward: when it has come to the next */
    double *border_us; /* [n_total]: after the global chunk */
    double *now;       /* [p] */
} Play;

enum { NOT_YET = -1 };

/* When the task's input is there. */
static double ready_us(const Play *play, const Task *task, int global) {
    if (task->kind == TASK_WEIGHTS) return 0;
    bool forward = task->kind == TASK_FORWARD;
    int from = forward ? global - 1 : global + 1;
    if (from < 0 || from == play->n_total) return 0;
    return play->done[!forward][from * play->n_micro + task->micro];
}

static bool play_task(Play *play, int stage, const Task *task) {
    int global = path_global(play->path, stage, task->chunk);
    double ready = ready_us(play, task, global), *now = &play->now[stage];
    if (ready < 0) return false;
    if (ready > *now) *now = ready;
    int at = global * play->n_micro + task->micro;
    switch (task->kind) {
    case TASK_FORWARD:
        *now += play->times->forward_us[global];
        play->done[0][at] = *now + play->border_us[global];
        break;
    case TASK_BACKWARD:
        *now += play->times->backward_us[global];
        play->done[1][at] = *now + (global > 0 ? play->border_us[global - 1] : 0);
        break;
    default: *now += play->times->weights_us[global];
    }
    return true;
}

/* The stages in turn, each as far as it gets; any order ends, and alike. */
static double play_all(Play *play, Arena *arena) {
    int p = play->path.p, n_left = p;
    int *next = ARENA_ARRAY(arena, int, p);
    while (n_left > 0) {
        bool moved = false;
        for (int s = 0; s < p; s++) {
            const Task *tasks = &play->tasks[(size_t)s * (size_t)play->n_tasks];
            int first = next[s];
            while (next[s] < play->n_tasks && play_task(play, s, &tasks[next[s]])) next[s]++;
            moved |= next[s] > first;
            n_left -= next[s] > first && next[s] == play->n_tasks;
        }
        if (!moved) BUG("an order of tasks that hangs");
    }
    double span = 0;
    for (int s = 0; s < p; s++) span = play->now[s] > span ? play->now[s] : span;
    return span;
}

static double play_span(ScheduleFunction *order, PathKind kind, const PipelineTimes *times,
                        int n_micro) {
    Arena *arena = arena_create();
    PipelineShape shape = times->shape;
    shape.n_micro = n_micro;
    int p = shape.p, n_total = p * shape.n_chunks;
    size_t n_done = (size_t)n_total * (size_t)n_micro;
    Play play = {.times = times,
                 .path = {kind, p},
                 .n_total = n_total,
                 .n_micro = n_micro,
                 .n_tasks = 3 * shape.n_chunks * n_micro,
                 .border_us = ARENA_ARRAY(arena, double, n_total),
                 .now = ARENA_ARRAY(arena, double, p)};
    play.tasks = ARENA_ARRAY(arena, Task, (size_t)p * (size_t)play.n_tasks);
    for (int i = 0; i < 2; i++) play.done[i] = ARENA_ARRAY(arena, double, n_done);
    for (size_t i = 0; i < n_done; i++) play.done[0][i] = play.done[1][i] = NOT_YET;
    for (int s = 0; s < p; s++) order(&shape, s, &play.tasks[(size_t)s * (size_t)play.n_tasks]);
    for (int g = 0; g + 1 < n_total; g++) {
        int border = path_border(play.path, g);
        play.border_us[g] = border < 0 ? 0 : times->border_us[border];
    }
    double span = play_all(&play, arena);
    arena_destroy(arena);
    return span;
}

double played_span(ScheduleFunction *order, PathKind kind, const PipelineTimes *times) {
    int p = times->shape.p, m = times->shape.n_micro;
    if (m <= MOST_PLAYED * p) return play_span(order, kind, times, m);
    double few = play_span(order, kind, times, SHORT * p);
    double more = play_span(order, kind, times, LONG * p);
    return more + (more - few) * (m - LONG * p) / ((LONG - SHORT) * p);
}
