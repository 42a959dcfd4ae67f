#include "runtime/cuda/join_products.h"

#include <stdlib.h>

enum { MOST_BETWEEN = 64, MOST_JOINED = 8 };

/* Alike products of one left operand: the first in the list, then others, by where they write. */
typedef struct Group {
    int count;
    int at[MOST_JOINED];             /* in the list */
    const Command *all[MOST_JOINED]; /* by D's address */
} Group;

/* A product that can be one of several. Where the scales of a batch's next operand would be is not
 * documented. */
static bool is_candidate(const Command *command) {
    const GemmCommand *g = &command->gemm;
    return command->kind == COMMAND_GEMM && g->layout.batch == 1 && !matmul_is_large(&g->layout) &&
           !g->scales_a.at && g->epilogue == EPILOGUE_SUM && !g->aux && (!g->c || g->c == g->d);
}

static bool is_alike(const Command *x, const Command *y) {
    const GemmCommand *a = &x->gemm, *b = &y->gemm;
    PlanAlgo one = gemm_product(a), other = gemm_product(b);
    return x->stream == y->stream && command_same_task(&x->info, &y->info) && a->a == b->a &&
           a->beta == b->beta && plan_algo_same_product(&one, &other);
}

/* May the command at `at` run at the same time as the one at `first`? What products use for the
 * length of a call may be shared. */
static bool may_move(const CommandList *list, int first, int at) {
    const Command *command = &list->items[at];
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        if (access->workspace) continue;
        if (!command_list_leaves_alone(list, first, at, access, !access->write)) return false;
    }
    return true;
}

static int by_result(const void *left, const void *right) {
    const Command *a = *(const Command *const *)left, *b = *(const Command *const *)right;
    uintptr_t x = (uintptr_t)a->gemm.d, y = (uintptr_t)b->gemm.d;
    return x < y ? -1 : x > y;
}

/* Elements from one to the next; 0: not a whole number of them, or not ahead. */
static int64_t distance(const void *from, const void *to, DType dtype) {
    int64_t bytes = (int64_t)((intptr_t)to - (intptr_t)from);
    return bytes > 0 && bytes % ALIGN_BYTES == 0 ? bytes / dtype_bytes(dtype) : 0;
}

/* How far apart two neighbours' operands are; false: they overlap or are out of order. */
static bool find_strides(const GemmCommand *a, const GemmCommand *b, GemmStrides *out) {
    const MatmulLayout *l = &a->layout;
    *out = (GemmStrides){.b = distance(a->b, b->b, a->in_dtype),
                         .d = distance(a->d, b->d, a->out_dtype)};
    if (out->b < l->k * l->n || out->d < l->m * l->n) return false;
    if (!a->bias) return true;
    out->bias = distance(a->bias, b->bias, a->out_dtype);
    return out->bias >= l->n;
}

/* The first product and what follows it that is alike and may stand beside it. */
static Group collect(const CommandList *list, int first) {
    Group group = {.count = 1, .at = {first}, .all = {&list->items[first]}};
    for (int i = first + 1; i < list->count && i - first <= MOST_BETWEEN; i++) {
        const Command *command = &list->items[i];
        if (group.count == MOST_JOINED) break;
        if (!is_candidate(command) || !is_alike(group.all[0], command)) continue;
        if (!may_move(list, first, i)) continue;
        group.at[group.count] = i;
        group.all[group.count++] = command;
    }
    return group;
}

