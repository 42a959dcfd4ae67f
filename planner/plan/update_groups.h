/* Groups of messages in the update (planner/passes/join_update.c): gradients on their way to their
 * sums, and weights back to all ranks, once a step. */
#ifndef PLANNER_PLAN_UPDATE_GROUPS_H
#define PLANNER_PLAN_UPDATE_GROUPS_H

#include <stdint.h>

/* Whole tensors of at most so many bytes are a group among n ranks. A ring's latency grows with its
 * ranks: so does what has to be sent for it to matter no more. Larger ones would leave less beside
 * the backward, and take more room where shards have to be packed. */
static inline int64_t update_group_bytes(int n_ranks) {
    const int64_t least = 16 << 20, a_rank = 2 << 20, most = 256 << 20;
    int64_t bytes = a_rank * n_ranks;
    return bytes < least ? least : bytes > most ? most : bytes;
}

/* Weights that are gathered beside the forward (gather_once.c) are a group from so many bytes on:
 * nothing is beside the first, and of small ones a latency is most. */
static inline int64_t weight_group_bytes(int n_ranks) {
    return update_group_bytes(n_ranks) / 2;
}

#endif
