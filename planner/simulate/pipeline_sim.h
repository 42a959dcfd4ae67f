/* Pipeline simulation: plays what p stages do in one training step, task by task.
 *
 * A PipelineLoad says how long everything takes; of plans, models and clusters nothing is known
 * here. A discrete-event run in time linear in tasks: a stage goes on until it must wait for a
 * message (receive), for room in a channel (send), or for other stages (joins of the update).
 * What each stage does is fixed, so the order in which stages are looked at cannot change the
 * result (Kahn 1974) as long as every link has its wire alone. Wires that links share are given to
 * who asks first: then stages are looked at in the order of their clocks (a heap).
 *
 * A second clock runs along in which messages between stages are free. Where the two differ at the
 * end, that is what messages cost; where the second waits, that is the pipeline's bubble.
 *
 * All ranks of a stage are alike: neither tensor nor data degree costs anything here.
 */
#ifndef PLANNER_SIMULATE_PIPELINE_SIM_H
#define PLANNER_SIMULATE_PIPELINE_SIM_H

#include "planner/plan/schedule.h"

/* When may a stage go on that has sent a message? */
typedef enum SendMode {
    SEND_OVERLAPPED, /* at once */
    SEND_LEAVES,     /* when it is off the wire: the sender's own core moves the bytes */
    SEND_ARRIVES     /* when it has arrived */
} SendMode;

/* One chunk of one stage; times for one micro-batch. */
typedef struct PipelineChunk {
    double forward_us, backward_us, weights_us; /* weights: 0 where the schedule has no W */
    /* Of them: exposed messages of axis t; of axis d, in every micro-batch. */
    double forward_tensor_us, backward_tensor_us, weights_tensor_us;
    double forward_data_us, backward_data_us, weights_data_us;
    /* Once a step, what the first forward has besides: work, and weights on their way from the
     * step's beginning on, chunk after chunk, in pieces of which it waits for each. */
    double once_us, gather_us;
    int gather_pieces;
    double frame_bytes; /* from the beginning of a forward to the end of its backward, or W */
    double data_us;     /* the data axis' messages, once per step */
    int data_pieces;    /* that these go in, the first when 1/pieces of the last of these is done */
} PipelineChunk;

/* A one-way link between neighbouring stages. A message has the wire from its beginning until its
 * last byte has left; it arrives latency_us later. */
typedef struct PipelineLink {
    int from, to;
    bool backward;     /* carries gradients */
    int slots;         /* messages that may be unread; 0: any number */
    int wire;          /* links with the same number wait for one another; -1: a wire of its own */
    double message_us; /* all of it, alone on the wire */
    double latency_us; /* of it: not on the wire */
} PipelineLink;

/* Stages that begin a part of the update together. */
typedef struct PipelineJoin {
    int n_stages;
    const int *stages;
} PipelineJoin;

typedef struct PipelinePart {
    const double *us; /* [p] */
    bool is_data;     /* counts as messages of the data axis, not as update */
    int n_joins;
    const PipelineJoin *joins;
} PipelinePart;

typedef struct PipelineList {
    const Task *tasks;
    int n_tasks;
} PipelineList;

typedef struct PipelineLoad {
    PipelineShape shape;
    /* Either a schedule, whose messages follow from the order of its tasks ... */
    int schedule; /* schedule_name(schedule) */
    /* ... or lists with every send and receive, and the update at their ends: [p]. */
    const PipelineList *lists;
    const PipelineChunk *chunks; /* [stage * shape.n_chunks + chunk] */
    int n_links;
    const PipelineLink *links;
    int n_wires; /* PipelineLink.wire is less */
    SendMode send;
    bool overlaps_data;     /* else the data axis' messages begin when a stage's tasks are done */
    bool overlaps_gathers;  /* else weights come before the first forward begins */
    double gather_slowdown; /* of their time beside work, what it loses */
    int n_parts;
    const PipelinePart *parts;    /* after tasks and data messages, in order */
    const double *constant_bytes; /* [p], or NULL: memory beside frames */
    bool spans;                   /* also when each task and message began and ended */
} PipelineLoad;

typedef struct TaskSpan {
    double start_us, end_us; /* a receive's span is its wait, an update's includes waiting */
} TaskSpan;

/* One message: from the sender's start until the receiver takes it. */
typedef struct MessageSpan {
    int channel, from_task, to_task; /* index of the link; tasks of its two stages */
    double start_us, arrive_us, taken_us;
} MessageSpan;

/* The first seven are disjoint and add up to step_us. */
typedef struct PipelineStage {
    double compute_us;  /* forward and backward without messages of axes t and d */
    double tensor_us;   /* these */
    double pipeline_us; /* that the stage ends later than if messages between stages were free */
    double bubble_us;   /* waiting for other stages even then */
    double data_us;     /* the data axis' messages, beyond what they overlap with */
    double update_us;
    double idle_us;    /* from its end to the step's */
    double send_us;    /* within pipeline_us and bubble_us: blocked in sends */
    double peak_bytes; /* constant and frames */
    int first_span;    /* task i of the stage has spans[first_span + i] */
} PipelineStage;

typedef struct PipelineResult {
    double step_us;
    int p, busiest; /* the stage that waits least */
    const PipelineStage *stages;
    const PipelineList *lists;
    /* With load->spans; else 0 and NULL. */
    int n_spans, n_messages;
    const TaskSpan *spans;       /* by stage, then task */
    const MessageSpan *messages; /* by link, then order of sending */
    const TaskSpan *data_spans;  /* as load->chunks; equal times: no message */
} PipelineResult;

/* Memory that runs share: one per thread, owned by `arena`. */
typedef struct PipelineSim PipelineSim;
PipelineSim *pipeline_sim_create(Arena *arena);
/* Memory to make a load in; the next call hands out the same again. Not cleared. */
void *pipeline_sim_scratch(PipelineSim *sim, size_t bytes);

/* False: reported (tasks that never end, a schedule that cannot be, too many tasks). The result is
 * `sim`'s until the next run. */
bool pipeline_sim_run(PipelineSim *sim, const PipelineLoad *load, PipelineResult *out, Diag *diag);

/* The first seven of PipelineStage, and send_us, as means over stages. The bubble, as a share of
 * the step, is (bubble_us + idle_us) / step_us of it: idle time of all stages over p steps. */
PipelineStage pipeline_mean(const PipelineResult *result);

/* What a stage holds from `us` on, until the next point. */
typedef struct MemoryPoint {
    double us, bytes;
} MemoryPoint;
/* Of a run with spans; `out` has room for 1 + tasks of the stage. Returns how many. */
int pipeline_memory_curve(const PipelineResult *result, const PipelineLoad *load, int stage,
                          MemoryPoint *out);

static inline bool task_is_compute(const Task *task) {
    return task_is_work(task) || task->kind == TASK_UPDATE;
}
static inline bool task_is_send(const Task *task) {
    return task->kind == TASK_SEND_FORWARD || task->kind == TASK_SEND_BACKWARD;
}

#endif
