#include "runtime/cuda/bind.h"

#include "runtime/cuda/own_product.h"

#include <string.h>

bool cuda_bind(Binding *binding) {
    static bool (*const BINDERS[N_OPS])(Binding *) = {
#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel)                 \
    cuda_bind_##kernel,
#include "ir/ops.def"
#undef OP
    };
    return BINDERS[binding->node->op](binding);
}

bool cuda_bind_none(Binding *binding) {
    return bind_fail(binding, "has no CUDA kernel");
}

static bool push(Binding *binding, const Command *command) {
    command_list_push(cuda_emitter(binding)->list, command);
    return true;
}

static bool push_launch(Binding *binding, LaunchCommand launch, const void *args) {
    Command command = {.kind = COMMAND_LAUNCH, .stream = STREAM_COMPUTE};
    if (!launch.grid.x || !launch.grid.y || !launch.grid.z) return true;
    if (launch.grid.y > 65535 || launch.grid.z > 65535 || launch.grid.x > 0x7fffffffu) {
        return bind_fail(binding, "needs a larger grid than a device has");
    }
    void *copy = arena_alloc(binding->arena, launch.args_bytes);
    memcpy(copy, args, launch.args_bytes);
    launch.args = copy;
    command.launch = launch;
    return push(binding, &command);
}

bool cuda_push_launch(Binding *binding, KernelId kernel, Grid grid, int threads, int shared_bytes,
                      const void *args, size_t args_bytes) {
    if (args_bytes != KERNELS[kernel].args_bytes) {
        BUG("%s takes %zu bytes of arguments, not %zu", KERNELS[kernel].name,
            KERNELS[kernel].args_bytes, args_bytes);
    }
    return push_launch(binding,
                       (LaunchCommand){.kernel = kernel,
                                       .grid = grid,
                                       .threads = threads,
                                       .shared_bytes = shared_bytes,
                                       .args_bytes = args_bytes},
                       args);
}

bool cuda_push_generated(Binding *binding, const GeneratedKernel *kernel, Grid grid, int threads,
                         const void *args, size_t args_bytes) {
    return push_launch(
        binding,
        (LaunchCommand){
            .generated = kernel, .grid = grid, .threads = threads, .args_bytes = args_bytes},
        args);
}

bool cuda_push_gemm(Binding *binding, const GemmCommand *gemm) {
    if (cuda_emitter(binding)->own_products) return cuda_push_own_product(binding, gemm);
    return push(binding, &(Command){.kind = COMMAND_GEMM, .stream = STREAM_COMPUTE, .gemm = *gemm});
}

bool cuda_push_attention(Binding *binding, const AttentionCommand *attention) {
    return push(
        binding,
        &(Command){.kind = COMMAND_ATTENTION, .stream = STREAM_COMPUTE, .attention = *attention});
}

bool cuda_push_copy(Binding *binding, void *to, const void *from, int64_t bytes) {
    if (!bytes) return true;
    return push(binding, &(Command){.kind = COMMAND_COPY,
                                    .stream = STREAM_COMPUTE,
                                    .copy = {.to = to, .from = from, .bytes = bytes}});
}

/* Each way has a stream of its own, as the bus has lanes for each. */
static bool bind_host_copy(Binding *binding, bool out) {
    const Type *type = &binding->out_local[0];
    int64_t bytes = type_bytes(type);
    if (!bytes) return true;
    return push(binding, &(Command){.kind = COMMAND_COPY,
                                    .stream = out ? STREAM_OFFLOAD : STREAM_FETCH,
                                    .copy = {.to = binding->out[0],
                                             .from = binding->in[0],
                                             .bytes = bytes,
                                             .to_host = out,
                                             .from_host = !out}});
}

bool cuda_bind_offload(Binding *binding) {
    return bind_host_copy(binding, true);
}

bool cuda_bind_fetch(Binding *binding) {
    return bind_host_copy(binding, false);
}

bool cuda_push_fill(Binding *binding, void *to, int byte, int64_t bytes) {
    if (!bytes) return true;
    return push(
        binding,
        &(Command){.kind = COMMAND_FILL, .stream = STREAM_COMPUTE, .fill = {to, byte, bytes}});
}

bool cuda_push_collective(Binding *binding, const CollectiveCommand *collective) {
    static const StreamKind STREAMS[N_MESH_GROUPS] = {
        [MESH_T] = STREAM_TENSOR, [MESH_C] = STREAM_TENSOR, [MESH_E] = STREAM_EXPERT,
        [MESH_D] = STREAM_DATA,   [MESH_DC] = STREAM_DATA,  [MESH_DE] = STREAM_DATA,
        [MESH_DEC] = STREAM_DATA, [MESH_R] = STREAM_DATA,   [MESH_P] = STREAM_PIPELINE,
        [MESH_H] = STREAM_TENSOR,
    };
    Command command = {.kind = COMMAND_COLLECTIVE, .collective = *collective};
    bool of_mesh = collective->group < N_MESH_GROUPS;
    command.stream = of_mesh ? STREAMS[collective->group] : STREAM_PIPELINE;
    return push(binding, &command);
}

bool cuda_find_group(const Binding *binding, int mesh_axis, const char *comm,
                     CollectiveCommand *out) {
    const Plan *plan = cuda_emitter(binding)->plan;
    if (mesh_axis >= 0) {
        out->group = mesh_axis == MESH_H ? MESH_C : mesh_axis; /* the same ranks */
        out->member = mesh_member(&plan->mesh, binding->coord, mesh_axis);
        out->n_members = mesh_size(&plan->mesh, mesh_axis);
        out->deals = mesh_deals(mesh_axis);
        return mesh_has_messages(&plan->mesh, mesh_axis) ||
               bind_fail(binding, "names a mesh axis of one rank");
    }
    for (int i = 0; i < plan->n_comms; i++) {
        const StageComm *known = &plan->comms[i];
        if (strcmp(known->name, comm) != 0) continue;
        for (int k = 0; k < known->n_stages; k++) {
            if (known->stages[k] != binding->coord.at[MESH_P]) continue;
            out->group = N_MESH_GROUPS + i;
            out->member = k;
            out->n_members = known->n_stages;
            return true;
        }
        return bind_fail(binding, "names a communicator of other stages");
    }
    return bind_fail(binding, "names an unknown communicator");
}
