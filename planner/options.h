/* What the user asks of a plan. */
#ifndef PLANNER_OPTIONS_H
#define PLANNER_OPTIONS_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"
#include "ir/rule.h"
#include "planner/plan/loss_scaling.h"
#include "planner/plan/recompute.h"
#include "planner/plan/zero.h"

#include <stdint.h>

typedef enum OptimizerKind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_LION,
    OPTIMIZER_LAMB, /* of what decays; AdamW of everything else */
    OPTIMIZER_MUON, /* of matrices; AdamW of everything else */
    OPTIMIZER_RULE, /* a formula in Lua */
    N_OPTIMIZERS
} OptimizerKind;

/* The axis of the positions that a part of the loss has (part_loss). */
#define LOSS_ROWS "loss_rows"

typedef struct PlanOptions {
    Mesh mesh;                     /* c may be 0: not said, 1 */
    int micro_batch, global_batch; /* sequences */
    int n_chunks;
    const char *schedule; /* a row of schedules.def */
    bool cuda;            /* plan for CUDA devices; else for CPU cores */
    bool sequence_parallel;
    int zero;           /* ZeroStage */
    bool join_messages; /* on CUDA, of ZeRO-2 and 3: a block's weights, and gradients, at once */
    uint64_t seed;
    DType precision;         /* of activations and products: dtype_is_precision */
    DType state_dtype;       /* of the optimizer's states: f32, bf16 or dyn8 */
    DType gradient_dtype;    /* f32; bf16: where products make them (lower_gradients) */
    double ema_decay;        /* of averages of weights (append_averages); 0: there are none */
    bool skips_spikes;       /* updates whose norm is above a number of the run's are left out */
    bool split_masters;      /* copies in bf16 are halves of their parameters (split_masters) */
    int offload;             /* percent of states and masters in the host's memory (offload.h) */
    int offload_activations; /* percent of what blocks keep (offload_activations.c) */
    int frozen_bits; /* of frozen weights of blocks: 4 or 8 (pack_frozen); 0: as precision says */
    bool fp8_tensor_cores; /* of precision fp8: products read fp8 and scales (multiply_fp8) */
    LossScaling loss_scaling;
    bool max_logit; /* the largest scores of attention are found, and told of (measure_logits) */
    double qk_clip; /* above which they scale weights of queries and keys (qk_clip.h); 0: none */
    Recompute recompute;
    int vocab_multiple;  /* of words that each rank stores; 0: what the device likes; 1: any */
    bool cudnn_backward; /* 16 bits on CUDA: memory is left for cuDNN's gradient of attention */
    const int *split;    /* blocks per chunk in pipeline order, or NULL: balanced by cost */
    int n_split;
    const char *dump_after;  /* pass name, or NULL */
    StrBuf *dump;            /* what its graphs are added to */
    int lanes;               /* that a micro-batch's sequences go through the model in; 0: 1 */
    int loss_parts;          /* of the positions, whose logits are computed in turn; 0: 1 */
    int expert_parts;        /* runs that experts' slots are cut into; 0: 1 */
    bool parts_if_divided;   /* only where e divides the experts: else one run */
    bool waits_for_messages; /* none is begun before its reader (hide_messages) */
    bool priced;             /* never run, nor proved: a micro-batch of 1 may be half a pair */
} PlanOptions;

/* A formula that updates each element of a parameter (ir/rule.h). */
typedef struct UpdateRule {
    const char *program, *numbers;
    int n_states;
    const char *states[RULE_MOST_STATES]; /* their names: a parameter's is called STATE/NAME */
    int64_t squares;                      /* bit by state: a mean of squares */
} UpdateRule;

/* What the model says about its training; the command line may override. */
typedef struct TrainingRecipe {
    OptimizerKind optimizer;
    double learning_rate, beta1, beta2, eps, weight_decay, momentum;
    const char *lr_schedule; /* NULL: not said; the runtime's lr_schedule.h has the names */
    double decay_steps;      /* of it: a number, or below 1 a share of all; 0: not said */
    double max_norm;         /* gradient clipping; 0: none */
    double adam_lr; /* with Muon: of what AdamW updates; 0: the same. As a factor on its own: */
    double adam_lr_scale; /* 0 is 1 */
    double trust_max;     /* of LAMB: most that a trust ratio may be; 0: no bound */
    double muon_rms; /* size of the elements of a step at lr 1 (Moonlight: 0.2); 0: Jordan's form */
    /* Factors on the learning rate of a kind of parameter, over what it has of its own; 0 is 1. */
    double table_lr_scale, matrix_lr_scale, vector_lr_scale;
    UpdateRule rule; /* of OPTIMIZER_RULE */
} TrainingRecipe;

#endif
