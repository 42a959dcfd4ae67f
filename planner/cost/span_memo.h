/* The last span that was asked for: candidates that differ in what comes after their tasks alone
 * (ZeRO-1, its replicas) have the same, which some schedules have to play. */
#ifndef PLANNER_COST_SPAN_MEMO_H
#define PLANNER_COST_SPAN_MEMO_H

#include "ir/base/arena.h"
#include "planner/plan/schedule.h"

#include <stdbool.h>

typedef struct SpanMemo {
    bool known;
    int schedule;
    PipelineShape shape;
    double us;
    double *times; /* forward, backward, weights, borders, one behind the other; NULL: no memo */
} SpanMemo;

/* For so many chunks at most. */
SpanMemo span_memo_create(int n_chunks, Arena *arena);

/* schedule_span(schedule, times). */
double span_memo_us(SpanMemo *memo, int schedule, const PipelineTimes *times);

#endif
