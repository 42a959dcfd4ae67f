/* What engine.c, engine_step.c and engine_parameters.c share. */
#ifndef RUNTIME_ENGINE_INTERNAL_H
#define RUNTIME_ENGINE_INTERNAL_H

#include "runtime/engine.h"
#include "runtime/executor.h"

#include <pthread.h>

typedef enum EngineJob {
    JOB_NONE,
    JOB_TRAIN,
    JOB_FORWARD,
    JOB_FIRST,
    JOB_CHECK,
    JOB_PROFILE,
    JOB_QUIT
} EngineJob;

/* The first value that is not finite, as one rank saw it. */
typedef struct BadValue {
    bool found;
    CallInfo call;
    int output;
} BadValue;

typedef struct RankThread {
    Engine *engine;
    RankContext context;
    pthread_t thread;
    bool started;
    float *learning_rate, *step; /* scalars in the rank's memory, NULL if not there */
    BadValue bad;
    double op_seconds[N_OPS]; /* of the last JOB_PROFILE */
} RankThread;

struct Engine {
    const Plan *plan;
    Arena *arena;
    int n_ranks, n_threads;
    RankThread *ranks;
    CommWorld *world;
    HostBatch batch;
    double emit_seconds;
    int64_t arena_bytes;
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    EngineJob job;
    int64_t generation; /* counts jobs */
    int n_running;
};

/* Runs one job on all ranks and waits. False: the world was aborted. */
bool engine_run(Engine *engine, EngineJob job, Diag *diag);
double engine_now(void);

#endif
