/* Exchange clock: how much of a task's all-to-alls is beside its work.
 *
 * The nodes of a task in their order, as two streams run them: work one after the other, and
 * all-to-alls one after the other, each from when what it reads is there; who reads one waits. What
 * a task waits for shows in its time, the rest is hidden.
 */
#ifndef PLANNER_COST_EXCHANGE_CLOCK_H
#define PLANNER_COST_EXCHANGE_CLOCK_H

#include "ir/op.h"

/* One task (or a block's part of one), from its start on: work and waits, and all-to-alls. */
typedef struct ExchangeClock {
    double us, sent_us, work_us, exchange_us;
} ExchangeClock;

/* When the nodes of a graph are done, each on its own task's clock. */
typedef struct ExchangeTimes {
    double *done_us;          /* by node id */
    const ExchangeClock **of; /* by node id; NULL: not yet */
} ExchangeTimes;

ExchangeTimes exchange_times_create(const Graph *graph, Arena *arena);

/* The next node of the clock's task takes `us`. */
void exchange_clock_add(ExchangeClock *clock, ExchangeTimes *times, const Node *node, double us);

/* Of exchange_us, what needs no time of its own. */
double exchange_clock_hidden_us(const ExchangeClock *clock);

#endif
