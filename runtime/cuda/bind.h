/* Binding for CUDA: from a node to commands. One cuda_bind_* per kernel named in ops.def;
 * forgetting one does not link. A binder pushes one command or several; all of a node's commands
 * run on one stream, one after the other, and count as reading the node's operands and writing its
 * results and workspace: the caller (emit.c) fills stream, info and accesses.
 */
#ifndef RUNTIME_CUDA_BIND_H
#define RUNTIME_CUDA_BIND_H

#include "runtime/cuda/command.h"
#include "runtime/cuda/kernels/state.h"
#include "runtime/cuda/move.h"

/* Which kernels do an attention in 16 bits here (driver/attention_choice.h): from ATTENTION_WGMMA
 * on only where there are some for it. */
typedef struct AttentionCheck {
    AttentionKernels (*choose)(void *user, const AttentionCommand *attention);
    void *user;
    /* Of a command that a library does: can it leave gradients as its shape's gradient_row says?
     * NULL: it can. */
    bool (*lays_out)(void *user, const AttentionCommand *attention);
} AttentionCheck;

/* Are there own kernels on wgmma for the shape? They run on compute capability 9.0 only. */
bool cuda_attention_has_wgmma(const AttentionShape *shape);
/* And of those, one that makes its gradient in one pass, in so much workspace? */
bool cuda_attention_has_joint(const AttentionShape *shape, int64_t workspace_bytes);

/* Binding.backend here. */
typedef struct CudaEmitter {
    CommandList *list;
    const DeviceState *state;      /* on the device: what changes from step to step */
    struct KernelCache *generated; /* kernels made so far, by source (codegen.h) */
    const Plan *plan;
    const AttentionCheck *attention; /* NULL: own kernels, none on wgmma, do all */
    bool own_products;               /* by own kernels (own_product.h) */
} CudaEmitter;

static inline CudaEmitter *cuda_emitter(const Binding *binding) {
    return binding->backend;
}

bool cuda_bind(Binding *binding);

static inline int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    bool cuda_bind_##kernel(Binding *binding);
#include "ir/ops.def"
#undef OP

/* `args` is copied. Nothing is pushed for an empty grid. False: reported, a larger grid than a
 * device has. */
bool cuda_push_launch(Binding *binding, KernelId kernel, Grid grid, int threads, int shared_bytes,
                      const void *args, size_t args_bytes);
bool cuda_push_generated(Binding *binding, const GeneratedKernel *kernel, Grid grid, int threads,
                         const void *args, size_t args_bytes);
bool cuda_push_gemm(Binding *binding, const GemmCommand *gemm);
bool cuda_push_attention(Binding *binding, const AttentionCommand *attention);
bool cuda_push_collective(Binding *binding, const CollectiveCommand *collective);
/* Fills group, member and n_members: of the mesh axis (>= 0), or of the communicator named. */
bool cuda_find_group(const Binding *binding, int mesh_axis, const char *comm,
                     CollectiveCommand *out);
/* Nothing is pushed for rows of no bytes. False: reported, too large. */
bool cuda_push_rows(Binding *binding, const MoveRows *rows);
bool cuda_push_copy(Binding *binding, void *to, const void *from, int64_t bytes);
bool cuda_push_fill(Binding *binding, void *to, int byte, int64_t bytes);

/* How rotary's work is cut; `args` is not copied. False: heads too large for the kernel. */
bool cuda_rotary_launch(const RotaryArgs *args, DType dtype, LaunchCommand *out);

/* Of a grid: what 32 bits do not hold becomes more than any device has, so that pushing reports it.
 */
static inline uint32_t cuda_grid_size(int64_t n) {
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* ceil(n / per), at least 1. */
static inline uint32_t cuda_blocks(int64_t n, int64_t per) {
    return n > per ? cuda_grid_size((n - 1) / per + 1) : 1;
}

/* Bytes that the node's commands need for themselves, for operands of local shapes. */
static inline int64_t cuda_workspace_bytes(const Node *node, const Type *inputs,
                                           const Type *outputs) {
    return op_cuda_workspace_bytes(node, inputs, outputs);
}

#endif
