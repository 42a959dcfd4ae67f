/* Binding: from a node of a stage program, on one rank and for one micro-batch, to a resolved call.
 *
 * All analysis (layouts, strides, offsets of the rank's shard) happens here, once; a call is then a
 * function and its arguments, replayed every step. One cpu_bind_* per kernel named in ops.def.
 */
#ifndef RUNTIME_CPU_BIND_H
#define RUNTIME_CPU_BIND_H

#include "ir/op.h"
#include "runtime/comm.h"
#include "runtime/cpu/gemm.h"

/* What changes from step to step, read by kernels when they run. */
typedef struct StepState {
    uint64_t seed, step;
    int train; /* 0: dropout is the identity */
} StepState;

/* False: the run cannot go on (a message failed; the comm world knows why). */
typedef bool (*CpuKernel)(const void *args);

typedef struct CpuCall {
    CpuKernel run;
    const void *args;
} CpuCall;

/* A rank's place in the groups that its messages go to. */
typedef struct CommGroups {
    CommGroup *mesh[N_MESH_AXES]; /* NULL where the mesh axis has size 1 */
    int member[N_MESH_AXES];
    int n_stage; /* communicators across stages */
    const char **stage_names;
    CommGroup **stage;
    int *stage_member;
} CommGroups;

typedef struct Binding {
    const Graph *graph;
    const Node *node;
    Arena *arena; /* for arguments */
    Diag *diag;
    MeshCoord coord;
    int block;          /* the model's block number, or NO_BLOCK */
    int micro, n_micro; /* micro-batch: where its rows lie in the global batch */
    bool overwrite;     /* first share of the step: accumulators are set, not added to */
    void **in;
    void *out[MAX_OUTPUTS];
    Type *in_local, out_local[MAX_OUTPUTS];
    void *workspace;
    GemmPlans *products; /* the rank's, of bf16 */
    const StepState *state;
    const CommGroups *groups;
} Binding;

bool cpu_bind(Binding *binding, CpuCall *out);

#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    bool cpu_bind_##kernel(Binding *binding, CpuCall *out);
#include "ir/ops.def"
#undef OP

/* Helpers for the binders. */

/* This rank's first global index along dimension i of a value. */
int64_t bind_offset(const Binding *binding, const Type *type, const Sharding *sharding, int i);
/* How many of the rank's `local` elements along dimension i exist; the rest is padding. */
int64_t bind_valid(const Binding *binding, const Type *type, const Sharding *sharding, int i);
static inline const Type *bind_input_type(const Binding *binding, int i) {
    return value_type(binding->node->inputs[i]);
}
static inline const Sharding *bind_input_sharding(const Binding *binding, int i) {
    return value_sharding(binding->node->inputs[i]);
}
/* Is operand (result) i bf16? */
static inline bool bind_in_low(const Binding *binding, int i) {
    return binding->in_local[i].dtype == DTYPE_BF16;
}
static inline bool bind_out_low(const Binding *binding, int i) {
    return binding->out_local[i].dtype == DTYPE_BF16;
}
/* Elements of all dimensions but the last. */
int64_t bind_rows(const Type *local);

/* Reports that a node cannot be run here; returns false. */
bool bind_fail(Binding *binding, const char *why);

#endif
