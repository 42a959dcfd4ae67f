/* Order: which commands must wait for which, across streams.
 *
 * A command list is a valid sequence. Commands of one rank's stream run one after the other; a
 * command must also come after every earlier one of another stream that writes what it reads or
 * writes, or reads what it writes. order_commands finds these pairs from the commands' accesses and
 * keeps only waits that no path through other waits already implies (vector clocks: Fidge 1988,
 * Mattern 1989). Messages then overlap with compute wherever the data allow it.
 */
#ifndef RUNTIME_CUDA_ORDER_H
#define RUNTIME_CUDA_ORDER_H

#include "runtime/cuda/command.h"

typedef struct CommandOrder {
    int n_streams; /* those in use, over all ranks; number 0 is the origin, where launches begin */
    int *streams;  /* [count]: each command's stream */
    int n_events;  /* event objects needed: an event is used again once all its waits are issued */
    int *events;   /* [count]: the object recorded after a command, or -1 */
    int n_joins;   /* last commands of the other streams, which the origin waits for at the end */
    int *joins;
    int n_waits;
} CommandOrder;

/* Fills the commands' event and waits and moves commands of the data stream up to where what they
 * read is ready, so that issuing in list order starts them early. */
void order_commands(CommandList *list, Arena *arena, CommandOrder *out);

#endif
