/* Communication between ranks: collectives over groups, messages through channels.
 *
 * Here ranks are threads of one process (comm_inproc.c). A CommWorld holds what all ranks share and
 * owns its groups and channels; create them all before the ranks start, destroy the world after
 * they have ended. Nothing below allocates once created.
 *
 * Every call returns true when done, false when the world was aborted: by comm_world_abort, by a
 * wait longer than the time-out, or by members whose calls do not match. comm_world_reason says
 * why; the first reason stays. An aborted world stays aborted; since other ranks may still be
 * reading, buffers must outlive all ranks' calls, not only this one's.
 *
 * Collectives are called by every member of the group, in the same order, each with its own index;
 * they block until this member's buffers may be used again. Data is of one dtype, f32, bf16 or
 * f16; reductions add up in f32 and round once. They take the members in order 0, 1, ..., n-1 for
 * every element, so all members and all runs get the same bits, whatever the sizes and the timing.
 * `in` and `out` of different members may not overlap.
 */
#ifndef RUNTIME_COMM_COMM_H
#define RUNTIME_COMM_COMM_H

#include "ir/type.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct CommWorld CommWorld;
typedef struct CommGroup CommGroup;
typedef struct CommChannel CommChannel;

/* n_ranks: how many threads will wait at the same time; with more of them than cores, waits block
 * at once instead of spinning first. */
CommWorld *comm_world_create(int n_ranks);
void comm_world_destroy(CommWorld *world);
/* The longest single wait, 300 s unless set; 0 or less: no limit. Before the ranks start. */
void comm_world_set_timeout(CommWorld *world, double seconds);
/* Ends every wait of every rank, now and later. From any thread. */
void comm_world_abort(CommWorld *world, const char *reason);
bool comm_world_is_aborted(const CommWorld *world);
/* Seconds that the calling thread has waited for others in all its calls so far. */
double comm_waited_seconds(void);
/* "" while not aborted. */
const char *comm_world_reason(const CommWorld *world);

/* `name` is copied and appears in errors. */
CommGroup *comm_group_create(CommWorld *world, int n_members, const char *name);

/* Before the ranks start: along the axis, gathers and scatters deal out chunks of axis_local / 2
 * from here on, as ir/mesh.h says of c: member i has chunk i and, of n members, chunk 2 n - 1 - i.
 */
void comm_group_set_dealing(CommGroup *group);

/* out[i] = reduction of all members' in[i]; in may equal out. */
bool comm_all_reduce(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                     void *out, size_t count);

/* in [outer, axis_local, inner] -> out [outer, axis_total, inner]: the members' parts one after
 * the other along the axis. axis_total <= n_members * axis_local; what exceeds it (the last
 * members' padding) is dropped. in may lie in out only at its own place and with outer == 1. */
bool comm_all_gather(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t axis_local, size_t axis_total, size_t inner);

/* in [outer, axis_total, inner] of every member -> out [outer, axis_local, inner]: the reduction of
 * this member's rows, from member * axis_local on; rows beyond axis_total are zero. */
bool comm_reduce_scatter(CommGroup *group, int member, ReduceKind kind, DType dtype, const void *in,
                         void *out, size_t outer, size_t axis_local, size_t axis_total,
                         size_t inner);

/* Every member has a block of rows for each, and gets one of each: a tensor of `outer` x n_members
 * x rows x width elements lies as [outer, member, rows, width] (blocks: what is divided is the
 * first of two axes) or [outer, rows, member, width] (strips: the second). `to_strips`: in are
 * blocks, by whom they go to; out are strips, by whom they come from; without it the other way
 * round. Where the group deals, blocks lie in two halves each, as its parts of an axis do. */
bool comm_all_to_all(CommGroup *group, int member, DType dtype, const void *in, void *out,
                     size_t outer, size_t rows, size_t width, bool to_strips);

/* buffer[count] of `root` -> buffer of all. */
bool comm_broadcast(CommGroup *group, int member, int root, DType dtype, void *buffer,
                    size_t count);

/* Returns when all members have called it. */
bool comm_barrier(CommGroup *group, int member);

/* Messages from one rank to another, first in, first out, at most n_slots unread. */
CommChannel *comm_channel_create(CommWorld *world, int n_slots, const char *name);

/* Waits for a free slot, then copies the message to slot_base + (k mod n_slots) * slot_bytes, k
 * being the messages sent before. The slots are the sender's planned memory: they must stay
 * untouched until read. A message larger than slot_bytes aborts the world. */
bool comm_channel_send(CommChannel *channel, void *slot_base, size_t slot_bytes, const void *source,
                       size_t bytes);

/* Waits for the next message, copies it, frees its slot. Another size aborts the world. */
bool comm_channel_recv(CommChannel *channel, void *destination, size_t bytes);

#endif
