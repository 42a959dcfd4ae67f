#include "runtime/cuda/norm_sum.h"

#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"

enum { MOST_BETWEEN = 64 };
static const KernelsByDtype ROWS[] = {KERNELS_BY_DTYPE(layernorm_grad_narrow),
                                      KERNELS_BY_DTYPE(layernorm_grad_rows)};
static const KernelsByDtype SUMMED[] = {KERNELS_BY_DTYPE(layernorm_grad_sum_narrow),
                                        KERNELS_BY_DTYPE(layernorm_grad_sum_rows)};

/* A sum over rows, and the norm's two launches. */
typedef struct RowSum {
    int first, end; /* of the sum, in the list */
    int norm;       /* its rows, then its join */
    Access rows, out;
    bool adds; /* to what is there */
} RowSum;

static bool is_launch(const Command *command, const KernelsByDtype *kernels) {
    return command->kind == COMMAND_LAUNCH && !command->launch.generated &&
           kernel_is_of(kernels, command->launch.kernel);
}

static Type local_type(const Graph *graph, Value value) {
    return type_local(value_type(value), value_sharding(value), &graph->mesh);
}

/* Is it the first launch of a sum over all rows, in f32? Fills all but the norm. */
static bool find_sum(const CommandList *list, const Graph *graph, int at, RowSum *sum) {
    static const KernelsByDtype COLUMNS = KERNELS_BY_DTYPE(reduce_columns);
    const Command *command = &list->items[at];
    const Node *node = command->info.node;
    if (!is_launch(command, &COLUMNS) || node->op != OP_REDUCE_SUM) return false;
    const ReduceArgs *args = command->launch.args;
    Type x = local_type(graph, node->inputs[0]);
    Type to = local_type(graph, node_value((Node *)node, 0));
    int64_t n = x.dims[x.rank - 1];
    if (to.dtype != DTYPE_F32 || to.rank != 1 || to.dims[0] != n || args->n_outputs != n ||
        args->width != n) {
        return false;
    }
    void *out = args->out;
    *sum = (RowSum){.first = at, .end = at + 1, .adds = args->add};
    if (args->n_chunks > 1) { /* what has summed chunks is joined by the next */
        const Command *next = &list->items[at + 1];
        if (at + 1 == list->count || next->kind != COMMAND_LAUNCH || next->launch.generated ||
            next->launch.kernel != KERNEL_reduce_finish || next->info.node != node) {
            return false;
        }
        const ReduceFinishArgs *finish = next->launch.args;
        out = finish->out;
        sum->adds = finish->add;
        sum->end++;
    }
    sum->rows = access_to(args->x, type_bytes(&x), false);
    sum->out = access_to(out, n * (int64_t)sizeof(float), true);
    return true;
}

/* Finds the launches that store the rows. */
static bool find_norm(const CommandList *list, RowSum *sum) {
    const CommandInfo *info = &list->items[sum->first].info;
    for (int i = sum->first - 2; i >= 0 && sum->first - i <= MOST_BETWEEN; i--) {
        const Command *command = &list->items[i], *join = &list->items[i + 1];
        bool makes_rows = is_launch(command, &ROWS[0]) || is_launch(command, &ROWS[1]);
        if (!makes_rows || !command_same_task(&command->info, info)) continue;
        const NormGradArgs *args = command->launch.args;
        Access dx = access_to(args->dx, sum->rows.bytes, false);
        if (!access_same(&dx, &sum->rows)) continue;
        sum->norm = i;
        return join->kind == COMMAND_LAUNCH && !join->launch.generated &&
               join->launch.kernel == KERNEL_norm_join &&
               command->stream == list->items[sum->first].stream &&
               args->n * (int64_t)sizeof(float) == sum->out.bytes;
    }
    return false;
}

static bool may_fold(const CommandList *list, const RowSum *sum) {
    const Command *norm = &list->items[sum->norm];
    for (int k = 0; k < norm->n_accesses; k++) {
        if (access_overlaps(&norm->accesses[k], &sum->out)) return false;
    }
    return command_list_leaves_alone(list, sum->norm + 2, sum->first, &sum->rows, true) &&
           command_list_leaves_alone(list, sum->norm + 2, sum->first, &sum->out, false);
}

/* Both of the norm's launches write the sum, too. */
static void set_accesses(CommandList *list, const RowSum *sum, Arena *arena) {
    const Command *norm = &list->items[sum->norm];
    Access *accesses = ARENA_ARRAY(arena, Access, norm->n_accesses + 2);
    int count = 0;
    while (count < norm->n_accesses) {
        accesses[count] = norm->accesses[count];
        count++;
    }
    accesses[count++] = sum->out;
    if (sum->adds) {
        accesses[count] = sum->out;
        accesses[count++].write = false;
    }
    for (int i = sum->norm; i < sum->norm + 2; i++) {
        list->items[i].accesses = accesses;
        list->items[i].n_accesses = count;
    }
}

static void fold(CommandList *list, const RowSum *sum, Arena *arena) {
    LaunchCommand *rows = &list->items[sum->norm].launch;
    LaunchCommand *join = &list->items[sum->norm + 1].launch;
    DType dtype = list->items[sum->norm].info.node->types[0].dtype;
    NormJoinArgs *args = ARENA_NEW(arena, NormJoinArgs);
    set_accesses(list, sum, arena);
    bool narrow = kernel_is_of(&ROWS[0], rows->kernel);
    rows->kernel = kernel_for_dtype(&SUMMED[narrow ? 0 : 1], dtype);
    *args = *(const NormJoinArgs *)join->args;
    args->width = 3 * args->n;
    args->dsum = (float *)sum->out.at;
    args->add_sum = sum->adds;
    join->args = args;
    join->grid.x = (uint32_t)divide_up(args->width, NORM_JOIN_COLUMNS);
    for (int i = sum->first; i < sum->end; i++) list->items[i].kind = COMMAND_GONE;
}

int cuda_fold_norm_sums(CommandList *list, const Graph *graph, Arena *arena) {
    int n_gone = 0;
    for (int i = 0; i < list->count; i++) {
        RowSum sum;
        if (!find_sum(list, graph, i, &sum) || !find_norm(list, &sum) || !may_fold(list, &sum)) {
            continue;
        }
        fold(list, &sum, arena);
        n_gone += sum.end - sum.first;
    }
    command_list_compact(list);
    return n_gone;
}
