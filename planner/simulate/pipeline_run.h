/* What a run of the pipeline simulator works on. Internal to pipeline_*.c. */
#ifndef PLANNER_SIMULATE_PIPELINE_RUN_H
#define PLANNER_SIMULATE_PIPELINE_RUN_H

#include "planner/plan/flow.h"
#include "planner/simulate/pipeline_sim.h"

/* A message between its two ends, on both clocks. */
typedef struct Parcel {
    double us, free_us;
} Parcel;

typedef struct Link {
    int n_sent, n_taken, n_messages, first; /* message k is parcels[first + k] */
    int from, to, slots, wire;
    double message_us, latency_us;
} Link;

typedef enum Move { MOVE_RECEIVE, MOVE_COMPUTE, MOVE_SEND } Move;

/* Where a stage stands. */
typedef struct Runner {
    const Task *tasks;
    int n_tasks, next;
    Move move;          /* within the task, when messages follow from tasks */
    double us, free_us; /* the clock, and the one that knows no messages between stages */
    double held_bytes;  /* frames */
    Parcel data;        /* when the data axis' messages so far end */
    TaskSpan *spans;    /* NULL: not wanted */
    Links links;
    int n_left[MAX_CHUNKS]; /* backwards to do, or W's if there are any */
    bool ready;
} Runner;

typedef struct Buffers {
    Task *tasks;
    PipelineList *lists;
    Runner *runners;
    PipelineStage *stages;
    Link *links;
    Links *ends;                     /* of all stages */
    Parcel *arrived, *taken, *joint; /* taken: only if any link has a limit */
    double *wires;                   /* when they are free again */
    int *ready;
    TaskSpan *spans, *data_spans;
    MessageSpan *messages;
    char *scratch; /* the caller's */
} Buffers;

enum { N_BUFFERS = sizeof(Buffers) / sizeof(void *) };

struct PipelineSim {
    Arena *arena;
    union {
        Buffers of;
        void *all[N_BUFFERS];
    } buffers;
    size_t capacity[N_BUFFERS];
    /* What buffers.of.tasks holds: the next run may need the same. */
    PipelineShape shape;
    int schedule;
    /* Of the run. */
    const PipelineLoad *load;
    Path path;
    bool given;    /* lists were, with their messages */
    TaskKind ends; /* what a frame lives to, and after whose last gradients leave: B, or W */
    bool timed;    /* stages go on in the order of their clocks, for the sake of shared wires */
    int n_ready;
};

/* All of the above for sim->load: every stage stands before its first task. False: reported. */
bool pipeline_prepare(PipelineSim *sim, PipelineResult *out, Diag *diag);

#endif
