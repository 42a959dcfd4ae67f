/* Binding: from a node of a stage program, on one rank and for one micro-batch, to a resolved call.
 *
 * All analysis (layouts, strides, offsets of the rank's shard) happens here, once; a call is then a
 * function and its arguments, replayed every step. One cpu_bind_* per kernel named in ops.def.
 */
#ifndef RUNTIME_CPU_BIND_H
#define RUNTIME_CPU_BIND_H

#include "runtime/binding.h"
#include "runtime/comm/comm.h"
#include "runtime/cpu/gemm.h"

/* What changes from step to step, read by kernels when they run. */
typedef struct StepState {
    uint64_t seed, step;
    int train;         /* 0: dropout is the identity */
    float label_share; /* what the op gives */
} StepState;

/* False: the run cannot go on (a message failed; the comm world knows why). */
typedef bool (*CpuKernel)(const void *args);

typedef struct CpuCall {
    CpuKernel run;
    const void *args;
} CpuCall;

/* A rank's place in the groups that its messages go to. */
typedef struct CommGroups {
    CommGroup
        *mesh[N_MESH_GROUPS]; /* NULL where it has one rank, and for ct, which has no messages */
    int member[N_MESH_GROUPS];
    int n_stage; /* communicators across stages */
    const char **stage_names;
    CommGroup **stage;
    int *stage_member;
} CommGroups;

/* Binding.backend here. */
typedef struct CpuContext {
    GemmPlans *products; /* the rank's, of bf16 and f16 */
    const StepState *state;
    const CommGroups *groups;
} CpuContext;

static inline const CpuContext *cpu_context(const Binding *binding) {
    return binding->backend;
}

bool cpu_bind(Binding *binding, CpuCall *out);

#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    bool cpu_bind_##kernel(Binding *binding, CpuCall *out);
#include "ir/ops.def"
#undef OP

#endif
