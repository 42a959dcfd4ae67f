#include "runtime/cuda/join_messages.h"

#include "ir/message_group.h"
#include "runtime/cuda/collective.h"

#include <stdlib.h>

/* How many commands from `first` on are one group. */
static int count_members(const CommandList *list, int first) {
    int count = 1;
    if (list->items[first].kind != COMMAND_COLLECTIVE) return 1;
    while (first + count < list->count) {
        const Command *next = &list->items[first + count];
        if (next->kind != COMMAND_COLLECTIVE || !node_is_joined(next->info.node)) break;
        count++;
    }
    return count;
}

static int64_t aligned(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* The same command with the workspace that `used` bytes of it leave. */
static CollectiveCommand behind(const CollectiveCommand *command, int64_t used) {
    CollectiveCommand moved = *command;
    moved.workspace = (char *)command->workspace + used;
    moved.workspace_bytes = command->workspace_bytes - used;
    return moved;
}

static int by_address(const void *left, const void *right) {
    uintptr_t x = (uintptr_t)((const CollectiveCommand *)left)->out;
    uintptr_t y = (uintptr_t)((const CollectiveCommand *)right)->out;
    return (x > y) - (x < y);
}

/* Sums in place of which the second begins where the first ends, but for what aligns it: nothing
 * else can lie there. */
static bool are_neighbors(const CollectiveCommand *a, const CollectiveCommand *b) {
    uintptr_t end = (uintptr_t)a->out + (uintptr_t)(a->count * dtype_bytes(a->dtype));
    return a->in == a->out && b->in == b->out && a->reduce == b->reduce &&
           a->reduce != REDUCE_LSE && a->dtype == b->dtype && (uintptr_t)b->out >= end &&
           (uintptr_t)b->out - end < ALIGN_BYTES;
}

/* Neighbors are one tensor, which NCCL sends by all of its channels at once. Ranks have the same
 * program, and so the same ones. Returns how many are left. */
static int merge_neighbors(CollectiveCommand *messages, int count) {
    int n = 1;
    if (messages[0].kind != ALL_REDUCE) return count;
    qsort(messages, (size_t)count, sizeof(*messages), by_address);
    for (int k = 1; k < count; k++) {
        CollectiveCommand *last = &messages[n - 1];
        if (!are_neighbors(last, &messages[k])) {
            messages[n++] = messages[k];
            continue;
        }
        int64_t before = (const char *)messages[k].out - (const char *)last->out;
        last->count = before / dtype_bytes(last->dtype) + messages[k].count;
    }
    return n;
}

static Command join(const Command *members, int count, Arena *arena) {
    Command joined = members[0];
    CollectiveCommand *messages = ARENA_ARRAY(arena, CollectiveCommand, count);
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, count);
    int64_t used = 0;
    int n_accesses = 0, most = 0;
    for (int k = 0; k < count; k++) most += members[k].n_accesses;
    Access *accesses = ARENA_ARRAY(arena, Access, most);
    for (int k = 0; k < count; k++) {
        const Command *member = &members[k];
        for (int i = 0; i < member->n_accesses; i++) accesses[n_accesses++] = member->accesses[i];
        messages[k] = behind(&member->collective, used);
        if (k > 0) others[k - 1] = member->info;
        used += aligned(cuda_collective_workspace_bytes(&member->collective));
    }
    joined.n_others = count - 1;
    joined.others = others;
    count = merge_neighbors(messages, count);
    joined.collective = messages[0];
    joined.collective.more = &messages[1];
    joined.collective.n_more = count - 1;
    joined.accesses = accesses;
    joined.n_accesses = n_accesses;
    return joined;
}

void cuda_join_messages(CommandList *list, Arena *arena) {
    for (int i = 0, count; i < list->count; i += count) {
        count = count_members(list, i);
        if (count == 1) continue;
        list->items[i] = join(&list->items[i], count, arena);
        for (int k = 1; k < count; k++) list->items[i + k].kind = COMMAND_GONE;
    }
    command_list_compact(list);
}
