#include "runtime/cuda/driver/trace.h"

#include <stdlib.h>

/* Events of one trace: 0 is the beginning, then two a command. */
typedef struct Events {
    const CuApi *api;
    int count;
    cudaEvent_t *items;
} Events;

static bool make_events(Events *events, int count, Arena *arena, Diag *diag) {
    events->items = ARENA_ARRAY(arena, cudaEvent_t, count);
    while (events->count < count) {
        if (!cuda_check(events->api,
                        events->api->cudaEventCreateWithFlags(&events->items[events->count],
                                                              cudaEventDefault),
                        diag, "making an event")) {
            return false;
        }
        events->count++;
    }
    return true;
}

/* Microseconds from the beginning; an event has a resolution of about half of one. */
static bool read_time(const Events *events, cudaEvent_t event, double *out_us, Diag *diag) {
    float milliseconds = 0;
    if (!cuda_check(events->api,
                    events->api->cudaEventElapsedTime(&milliseconds, events->items[0], event), diag,
                    "reading a time")) {
        return false;
    }
    *out_us = 1e3 * (double)milliseconds;
    return true;
}

static int by_rank_and_time(const void *a, const void *b) {
    const EngineSpan *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->begin_us != y->begin_us) return x->begin_us < y->begin_us ? -1 : 1;
    return (x->end_us > y->end_us) - (x->end_us < y->end_us);
}

static bool read_spans(const Replay *replay, const Events *events, const cudaEvent_t *begins,
                       const cudaEvent_t *ends, EngineSpan *spans, Diag *diag) {
    for (int i = 0; i < replay->list.count; i++) {
        const Command *command = &replay->list.items[i];
        spans[i] = (EngineSpan){.rank = command->info.rank,
                                .stream = stream_kind_name(command->stream),
                                .task = command->info.task,
                                .chunk = command->info.chunk,
                                .micro = command->info.micro,
                                .node = command_main_node(command)};
        if (!read_time(events, begins[i], &spans[i].begin_us, diag) ||
            !read_time(events, ends[i], &spans[i].end_us, diag)) {
            return false;
        }
    }
    qsort(spans, (size_t)replay->list.count, sizeof(*spans), by_rank_and_time);
    return true;
}

bool cuda_trace_replay(Replay *replay, Arena *arena, EngineSpan **out_spans, int *out_count,
                       Diag *diag) {
    const CuApi *api = replay->context->device->api;
    int count = replay->list.count;
    cudaStream_t origin = replay->context->streams[0];
    Events events = {.api = api};
    *out_count = count;
    *out_spans = ARENA_ARRAY(arena, EngineSpan, count + 1);
    bool fine = make_events(&events, 2 * count + 1, arena, diag);
    const cudaEvent_t *begins = events.items + 1, *ends = begins + count;
    fine = fine &&
           cuda_check(api, api->cudaEventRecord(events.items[0], origin), diag, "timing a step") &&
           replay_issue_timed(replay, begins, ends, diag) && replay_wait(replay, diag) &&
           read_spans(replay, &events, begins, ends, *out_spans, diag);
    for (int i = 0; i < events.count; i++) api->cudaEventDestroy(events.items[i]);
    return fine;
}

bool cuda_measure_replay(Replay *replay, WorkSums *work, Diag *diag) {
    Arena *arena = arena_create();
    EngineSpan *spans;
    int count;
    const bool fine = cuda_trace_replay(replay, arena, &spans, &count, diag);
    for (int i = 0; i < count && fine; i++) {
        const EngineSpan *span = &spans[i];
        rank_work_add(&work[span->rank].sum, span->node, span->task,
                      1e-6 * (span->end_us - span->begin_us), 0);
        if (i + 1 == count || spans[i + 1].rank != span->rank)
            work_sums_end_step(&work[span->rank]);
    }
    arena_destroy(arena);
    return fine;
}
