/* One rank's part in a collective by NCCL, as steps: NCCL knows neither an axis in the middle of a
 * tensor, nor padding, nor log-sum-exp, so launches before and after its call pack and unpack.
 *
 * NCCL reduces in the tensor's dtype and rounds on the way; only log-sum-exp is reduced here, in
 * members' order.
 */
#ifndef RUNTIME_CUDA_COLLECTIVE_H
#define RUNTIME_CUDA_COLLECTIVE_H

#include "runtime/cuda/command.h"

/* One call of NCCL. count: elements of `in` (all_reduce, all_gather) or of `out`
 * (reduce_scatter), or what goes to each of n_members (all_to_all: a send and a receive of each).
 */
typedef struct NcclCall {
    CollectiveKind kind;
    ReduceKind reduce; /* SUM or MAX */
    DType dtype;
    const void *in;
    void *out;
    int64_t count;
    int n_members;
} NcclCall;

typedef struct CollectiveStep {
    bool is_launch;
    union {
        LaunchCommand launch;
        NcclCall nccl;
    };
} CollectiveStep;

enum { MAX_COLLECTIVE_STEPS = 4 };

/* What the steps need at command->workspace, aligned to 16 bytes. */
int64_t cuda_collective_workspace_bytes(const CollectiveCommand *command);
/* The steps of the command by itself, in order; returns how many, 0 when the command is too large
 * for launches or its workspace too small. */
int cuda_collective_steps(const CollectiveCommand *command, Arena *arena,
                          CollectiveStep out[MAX_COLLECTIVE_STEPS]);
/* Those of the command and what is joined to it, into `arena`: launches that pack, NCCL's calls one
 * after the other (a group's are one node of a graph), launches that unpack. 0: as above. */
int cuda_group_steps(const CollectiveCommand *command, Arena *arena, CollectiveStep **out);
/* Nodes that these steps are in a graph. */
int cuda_group_nodes(const CollectiveStep *steps, int n_steps);

#endif
