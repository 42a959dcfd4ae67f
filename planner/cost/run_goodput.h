/* Goodput of a run: what a cluster says of failures and storage, and a layout of its checkpoints,
 * as seconds for goodput.h.
 *
 * A checkpoint has every weight in f32 and the optimizer's state (engine_save.c), each element
 * written by one rank: by the first of those that have the same. Its bytes are known; where they
 * are written from, to within how uneven stages are. Before it is written it is copied to the
 * node's memory. With --checkpoint-async training waits for the copy alone.
 */
#ifndef PLANNER_COST_RUN_GOODPUT_H
#define PLANNER_COST_RUN_GOODPUT_H

#include "planner/cost/goodput.h"
#include "planner/cost/step_cost.h"

/* What the user says instead of the cluster. */
typedef struct FailureChoice {
    bool has_mtbf, has_write, has_restart;
    double device_mtbf_hours; /* 0: none */
    double write_seconds;     /* of a checkpoint, copy included unless async */
    double restart_minutes;
    bool async;
} FailureChoice;

typedef enum GoodputState {
    GOODPUT_UNASKED,    /* --mtbf none */
    GOODPUT_NONE,       /* the cluster states no failures: none are assumed */
    GOODPUT_NO_STORAGE, /* nor what its storage takes: not known */
    GOODPUT_NO_COPY,    /* async, and the way to the node's memory is not stated: not known */
    GOODPUT_HOPELESS,   /* no progress is expected */
    GOODPUT_KNOWN,
} GoodputState;

typedef struct RunGoodput {
    GoodputState state;
    GoodputInput input; /* HOPELESS and KNOWN */
    Goodput goodput;
    double checkpoint_bytes; /* of its tensors */
    double share;            /* of the time that is training: 1 for UNASKED to NO_COPY */
} RunGoodput;

/* A layout of a model whose step takes so long, on all the ranks it has, for so many steps (0: no
 * end). `divides_masters`: what computes is a copy in 16 bits, so that ZeRO divides the weights
 * that are saved, too. `choice` NULL: as the cluster says. */
RunGoodput run_goodput(const ModelCosts *costs, const Candidate *of, bool divides_masters,
                       double step_seconds, double n_steps, const FailureChoice *choice);

/* Seconds until all nodes have written their parts to storage; 0: no rate is stated. */
double checkpoint_write_seconds(const ModelCosts *costs, const Candidate *of, bool divides_masters);
/* Seconds until the rank that has most has copied its part; 0: no rate is stated. */
double checkpoint_copy_seconds(const ModelCosts *costs, const Candidate *of, bool divides_masters);

#endif
