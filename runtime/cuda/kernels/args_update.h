/* Arguments of update.cu; see args.h. The forms for many tensors take tables by value: one launch
 * for up to UPDATE_TENSORS (SUMSQ_TENSORS) of them. Block b works for the tensor t with
 * first_block[t] <= b < first_block[t + 1]. */
#ifndef RUNTIME_CUDA_KERNELS_ARGS_UPDATE_H
#define RUNTIME_CUDA_KERNELS_ARGS_UPDATE_H

#include "ir/dtype.h"
#include "runtime/cuda/kernels/state.h"

enum {
    UPDATE_THREADS = 256,
    UPDATE_CHUNK = 8192, /* elements a block updates */
    UPDATE_TENSORS = 64,
    SUMSQ_CHUNK = 32768, /* elements a block squares, or a multiple of it for huge tensors */
    SUMSQ_PARTIALS = 16384,
    SUMSQ_TENSORS = 128,
    LAMB_TENSORS = 48,
    LAMB_CHUNK = 8192, /* elements a block of lamb_moments takes, or a multiple of it */
    LAMB_PARTIALS = 16384,
};

/* Blocks write the sums of their chunks to partial[block]; the only block of a tensor to *out. */
typedef struct SumsqArgs {
    const void *x;
    int64_t n, chunk;
    uint32_t n_blocks;
    float *partial, *out;
} SumsqArgs;

typedef struct SumsqManyArgs {
    float *partial;
    int64_t chunk;
    int32_t n_tensors;
    uint32_t first_block[SUMSQ_TENSORS + 1];
    const void *x[SUMSQ_TENSORS];
    int64_t n[SUMSQ_TENSORS];
    float *out[SUMSQ_TENSORS];
} SumsqManyArgs;

/* norm = sqrt(*sumsq) / *loss_scale, or without the latter where it is NULL;
 * *factor = min(1, max_norm / (norm + 1e-6)) / *loss_scale, with 1 for the minimum where
 * max_norm <= 0, NaN where the norm is not finite; *norm_squared, unless NULL. One thread. */
typedef struct ClipScaleArgs {
    const float *sumsq, *loss_scale;
    float *factor, *norm_squared;
    float max_norm;
} ClipScaleArgs;

/* The factor, or +inf where the squared norm is above the most that it may be. One thread. */
typedef struct SkipSpikeArgs {
    const float *factor, *norm_squared, *most;
    float *out;
} SkipSpikeArgs;

/* optimizer_loss_scale of runtime/cpu/optimizer.h. One thread. */
typedef struct LossScaleArgs {
    const float *factor;
    float *scale, *finite_steps, *updates;
    int64_t interval;
    float most;
} LossScaleArgs;

/* f32 [n] each, states (m, v) f32, bf16 or in 8 bits (ir/moments.h), gradients (g) f32 or bf16;
 * copy: bf16 or f16 [n], written with p, or NULL; where it is p itself, p is in halves
 * (ir/masters.h). weight_decay in f64: see optimizer.h. */
typedef struct AdamwTensor {
    float *p;
    void *m, *v;
    const void *g;
    uint16_t *copy;
    int64_t n;
    double weight_decay;
} AdamwTensor;

typedef struct AdamwScalars {
    const float *clip, *lr, *step;
    double lr_scale, beta1, beta2;
    float eps;
    int32_t copy_dtype, state_dtype; /* DTypes: of all copies, where there is one, and states */
    uint64_t low_gradients;          /* bit t: that of tensor t is bf16 */
} AdamwScalars;

/* As optimizer_adamw of runtime/cpu/optimizer.h. */
typedef struct AdamwArgs {
    AdamwScalars scalars;
    AdamwTensor tensor;
} AdamwArgs;

typedef struct AdamwManyArgs {
    AdamwScalars scalars;
    int32_t n_tensors;
    uint32_t first_block[UPDATE_TENSORS + 1];
    AdamwTensor tensor[UPDATE_TENSORS];
} AdamwManyArgs;

typedef struct SgdTensor {
    float *p;
    void *buf;
    const void *g;
    uint16_t *copy;
    int64_t n;
    float weight_decay;
} SgdTensor;

typedef struct SgdScalars {
    const float *clip, *lr;
    double lr_scale;
    float momentum;                  /* 0: buf is not touched */
    int32_t copy_dtype, state_dtype; /* as in AdamwScalars */
    uint64_t low_gradients;
} SgdScalars;

/* As optimizer_sgd, without Nesterov's form. */
typedef struct SgdArgs {
    SgdScalars scalars;
    SgdTensor tensor;
} SgdArgs;

typedef struct SgdManyArgs {
    SgdScalars scalars;
    int32_t n_tensors;
    uint32_t first_block[UPDATE_TENSORS + 1];
    SgdTensor tensor[UPDATE_TENSORS];
} SgdManyArgs;

