#include "runtime/cuda/join_messages.h"

#include "ir/message_group.h"
#include "runtime/cuda/collective.h"

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

static Command join(const Command *members, int count, Arena *arena) {
    Command joined = members[0];
    CollectiveCommand *more = ARENA_ARRAY(arena, CollectiveCommand, count);
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, count);
    int64_t used = 0;
    int n_accesses = 0, most = 0;
    for (int k = 0; k < count; k++) most += members[k].n_accesses;
    Access *accesses = ARENA_ARRAY(arena, Access, most);
    for (int k = 0; k < count; k++) {
        const Command *member = &members[k];
        for (int i = 0; i < member->n_accesses; i++) accesses[n_accesses++] = member->accesses[i];
        if (k > 0) {
            more[k - 1] = behind(&member->collective, used);
            others[k - 1] = member->info;
        }
        used += aligned(cuda_collective_workspace_bytes(&member->collective));
    }
    joined.collective.more = more;
    joined.collective.n_more = joined.n_others = count - 1;
    joined.others = others;
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
