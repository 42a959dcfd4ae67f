/* What the commands of each op need for themselves: one row per op that needs any. The plan
 * reserves it, so it depends on shapes and dtypes only, never on the device. */
#include "runtime/cuda/workspace.h"

#include "runtime/cuda/bind.h"

typedef int64_t WorkspaceBytes(const Node *node, const Type *inputs, const Type *outputs);

static WorkspaceBytes *const WORKSPACE[N_OPS] = {
    [OP_ATTENTION_GRAD] = cuda_attention_grad_workspace_bytes,
    [OP_CACHE_ATTENTION] = cuda_cache_attention_workspace_bytes,
    [OP_CONVOLVE_GRAD] = cuda_convolve_grad_workspace_bytes,
    [OP_EMBEDDING_GRAD] = cuda_embedding_grad_workspace_bytes,
    [OP_LAMB_MOMENTS] = cuda_lamb_workspace_bytes,
    [OP_LAYERNORM_GRAD] = cuda_norm_grad_workspace_bytes,
    [OP_LINEAR_ATTENTION] = cuda_linear_attention_workspace_bytes,
    [OP_LINEAR_ATTENTION_GRAD] = cuda_linear_attention_grad_workspace_bytes,
    [OP_REDUCE_SUM] = cuda_reduce_sum_workspace_bytes,
    [OP_RMSNORM_GRAD] = cuda_norm_grad_workspace_bytes,
    [OP_SUMSQ] = cuda_sumsq_workspace_bytes,
};

/* ir/op.h's, for the planner. */
int64_t op_cuda_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    WorkspaceBytes *bytes = WORKSPACE[node->op];
    return bytes ? bytes(node, inputs, outputs) : 0;
}