typedef struct LionTensor {
    float *p;
    void *m;
    const void *g;
    uint16_t *copy;
    int64_t n;
    double weight_decay;
} LionTensor;

typedef struct LionScalars {
    const float *clip, *lr;
    double lr_scale, beta1, beta2;
    int32_t copy_dtype, state_dtype; /* as in AdamwScalars */
    uint64_t low_gradients;
} LionScalars;

/* As optimizer_lion. */
typedef struct LionArgs {
    LionScalars scalars;
    LionTensor tensor;
} LionArgs;

typedef struct LionManyArgs {
    LionScalars scalars;
    int32_t n_tensors;
    uint32_t first_block[UPDATE_TENSORS + 1];
    LionTensor tensor[UPDATE_TENSORS];
} LionManyArgs;

/* f32 [n] each. */
typedef struct EmaTensor {
    float *average;
    const float *p;
    int64_t n;
} EmaTensor;

typedef struct EmaScalars {
    const float *clip, *step;
    double decay;
} EmaScalars;

/* As optimizer_ema. */
typedef struct EmaArgs {
    EmaScalars scalars;
    EmaTensor tensor;
} EmaArgs;

typedef struct EmaManyArgs {
    EmaScalars scalars;
    int32_t n_tensors;
    uint32_t first_block[UPDATE_TENSORS + 1];
    EmaTensor tensor[UPDATE_TENSORS];
} EmaManyArgs;

/* f32 [n] each, and the squared norms of this rank's part of p and of the direction: written by
 * lamb_moments, read by lamb. copy as in AdamwTensor. */
typedef struct LambTensor {
    float *p;
    void *m, *v;
    const void *g; /* NULL for lamb */
    uint16_t *copy;
    int64_t n;
    float *p_squared, *r_squared;
    float weight_decay;
} LambTensor;

typedef struct LambScalars {
    const float *clip, *lr, *step; /* lr: NULL for lamb_moments */
    double lr_scale, beta1, beta2, trust_max;
    float eps;
    int32_t copy_dtype, state_dtype; /* as in AdamwScalars */
    uint64_t low_gradients;
} LambScalars;

/* As optimizer_lamb_moments and optimizer_lamb. Blocks of lamb_moments take `chunk` elements and
 * write both sums of squares to partial[2 * block]; the only block of a tensor to where they
 * belong. */
typedef struct LambArgs {
    LambScalars scalars;
    LambTensor tensor;
    int64_t chunk;
    uint32_t n_blocks;
    float *partial;
} LambArgs;

typedef struct LambManyArgs {
    LambScalars scalars;
    float *partial;
    int64_t chunk;
    int32_t n_tensors;
    uint32_t first_block[LAMB_TENSORS + 1];
    LambTensor tensor[LAMB_TENSORS];
} LambManyArgs;

/* As optimizer_muon_momentum. */
typedef struct MuonMomentumArgs {
    void *m;
    float *direction;
    const void *g;
    const float *clip;
    int64_t n;
    float momentum;
    int32_t state_dtype, gradient_dtype; /* as in AdamwScalars */
} MuonMomentumArgs;

/* As optimizer_muon. */
typedef struct MuonArgs {
    float *p;
    const void *direction;
    uint16_t *copy;
    const float *clip, *lr;
    int64_t n;
    double lr_scale, scale, weight_decay;
    int32_t direction_dtype, copy_dtype; /* DTypes */
} MuonArgs;

/* As optimizer_rescale: behind an optimizer that has factors. */
typedef struct RescaleArgs {
    float *p;
    uint16_t *copy;
    const float *factors, *clip;
    int64_t n, inner, count;
    int32_t copy_dtype; /* a DType */
} RescaleArgs;

/* As reduce_largest of runtime/cpu/reduce.h: x [n_rows, width]. */
enum { LARGEST_THREADS = 512, LARGEST_COLUMNS = 8 /* of a block: 32 bytes of a row */ };
typedef struct LargestArgs {
    const float *x;
    float *out;
    int64_t n_rows, width;
    int32_t accumulate;
} LargestArgs;

/* *out = the largest of all elements of up to so many values, and with `accumulate` of *out. One
 * block. */
enum { MAX_N_OPERANDS = 64 };
typedef struct MaxNArgs {
    const float *in[MAX_N_OPERANDS];
    int64_t count[MAX_N_OPERANDS];
    float *out;
    int32_t n_operands, accumulate;
} MaxNArgs;

/* As optimizer_balance. */
typedef struct BalanceArgs {
    float *p;
    const float *tally, *clip;
    int64_t n;
    float step;
} BalanceArgs;

#endif
