/* Message clock: how much of a task's messages over t, c and e is beside its work.
 *
 * The nodes of a task in their order, as two streams run them: work one after the other, and
 * messages one after the other, each from when what it reads is there; who reads one waits. What a
 * task waits for shows in its time, the rest is hidden.
 */
#ifndef PLANNER_COST_MESSAGE_CLOCK_H
#define PLANNER_COST_MESSAGE_CLOCK_H

#include "ir/op.h"

/* One task (or a block's part of one), from its start on: work and waits, and messages. Of its
 * products and attention: waits before the first, when the last is done, and work after it. */
typedef struct MessageClock {
    double us, sent_us, work_us, message_us;
    double lead_us, last_us, after_us;
    bool begun;
} MessageClock;

/* When the nodes of a graph are done, each on its own task's clock. */
typedef struct MessageTimes {
    double *done_us;         /* by node id */
    const MessageClock **of; /* by node id; NULL: not yet */
} MessageTimes;

MessageTimes message_times_create(const Graph *graph, Arena *arena);

/* The next node of the clock's task takes `us`. */
void message_clock_add(MessageClock *clock, MessageTimes *times, const Node *node, double us);

/* Of message_us, what needs no time of its own. */
double message_clock_hidden_us(const MessageClock *clock);
/* Of what is not hidden, what would be between parts like this one, whose lanes go on beside each
 * other: waits before the first product and behind the last. */
double message_clock_edge_us(const MessageClock *clock);

#endif
