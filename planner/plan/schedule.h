/* Schedules: in which order a pipeline stage runs its micro-batches, and what follows from it.
 *
 * A schedule is an ordering function only (in schedules/, one row each in schedules.def):
 * from the pipeline's shape to the FORWARD and BACKWARD tasks of one stage, and WEIGHTS tasks if it
 * splits backwards: then BACKWARD is only what the stages before wait for (split_backward.c). The
 * rest of the program never asks for a schedule's name: messages, frame slots and channel depths
 * follow from the lists.
 *
 * A stage holds n_chunks chunks, which a micro-batch passes in the order of the schedule's path
 * (path.h); the first receives no activation, the last no gradient.
 */
#ifndef PLANNER_PLAN_SCHEDULE_H
#define PLANNER_PLAN_SCHEDULE_H

#include "planner/plan/plan.h"

enum { MAX_MICRO = 1 << 20, MAX_STAGES = 4096 };

typedef struct PipelineShape {
    int p, n_chunks, n_micro;
    PathKind path; /* a V, or not: the schedule's */
} PipelineShape;
Path shape_path(const PipelineShape *shape);

/* Fills out[schedule_n_tasks] with the tasks of `stage`. */
typedef void ScheduleFunction(const PipelineShape *shape, int stage, Task *out);

/* What a pipeline's tasks take; the global chunks in pipeline order. */
typedef struct PipelineTimes {
    PipelineShape shape;
    const double *forward_us, *backward_us; /* [p * n_chunks], one micro-batch */
    const double *weights_us; /* likewise, where the schedule splits backwards: no part of them */
    const double *border_us;  /* [p]: from stage s to the next, in either direction: how long a
                                 message is on its way while both stages go on with other work */
} PipelineTimes;

/* From the first forward to the end of the last task, in closed form: exact for equal stages,
 * else near it (the longest of the paths that are critical in practice). */
typedef double ScheduleSpan(const PipelineTimes *times);
/* The most frames in flight at once on a stage, in closed form: of `chunk` alone, or of all chunks
 * but it (NO_CHUNK: of all). */
typedef int ScheduleFrames(const PipelineShape *shape, int stage, int chunk, bool alone);
enum { NO_CHUNK = -1 };

#define SCHEDULE(name, stem, path, splits, help)                                                   \
    ScheduleFunction stem;                                                                         \
    ScheduleSpan stem##_span;                                                                      \
    ScheduleFrames stem##_frames;
#include "planner/schedules/schedules.def"
#undef SCHEDULE

const char *schedule_name(int index); /* NULL past the last */
const char *schedule_help(int index); /* NULL past the last */
int schedule_find(const char *name);  /* -1: there is none */
PathKind schedule_path(int index);
bool schedule_is_chunked(int index); /* can a stage have several chunks? */
int schedule_least_chunks(int index);
bool schedule_splits(int index);
/* Tasks of a stage, messages and update not counted. */
int64_t schedule_n_tasks(int index, const PipelineShape *shape);
double schedule_span(int index, const PipelineTimes *times);
int schedule_frames(int index, const PipelineShape *shape, int stage, int chunk);
int schedule_frames_but(int index, const PipelineShape *shape, int stage, int chunk);
/* schedule_check without a report. */
bool schedule_allows(int index, const PipelineShape *shape);

/* Is there such a schedule, and can it do this shape? Reports at loc if not. */
bool schedule_check(const char *name, const PipelineShape *shape, SourceLoc loc, Diag *diag);

/* The order of tasks of one stage, without messages. False: reported (schedule_check). */
bool schedule_order(const char *name, int stage, const PipelineShape *shape, Arena *arena,
                    Task **out, int *out_n, Diag *diag);

/* Fills out[schedule_n_tasks] for a shape that schedule_check let pass. */
void schedule_fill(int index, const PipelineShape *shape, int stage, Task *out);

/* `order` with each receive directly before and each send directly after its task, and the update
 * at the end. */
Task *schedule_tasks(Arena *arena, const PipelineShape *shape, int stage, const Task *order,
                     int n_order, int *out_n);

/* The channels that the stages' tasks use, without slot_bytes. All get as many slots as the
 * lists need to come to their end, at least 2: one to fill while the other is read. NULL with
 * *out_n = 0 when p is 1. Reports and returns NULL when no number of slots is enough. */
Channel *schedule_channels(Arena *arena, const PipelineShape *shape, const Stage *stages,
                           int *out_n, Diag *diag);

/* All of the above for a plan whose mesh, n_chunks, n_micro and schedule are set and whose stages
 * are allocated: sets their tasks, and the plan's channels. */
bool schedule_apply(Plan *plan, SourceLoc loc, Diag *diag);

#endif
