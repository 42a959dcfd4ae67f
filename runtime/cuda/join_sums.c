#include "runtime/cuda/join_sums.h"

#include "runtime/cuda/kernels/args.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BETWEEN = 64, MOST_JOINED = 8 };

/* A sum's launches, in the list: of its rows, and of its chunks where it has several. */
typedef struct Sum {
    int first, end;
    const ReduceArgs *args;
    const ReduceFinishArgs *finish; /* or NULL */
} Sum;

typedef struct SumGroup {
    int count;
    Sum all[MOST_JOINED]; /* the first in the list first */
} SumGroup;

static uintptr_t result_of(const Sum *sum) {
    return (uintptr_t)(sum->finish ? sum->finish->out : sum->args->out);
}

static bool find_sum(const CommandList *list, int at, Sum *out) {
    static const KernelsByDtype COLUMNS = KERNELS_BY_DTYPE(reduce_columns);
    const Command *command = &list->items[at], *next = command + 1;
    const Node *node = command->info.node;
    if (command->kind != COMMAND_LAUNCH || command->launch.generated ||
        !kernel_is_of(&COLUMNS, command->launch.kernel) || node->op != OP_REDUCE_SUM ||
        node->types[0].dtype != DTYPE_F32 || command->launch.grid.z != 1) {
        return false;
    }
    *out = (Sum){.first = at, .end = at + 1, .args = command->launch.args};
    if (out->args->n_chunks == 1) return true;
    if (at + 1 == list->count || next->kind != COMMAND_LAUNCH || next->launch.generated ||
        next->launch.kernel != KERNEL_reduce_finish || next->info.node != node) {
        return false;
    }
    out->finish = next->launch.args;
    out->end++;
    return true;
}

static bool is_same_map(const IndexMap *a, const IndexMap *b) {
    bool same = a->n_dims == b->n_dims;
    for (int d = 0; same && d < a->n_dims; d++) {
        same = a->size[d].divisor == b->size[d].divisor && a->stride[d] == b->stride[d];
    }
    return same;
}

static bool is_alike(const CommandList *list, const Sum *one, const Sum *other) {
    const Command *x = &list->items[one->first], *y = &list->items[other->first];
    const ReduceArgs *a = one->args, *b = other->args;
    return x->launch.kernel == y->launch.kernel && x->stream == y->stream &&
           command_same_task(&x->info, &y->info) && a->n_outputs == b->n_outputs &&
           a->n_chunks == b->n_chunks && a->n_runs == b->n_runs && a->width == b->width &&
           a->vector == b->vector && a->add == b->add && is_same_map(&a->row_at, &b->row_at) &&
           is_same_map(&a->run_at, &b->run_at) &&
           (!one->finish || one->finish->add == other->finish->add);
}

/* May the sum be made at the same time as the one at `first`? */
static bool may_move(const CommandList *list, int first, const Sum *sum) {
    const Command *command = &list->items[sum->first];
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        if (access->workspace) continue;
        if (!command_list_leaves_alone(list, first, sum->first, access, !access->write))
            return false;
    }
    return true;
}

static int by_address(const void *left, const void *right) {
    uintptr_t x = (uintptr_t)((const Sum *)left)->args->x,
              y = (uintptr_t)((const Sum *)right)->args->x;
    return x < y ? -1 : x > y;
}

/* Sums in memory's order, or leaves the group as it is; false: they are not equally far apart. */
static bool order_group(const SumGroup *group, Sum *sorted, int64_t *out_x, int64_t *out_result) {
    memcpy(sorted, group->all, sizeof(group->all));
    qsort(sorted, (size_t)group->count, sizeof(*sorted), by_address);
    for (int i = 1; i < group->count; i++) {
        int64_t x = (int64_t)((uintptr_t)sorted[i].args->x - (uintptr_t)sorted[i - 1].args->x);
        int64_t result = (int64_t)(result_of(&sorted[i]) - result_of(&sorted[i - 1]));
        if (i > 1 && (x != *out_x || result != *out_result)) return false;
        *out_x = x;
        *out_result = result;
    }
    return true;
}

