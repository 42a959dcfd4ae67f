/* Collectives among virtual ranks: all members' memory lies on one device, so one launch does what
 * the whole group does, members in fixed order. */
#ifndef RUNTIME_CUDA_VIRTUAL_H
#define RUNTIME_CUDA_VIRTUAL_H

#include "runtime/cuda/command.h"

enum { MAX_VIRTUAL_MEMBERS = 64 };

/* members[n]: the commands of member 0, 1, .. of one group. False: more members than a launch can
 * take, or commands that do not match. */
bool cuda_virtual_collective(const CollectiveCommand *const *members, int n, Arena *arena,
                             LaunchCommand *out);

#endif