/* Leaves the longest run of neighbours, equally far apart, that has the first product in it. */
static void keep_regular(Group *group, const Command *first, GemmStrides *out) {
    Group best = {.count = 1};
    qsort(group->all, (size_t)group->count, sizeof(*group->all), by_result);
    for (int i = 0; i + 1 < group->count; i++) {
        GemmStrides strides, next;
        bool has_first = group->all[i] == first;
        int n = 1;
        if (!find_strides(&group->all[i]->gemm, &group->all[i + 1]->gemm, &strides)) continue;
        while (i + n < group->count &&
               find_strides(&group->all[i + n - 1]->gemm, &group->all[i + n]->gemm, &next) &&
               gemm_strides_equal(&next, &strides)) {
            has_first |= group->all[i + n++] == first;
        }
        if (!has_first || n <= best.count) continue;
        best.count = n;
        for (int k = 0; k < n; k++) best.all[k] = group->all[i + k];
        *out = strides;
    }
    *group = best;
}

/* What lies between the results is not written, but the library is not told of anything read there
 * either. */
static bool is_apart(const GemmCommand *g) {
    const MatmulLayout *l = &g->layout;
    int64_t before = l->batch - 1, b = before * g->apart.b + l->k * l->n;
    int64_t d = before * g->apart.d + l->m * l->n, bias = before * g->apart.bias + l->n;
    Access to = gemm_range(g->d, 1, d, g->out_dtype, true);
    Access from[] = {gemm_range(g->a, l->m, l->k, g->in_dtype, false),
                     gemm_range(g->b, 1, b, g->in_dtype, false),
                     gemm_range(g->bias, g->bias != NULL, bias, g->out_dtype, false)};
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        if (access_overlaps(&to, &from[i])) return false;
    }
    return true;
}

static const Access *all_accesses(const Group *group, Arena *arena, int *out_count) {
    int most = 0, count = 0;
    for (int i = 0; i < group->count; i++) most += group->all[i]->n_accesses;
    Access *accesses = ARENA_ARRAY(arena, Access, most);
    for (int i = 0; i < group->count; i++) {
        for (int k = 0; k < group->all[i]->n_accesses; k++) {
            const Access *access = &group->all[i]->accesses[k];
            bool known = false;
            for (int j = 0; j < count; j++) {
                known |= access_same(&accesses[j], access) && accesses[j].write == access->write;
            }
            if (!known) accesses[count++] = *access;
        }
    }
    *out_count = count;
    return accesses;
}

/* Of those that are no commands of their own any more. */
static const CommandInfo *other_infos(const Group *group, const Command *first, Arena *arena) {
    CommandInfo *infos = ARENA_ARRAY(arena, CommandInfo, group->count);
    int count = 0;
    for (int i = 0; i < group->count; i++) {
        if (group->all[i] != first) infos[count++] = group->all[i]->info;
    }
    return infos;
}

static int join(CommandList *list, int first, const EpilogueCheck *check, Arena *arena) {
    Group group = collect(list, first);
    GemmStrides strides = {0};
    Command joined = list->items[first];
    keep_regular(&group, &list->items[first], &strides);
    if (group.count < 2) return 0;
    joined.gemm.layout.batch = group.count;
    joined.gemm.b = group.all[0]->gemm.b;
    joined.gemm.d = group.all[0]->gemm.d;
    joined.gemm.bias = group.all[0]->gemm.bias;
    joined.gemm.c = NULL;
    joined.gemm.apart = strides;
    if (!is_apart(&joined.gemm)) return 0;
    if (check->joins && !check->joins(check->user, &list->items[first].gemm, &joined.gemm)) {
        return 0;
    }
    joined.accesses = all_accesses(&group, arena, &joined.n_accesses);
    joined.others = other_infos(&group, &list->items[first], arena);
    joined.n_others = group.count - 1;
    for (int i = 0; i < group.count; i++) {
        list->items[group.all[i] - list->items].kind = COMMAND_GONE;
    }
    list->items[first] = joined;
    return group.count - 1;
}

int cuda_join_products(CommandList *list, const EpilogueCheck *check, Arena *arena) {
    int n_gone = 0;
    for (int i = 0; i < list->count; i++) {
        if (is_candidate(&list->items[i])) n_gone += join(list, i, check, arena);
    }
    command_list_compact(list);
    return n_gone;
}
