/* Executor: emits one rank's step into lists of resolved calls, once; the engine replays them. */
#ifndef RUNTIME_EXECUTOR_H
#define RUNTIME_EXECUTOR_H

#include "planner/plan.h"
#include "runtime/cpu/bind.h"

/* What a call does and for which node: for reports. */
typedef struct CallInfo {
    const Node *node; /* NULL: copies inputs */
    int micro;
    TaskKind kind;
    void *out[MAX_OUTPUTS];
} CallInfo;

/* From malloc, so that growing leaves nothing behind; executor_release frees it. */
typedef struct CallList {
    int count, capacity;
    CpuCall *calls;
    CallInfo *info;
} CallList;

/* The host's side of a step: where a batch lies while it runs, i32[global_batch, seq]. */
typedef struct HostBatch {
    const int32_t *tokens, *labels;
} HostBatch;

typedef struct RankContext {
    const Plan *plan;
    const Stage *stage;
    const Program *program;
    int rank, stage_number;
    MeshCoord coord;
    unsigned char *memory; /* the rank's arena, stage->arena_bytes */
    void *workspace;       /* what kernels use within one call, at the end of its scratch */
    CommGroups groups;
    GemmPlans *products;
    CommChannel **channels; /* by plan channel, for this (t, d); NULL: not this rank's */
    StepState state;
    const HostBatch *batch;
    Arena *arena;
    CallList train;   /* one step */
    CallList forward; /* all micro-batches, forward only */
    int n_first;      /* calls of `forward` that belong to micro-batch 0 */
} RankContext;

/* Fills train and forward. For as many OpenMP threads as the caller has now. */
bool executor_emit(RankContext *rank, Diag *diag);
void executor_release(RankContext *rank);

/* Where a value lives for a micro-batch. */
void *executor_address(const RankContext *rank, Value value, int micro);
/* The model block that a node of the rank's program belongs to. */
int executor_block(const RankContext *rank, const Node *node);

#endif
