#include "runtime/cuda/virtual.h"

#include "runtime/cuda/member_launch.h"

_Static_assert(MAX_VIRTUAL_MEMBERS == (int)COLLECTIVE_MEMBERS, "tables in arguments");

static bool matches(const CollectiveCommand *a, const CollectiveCommand *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->n_members != b->n_members) return false;
    bool reduces = a->kind == ALL_REDUCE || a->kind == REDUCE_SCATTER;
    if ((reduces && a->reduce != b->reduce) || a->to_strips != b->to_strips) return false;
    if (a->kind == ALL_REDUCE) return a->count == b->count;
    return a->deals == b->deals && a->outer == b->outer && a->axis_local == b->axis_local &&
           a->axis_total == b->axis_total && a->inner == b->inner;
}

bool cuda_virtual_collective(const CollectiveCommand *const *members, int n, Arena *arena,
                             LaunchCommand *out) {
    static bool (*const LAUNCHES[])(const CollectiveCommand *, const Members *, Arena *,
                                    LaunchCommand *) = {[ALL_REDUCE] = launch_all_reduce,
                                                        [ALL_GATHER] = launch_all_gather,
                                                        [REDUCE_SCATTER] = launch_reduce_scatter,
                                                        [ALL_TO_ALL] = launch_all_to_all};
    Members m = {.n_members = n, .n_outputs = n};
    if (n < 1 || n > MAX_VIRTUAL_MEMBERS) return false;
    for (int k = 0; k < n; k++) {
        if (!matches(members[0], members[k]) || members[k]->member != k) return false;
        m.in[k] = members[k]->in;
        m.out[k] = members[k]->out;
    }
    return LAUNCHES[members[0]->kind](members[0], &m, arena, out);
}
