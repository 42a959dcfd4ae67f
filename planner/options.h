/* What the user asks of a plan. */
#ifndef PLANNER_OPTIONS_H
#define PLANNER_OPTIONS_H

#include "ir/base/diag.h"
#include "ir/type.h"
#include "planner/recompute.h"

#include <stdint.h>

typedef enum OptimizerKind { OPTIMIZER_ADAMW, OPTIMIZER_SGD } OptimizerKind;

/* What of a block's forward is computed again in its backward instead of being kept. */
typedef enum Recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE, /* what is cheap: all but products, attention and messages */
    RECOMPUTE_FULL,      /* everything but the block's inputs */
    N_RECOMPUTES
} Recompute;

typedef struct PlanOptions {
    Mesh mesh;
    int micro_batch, global_batch; /* sequences */
    int n_chunks;
    const char *schedule; /* "gpipe", "1f1b", "interleaved" */
    bool cuda;            /* plan for CUDA devices; else for CPU cores */
    bool sequence_parallel;
    uint64_t seed;
    DType precision; /* of activations: DTYPE_F32 or DTYPE_BF16 */
    RecomputeMode recompute;
    const int *split; /* blocks per chunk in pipeline order, or NULL: balanced by cost */
    int n_split;
    const char *dump_after; /* pass name, or NULL */
} PlanOptions;

/* What the model says about its training; the command line may override. */
typedef struct TrainingRecipe {
    OptimizerKind optimizer;
    double learning_rate, beta1, beta2, eps, weight_decay, momentum;
    double max_norm; /* gradient clipping; 0: none */
} TrainingRecipe;

#endif
