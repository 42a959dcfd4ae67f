/* Executor: walks one rank's tasks and hands every node, input and message to a backend, in the
 * order in which the plan says they happen. The backend turns them into calls or commands, once;
 * what it made is replayed every step.
 */
#ifndef RUNTIME_EXECUTOR_H
#define RUNTIME_EXECUTOR_H

#include "planner/plan/plan.h"
#include "runtime/binding.h"

typedef struct RankContext {
    const Plan *plan;
    const Stage *stage;
    const Program *program;
    int rank, stage_number;
    MeshCoord coord;
    unsigned char *memory;    /* the rank's arena, stage->arena_bytes, on the backend's device */
    unsigned char *host;      /* its part of the machine's memory, plan_host_bytes; NULL: none */
    unsigned char *workspace; /* what kernels use within one call, at the end of its scratch */
    Workspace parts;          /* of it */
    int32_t *slots;           /* as plan_frame_slots has them */
    int64_t slot_bytes[MAX_CHUNKS];                                   /* of each pool */
    int64_t host_slot_bytes[MAX_CHUNKS], host_frame_base[MAX_CHUNKS]; /* likewise, in `host` */
    Arena *arena;                                                     /* for arguments */
} RankContext;

/* What a call does and for which node: for reports. */
typedef struct CallInfo {
    const Node *node; /* NULL: copies inputs */
    int micro, chunk;
    TaskKind kind;
    void *out[MAX_OUTPUTS];
} CallInfo;

/* This rank's rows of a micro-batch, or a run of positions of each: `count` elements from `offset`
 * on of i32[global_batch, seq] (tokens: plan_row in place of seq), and so on every `pitch`
 * elements, go to `to`, every to_pitch. */
typedef struct InputSlice {
    bool labels;    /* else tokens */
    bool reference; /* neither: f32[global_batch] */
    int numbers; /* neither: [global_batch, seq] and what else they have, which TokenNumbers + 1 */
    int decode;  /* of a plan for decoding: which DecodeInput + 1; 0: tokens or labels */
    int64_t offset, rows, count, pitch, to_pitch;
    int32_t *to;
} InputSlice;

/* One pipeline message. A sender has `n_slots` slots of slot_bytes in its message region, so that a
 * value's memory is free again before its receiver has come. */
typedef struct MessageSlice {
    int channel; /* the plan's */
    bool send;
    void *memory; /* of the value sent or received */
    size_t bytes;
    unsigned char *slots; /* NULL for receivers */
    size_t slot_bytes;
    int n_slots;
} MessageSlice;

/* Where the walk goes to. `user` is the backend's own; binding->backend is left to it. */
typedef struct Emitter {
    void *user;
    bool (*input)(void *user, const InputSlice *slice, const CallInfo *info);
    bool (*message)(void *user, const MessageSlice *message, const CallInfo *info, Diag *diag);
    bool (*node)(void *user, Binding *binding, const CallInfo *info);
} Emitter;

/* A rank's place in the plan; memory is set by rank_set_memory. */
RankContext rank_context(const Plan *plan, int rank, Arena *arena);
void rank_set_memory(RankContext *rank, void *memory);

/* One training step. */
bool executor_emit_train(const RankContext *rank, const Emitter *emitter, Diag *diag);
/* One micro-batch, forward only, through all chunks. */
bool executor_emit_forward(const RankContext *rank, int micro, const Emitter *emitter, Diag *diag);

/* One chunk of it alone. */
bool executor_emit_chunk(const RankContext *rank, int chunk, int micro, const Emitter *emitter,
                         Diag *diag);

/* Where a value lives for a micro-batch. */
void *executor_address(const RankContext *rank, Value value, int micro);
/* The model block that a node of the rank's program belongs to. */
int executor_block(const RankContext *rank, const Node *node);
/* How many messages a channel holds at most: its slots, times the values of one send task. */
int executor_channel_slots(const Plan *plan, int channel);

#endif
