#include "runtime/cuda/accumulation.h"

#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/kernels/fused_args.h"

/* An accumulate and the launches of the node that makes its share. */
typedef struct Accumulation {
    int at;         /* in the list */
    int first, end; /* the maker's commands, one after the other */
    Access share, accumulator;
    bool adds; /* else sets */
} Accumulation;

static bool is_candidate(const Command *command) {
    const Node *node = command->info.node;
    return command->kind == COMMAND_LAUNCH && command->launch.generated && node &&
           node->op == OP_ACCUMULATE &&
           (node->phase == PHASE_BACKWARD || node->phase == PHASE_WEIGHTS);
}

static Type local_type(const Graph *graph, Value value) {
    return type_local(value_type(value), value_sharding(value), &graph->mesh);
}

/* The norm's last launch, writing one of its two results elsewhere; NULL: it does not write it. */
static const void *redirect_join(const NormJoinArgs *args, const Accumulation *a, Arena *arena) {
    NormJoinArgs *to = ARENA_NEW(arena, NormJoinArgs);
    *to = *args;
    if ((uintptr_t)args->dgain == a->share.at) {
        to->dgain = (float *)a->accumulator.at;
        to->add_gain = a->adds;
    } else if ((uintptr_t)args->dbias == a->share.at) {
        to->dbias = (float *)a->accumulator.at;
        to->add_bias = a->adds;
    } else {
        return NULL;
    }
    return to;
}

static const void *redirect_finish(const ReduceFinishArgs *args, const Accumulation *a,
                                   Arena *arena) {
    ReduceFinishArgs *to = ARENA_NEW(arena, ReduceFinishArgs);
    *to = *args;
    to->out = (void *)a->accumulator.at;
    to->add = a->adds;
    return (uintptr_t)args->out == a->share.at && args->out_dtype == DTYPE_F32 ? to : NULL;
}

static const void *redirect_sum(const ReduceArgs *args, const Accumulation *a, Arena *arena) {
    ReduceArgs *to = ARENA_NEW(arena, ReduceArgs);
    *to = *args;
    to->out = (void *)a->accumulator.at;
    to->add = a->adds;
    return (uintptr_t)args->out == a->share.at && args->out_dtype == DTYPE_F32 ? to : NULL;
}

/* Arguments with which the launch writes the accumulator instead of the share; NULL: it writes no
 * share. */
static const void *redirect(const LaunchCommand *launch, const Accumulation *a, Arena *arena) {
    static const KernelsByDtype SUMS[] = {KERNELS_BY_DTYPE(reduce_columns),
                                          KERNELS_BY_DTYPE(reduce_rows)};
    if (launch->generated) return NULL;
    if (kernel_is_of(&SUMS[0], launch->kernel) || kernel_is_of(&SUMS[1], launch->kernel)) {
        return redirect_sum(launch->args, a, arena);
    }
    switch (launch->kernel) {
    case KERNEL_norm_join: return redirect_join(launch->args, a, arena);
    case KERNEL_reduce_finish: return redirect_finish(launch->args, a, arena);
    default: return NULL;
    }
}

/* Makes the command write the accumulator; false: it does not write the share, or cannot add. */
static bool redirect_command(Command *command, const Accumulation *a, Arena *arena) {
    if (command->kind == COMMAND_GEMM) {
        if ((uintptr_t)command->gemm.bias_grad != a->share.at || a->adds) return false;
        command->gemm.bias_grad = (float *)a->accumulator.at;
        return true;
    }
    if (command->kind != COMMAND_LAUNCH) return false;
    const void *redirected = redirect(&command->launch, a, arena);
    if (redirected) command->launch.args = redirected;
    return redirected != NULL;
}

/* All of the maker's commands have the same accesses: the share is written no more, but the
 * accumulator is. */
static void set_accesses(CommandList *list, const Accumulation *a, Arena *arena) {
    const Command *maker = &list->items[a->first];
    Access *accesses = ARENA_ARRAY(arena, Access, maker->n_accesses + 2);
    int count = 0;
    for (int k = 0; k < maker->n_accesses; k++) {
        const Access *access = &maker->accesses[k];
        if (!access->write || !access_same(access, &a->share)) accesses[count++] = *access;
    }
    accesses[count++] = a->accumulator;
    if (a->adds) {
        accesses[count] = a->accumulator;
        accesses[count++].write = false;
    }
    for (int i = a->first; i < a->end; i++) {
        list->items[i].accesses = accesses;
        list->items[i].n_accesses = count;
    }
}

/* Is the accumulator apart from all that the maker touches, and left alone until `at`? */
static bool may_write(const CommandList *list, const Accumulation *a) {
    const Command *maker = &list->items[a->first];
    for (int k = 0; k < maker->n_accesses; k++) {
        if (access_overlaps(&maker->accesses[k], &a->accumulator)) return false;
    }
    return command_list_leaves_alone(list, a->end, a->at, &a->accumulator, false);
}

static bool fold(CommandList *list, const Graph *graph, const int *uses, int at, Arena *arena) {
    const Node *node = list->items[at].info.node;
    const FusedArgs *args = list->items[at].launch.args;
    Value share = node->inputs[1];
    OpKind maker = share.node->op;
    Type own = local_type(graph, share), whole = local_type(graph, node_value((Node *)node, 0));
    Accumulation a = {.at = at, .adds = args->in[0] != NULL};
    if (maker != OP_REDUCE_SUM && maker != OP_LAYERNORM_GRAD && maker != OP_RMSNORM_GRAD) {
        return false;
    }
    if (uses[share.node->id * MAX_OUTPUTS + share.output] != 1 || own.dtype != DTYPE_F32 ||
        !type_same_shape(&own, &whole) ||
        !command_list_find_node(list, share.node, at, &a.first, &a.end)) {
        return false;
    }
    int64_t bytes = type_elements(&own) * dtype_bytes(DTYPE_F32);
    a.share = access_to(args->in[1], bytes, true);
    a.accumulator = access_to(args->out[0], bytes, true);
    if (!may_write(list, &a)) return false;
    for (int i = a.first; i < a.end; i++) {
        Command *command = &list->items[i];
        if (command->stream != list->items[at].stream) continue;
        if (!redirect_command(command, &a, arena)) continue;
        set_accesses(list, &a, arena);
        list->items[at].kind = COMMAND_GONE;
        return true;
    }
    return false;
}

int cuda_fold_accumulations(CommandList *list, const Graph *graph, Arena *arena) {
    const int *uses = graph_count_uses(graph, arena);
    int n_folded = 0;
    for (int i = 0; i < list->count; i++) {
        if (is_candidate(&list->items[i])) n_folded += fold(list, graph, uses, i, arena);
    }
    command_list_compact(list);
    return n_folded;
}
