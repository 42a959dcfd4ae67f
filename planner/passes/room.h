/* Room: places in memory of values that live at different times. Two whose lives meet share no
 * byte, and each lies at the lowest offset that is free for its whole life. */
#ifndef PLANNER_PASSES_ROOM_H
#define PLANNER_PASSES_ROOM_H

#include "ir/base/arena.h"

#include <stdint.h>

/* What lives from node `first` (-1: before all) to node `last` (INT_MAX: forever), both included.
 */
typedef struct Life {
    int first, last;
} Life;

typedef struct Room Room;
/* Of a program of so many nodes; owned by the arena. */
Room *room_create(int n_nodes, Arena *arena);
/* The lowest offset from `offset` on at which `bytes` are free for all of the life. */
int64_t room_find(const Room *room, Life life, int64_t bytes, int64_t offset);
void room_add(Room *room, Life life, int64_t bytes, int64_t offset);

#endif
