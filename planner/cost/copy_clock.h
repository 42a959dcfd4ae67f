/* Copy clock: how much of a task's copies to and from the host's memory is beside its work.
 *
 * The nodes of a task in their order, as three streams run them: work, copies out (`offload`) and
 * copies back (`fetch`), each copy from when the work before it is done. Who reads what comes back
 * waits for it; and when one block's values go out, those of the block before have to be away,
 * since what follows lies in their place. What the task waits for shows in its time.
 */
#ifndef PLANNER_COST_COPY_CLOCK_H
#define PLANNER_COST_COPY_CLOCK_H

#include "ir/op.h"

typedef struct CopyClock {
    double us, work_us;     /* work and waits; work alone */
    double out_us, back_us; /* when the last copy of each way is done */
    int out_block;          /* whose values go out, + 1; 0: none yet */
} CopyClock;

static inline bool op_copies_host(OpKind op) {
    return op == OP_OFFLOAD || op == OP_FETCH;
}

/* The next node of the clock's task takes `us`. done_us: by node id, of copies, filled. */
void copy_clock_add(CopyClock *clock, double *done_us, const Node *node, double us);
/* What the task waits for its copies. */
double copy_clock_waits_us(const CopyClock *clock);

#endif
