/* Meetings of parts behind training: a thread holds them one after the other, in the order in which
 * they were begun.
 *
 * While one is on its way the thread alone may use the Islands, and the part's own weights, its
 * share of weights and momentum are not to be touched. After one that did not come to its end
 * (islands were stopped, another's weights were taken, island 0 is lost) those behind it are
 * ISLANDS_STOPPED without having begun, until all have been taken out.
 */
#ifndef RUNTIME_ISLANDS_EXCHANGE_QUEUE_H
#define RUNTIME_ISLANDS_EXCHANGE_QUEUE_H

#include "runtime/islands/islands.h"

typedef struct Exchange {
    int part;
    const float *own;   /* the caller's */
    IslandsPlace place; /* of the meeting; then of the last one */
    IslandsResult result;
    IslandsReport report;
    double seconds; /* that it took */
    bool is_waited; /* on island 0: others wait for weights */
} Exchange;

typedef struct ExchangeQueue ExchangeQueue;

/* NULL: reported. */
ExchangeQueue *exchange_queue_create(Islands *islands, Diag *diag);
/* What is still on its way is given up. NULL is fine. */
void exchange_queue_destroy(ExchangeQueue *queue);

/* At most OUTER_MOST_PARTS at a time: a part is taken out before it is sent again. */
void exchange_queue_begin(ExchangeQueue *queue, int part, const float *own,
                          const IslandsPlace *place);
/* The one that was begun first, once it has ended. What went wrong is in diag. */
Exchange exchange_queue_take(ExchangeQueue *queue, Diag *diag);

#endif
