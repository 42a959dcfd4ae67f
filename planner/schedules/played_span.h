/* The span of an order that has no closed form: its tasks are played. */
#ifndef PLANNER_SCHEDULES_PLAYED_SPAN_H
#define PLANNER_SCHEDULES_PLAYED_SPAN_H

#include "planner/plan/schedule.h"

/* As a ScheduleSpan of an order with W's. Exact for a few micro-batches a stage; of more, two
 * numbers are played, since once the pipeline is full each micro-batch adds about the same. */
double played_span(ScheduleFunction *order, PathKind kind, const PipelineTimes *times);

#endif
