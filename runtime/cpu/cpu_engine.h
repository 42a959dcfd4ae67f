/* The CPU backend: every rank of the plan is a thread that replays a list of resolved calls. With
 * several processes each has one of them. */
#ifndef RUNTIME_CPU_CPU_ENGINE_H
#define RUNTIME_CPU_CPU_ENGINE_H

#include "runtime/cpu/bind.h"
#include "runtime/engine_internal.h"

/* What the control plane is told of a call. */
typedef struct CallNote {
    const char *text;
    bool waits; /* for other ranks */
} CallNote;

/* From malloc, so that growing leaves nothing behind; call_list_release frees it. */
typedef struct CallList {
    int count, capacity;
    CpuCall *calls;
    CallInfo *info;
    const CallNote *notes; /* one per call; NULL: one process */
} CallList;

/* A rank's lists and what its calls refer to. */
typedef struct CpuRank {
    Engine *engine;
    const RankContext *context;
    GemmPlans *products;
    CpuContext cpu; /* of products, state and groups, for the binders */
    StepState state;
    CommGroups groups;
    CommChannel **channels;            /* by plan channel, for this (t, d); NULL: not this rank's */
    CallList train;                    /* one step */
    CallList forward;                  /* all micro-batches, forward only */
    int n_first;                       /* calls of `forward` that belong to micro-batch 0 */
    int end_of_chunk[N_DECODE_CHUNKS]; /* of a plan for decoding: those of `forward` up to there */
} CpuRank;

/* Fills train and forward, for as many OpenMP threads as the caller has now. */
bool cpu_emit(CpuRank *rank, Diag *diag);
void cpu_emit_release(CpuRank *rank);

/* A rank of this process, between steps: for tests, which change its calls. */
CpuRank *cpu_engine_rank(const Engine *engine, int rank);

#endif
