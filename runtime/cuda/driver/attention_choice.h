/* Which kernels do each attention of a training run: those that are asked for, where they can;
 * those that `tune` found fastest, where the plan was tuned on this device and with this cuDNN;
 * else of gradients the one in one pass, where the device and the workspace have it; else cuDNN's,
 * where it can, else own ones, on wgmma where the device has it. */
#ifndef RUNTIME_CUDA_DRIVER_ATTENTION_CHOICE_H
#define RUNTIME_CUDA_DRIVER_ATTENTION_CHOICE_H

#include "runtime/cuda/bind.h"
#include "runtime/cuda/driver/attention.h"

typedef struct AttentionChoice {
    const CudaDevice *device;
    AttentionTable *table;         /* NULL: cuDNN is not wanted */
    const PlanDevice *tuned;       /* the plan's section, where it is for this device; else NULL */
    const AttentionKernels *asked; /* NULL: none are */
    Arena *arena;
    bool silent; /* another rank says what cuDNN does not do */
    /* What came of it: */
    bool told[2];                      /* that cuDNN does not, forward and backward */
    bool used[2][N_ATTENTION_KERNELS]; /* forward and backward */
    int n_kinds, capacity, n_as_tuned; /* kinds that were asked for, of which as tuned */
    PlanAttention *kinds;
} AttentionChoice;

/* Can the device run own kernels on wgmma for the shape? */
bool attention_runs_wgmma(const CudaDevice *device, const AttentionShape *shape);
/* And the gradient in one pass, in the workspace that is there? */
bool attention_runs_joint(const CudaDevice *device, const AttentionCommand *attention);
/* cuDNN's version as plans keep it; 0: none is used. */
int64_t attention_table_version(const AttentionTable *table);

/* An AttentionCheck's; `user` is an AttentionChoice. */
AttentionKernels attention_choose(void *user, const AttentionCommand *attention);
bool attention_choice_lays_out(void *user, const AttentionCommand *attention);

/* For the lines at a training's start, of what was asked so far. What became of the plan's choices:
 * "" or more of a sentence. */
const char *attention_choice_tuning(const AttentionChoice *choice);
/* "attention by ...", NULL where own kernels, none on wgmma, do all of it, and that neither tuned
 * nor asked for. */
const char *attention_choice_describe(const AttentionChoice *choice);

#endif