/* The sum at `first` and those after it that may be made with it, as many as are regular. */
static SumGroup collect(const CommandList *list, const Sum *first) {
    SumGroup group = {.count = 1, .all = {*first}};
    for (int i = first->end; i < list->count && i - first->first <= MOST_BETWEEN; i++) {
        Sum sum, sorted[MOST_JOINED];
        int64_t x, result;
        if (group.count == MOST_JOINED) break;
        if (!find_sum(list, i, &sum) || !is_alike(list, first, &sum) ||
            !may_move(list, first->first, &sum)) {
            continue;
        }
        group.all[group.count++] = sum;
        if (group.count > 2 && !order_group(&group, sorted, &x, &result)) group.count--;
    }
    return group;
}

static int64_t workspace_of(const Command *command) {
    for (int k = 0; k < command->n_accesses; k++) {
        if (command->accesses[k].workspace) return command->accesses[k].bytes;
    }
    return 0;
}

/* Operands and results of all, and the first one's workspace. */
static const Access *all_accesses(const CommandList *list, const SumGroup *group, Arena *arena,
                                  int *out_count) {
    int most = 0, count = 0;
    for (int i = 0; i < group->count; i++) most += list->items[group->all[i].first].n_accesses;
    Access *accesses = ARENA_ARRAY(arena, Access, most);
    for (int i = 0; i < group->count; i++) {
        const Command *command = &list->items[group->all[i].first];
        for (int k = 0; k < command->n_accesses; k++) {
            if (!i || !command->accesses[k].workspace) accesses[count++] = command->accesses[k];
        }
    }
    *out_count = count;
    return accesses;
}

/* Returns how many launches are gone. */
static int join(CommandList *list, const SumGroup *group, Arena *arena) {
    Sum sorted[MOST_JOINED];
    int64_t x_apart = 0, result_apart = 0;
    const Sum *first = &group->all[0];
    int64_t chunks_bytes = first->args->n_chunks * first->args->n_outputs * (int64_t)sizeof(float);
    if (group->count < 2 || !order_group(group, sorted, &x_apart, &result_apart) ||
        (first->finish && workspace_of(&list->items[first->first]) < group->count * chunks_bytes)) {
        return 0;
    }
    ReduceArgs *args = ARENA_NEW(arena, ReduceArgs);
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, group->count);
    int n_accesses, n_gone = 0;
    const Access *accesses = all_accesses(list, group, arena, &n_accesses);
    *args = *first->args;
    args->x = sorted[0].args->x;
    args->x_apart = x_apart;
    args->out_apart = first->finish ? chunks_bytes : result_apart;
    if (!first->finish) args->out = sorted[0].args->out;
    for (int i = 1; i < group->count; i++) {
        const Sum *sum = &group->all[i];
        others[i - 1] = list->items[sum->first].info;
        for (int k = sum->first; k < sum->end; k++, n_gone++) list->items[k].kind = COMMAND_GONE;
    }
    list->items[first->first].launch.args = args;
    if (first->finish) {
        ReduceFinishArgs *finish = ARENA_NEW(arena, ReduceFinishArgs);
        *finish = *first->finish;
        finish->out = sorted[0].finish->out;
        finish->out_apart = result_apart;
        list->items[first->first + 1].launch.args = finish;
    }
    for (int k = first->first; k < first->end; k++) {
        Command *command = &list->items[k];
        command->launch.grid.z = (uint32_t)group->count;
        command->accesses = accesses;
        command->n_accesses = n_accesses;
        command->others = others;
        command->n_others = group->count - 1;
    }
    return n_gone;
}

int cuda_join_sums(CommandList *list, Arena *arena) {
    int n_gone = 0;
    for (int i = 0; i < list->count; i++) {
        Sum sum;
        if (!find_sum(list, i, &sum)) continue;
        SumGroup group = collect(list, &sum);
        n_gone += join(list, &group, arena);
    }
    command_list_compact(list);
    return n_gone;
}
