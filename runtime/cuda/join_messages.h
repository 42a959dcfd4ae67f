/* Joined messages: the collectives of a group of the plan's (ir/message_group.h) as one command.
 *
 * NCCL sends what is between ncclGroupStart and ncclGroupEnd on one communicator and stream by one
 * kernel: a group has one node in a graph for its messages, besides those that pack and unpack.
 * Sums that lie one behind the other are one message.
 */
#ifndef RUNTIME_CUDA_JOIN_MESSAGES_H
#define RUNTIME_CUDA_JOIN_MESSAGES_H

#include "runtime/cuda/command.h"

/* Joins what follows one another in a rank's list and is a group in its graph; each member's
 * workspace comes behind those before it, which is how the plan counts it. */
void cuda_join_messages(CommandList *list, Arena *arena);

#endif
