/* The training thread's latest progress, for the service thread: neither ever waits for the other.
 *
 * Three slots: the writer fills its own and swaps it with the middle one; the reader swaps its own
 * with the middle one when that is new. One writer, one reader. The record read is always whole;
 * records between two reads are skipped.
 */
#ifndef RUNTIME_LAUNCH_MAILBOX_H
#define RUNTIME_LAUNCH_MAILBOX_H

#include "runtime/launch/control.h"

#include <stdatomic.h>

typedef struct ProgressRecord {
    int64_t step; /* < 0: not in a step */
    uint32_t task, call;
    bool waits;
    double since; /* when it was written, in seconds of this process' monotonic clock */
    char text[CONTROL_TEXT_BYTES];
} ProgressRecord;

typedef struct Mailbox {
    ProgressRecord slots[3];
    atomic_uint middle; /* slot, and MAILBOX_NEW */
    unsigned back;      /* the writer's slot */
    unsigned front;     /* the reader's */
} Mailbox;

void mailbox_init(Mailbox *mailbox, double now);
void mailbox_write(Mailbox *mailbox, const ProgressRecord *record);
/* The latest record; valid until the next read. */
const ProgressRecord *mailbox_read(Mailbox *mailbox);

#endif
