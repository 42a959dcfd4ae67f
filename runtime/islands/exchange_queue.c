#include "runtime/islands/exchange_queue.h"

#include "ir/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct ExchangeQueue {
    Islands *islands;
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t changed;
    Exchange items[OUTER_MOST_PARTS]; /* a ring: item i is at i % OUTER_MOST_PARTS */
    int64_t n_begun, n_ended, n_taken;
    bool is_broken, ends;
    Diag *diag; /* of the thread */
};

/* One meeting, without the lock: the caller does not touch an item that has not ended. */
static void hold(ExchangeQueue *queue, Exchange *item) {
    const double begun = clock_now();
    bool wants_state;
    item->result = islands_meet(queue->islands, item->part, item->own, &item->place, &item->report,
                                queue->diag);
    item->seconds = clock_now() - begun;
    item->is_waited = islands_count_waiting(queue->islands, &wants_state) > 0;
}

static void *hold_all(void *user) {
    ExchangeQueue *queue = user;
    pthread_mutex_lock(&queue->lock);
    while (!queue->ends) {
        if (queue->n_ended == queue->n_begun) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        Exchange *item = &queue->items[queue->n_ended % OUTER_MOST_PARTS];
        if (queue->is_broken) {
            item->result = ISLANDS_STOPPED;
        } else {
            pthread_mutex_unlock(&queue->lock);
            hold(queue, item);
            pthread_mutex_lock(&queue->lock);
            queue->is_broken = item->result != ISLANDS_MET;
        }
        queue->n_ended++;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

ExchangeQueue *exchange_queue_create(Islands *islands, Diag *diag) {
    ExchangeQueue *queue = calloc(1, sizeof *queue);
    if (!queue) BUG("out of memory");
    queue->islands = islands;
    queue->diag = diag_create();
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    sigset_t all, before; /* signals are for the thread that trains */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool fine = pthread_create(&queue->thread, NULL, hold_all, queue) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (fine) return queue;
    diag_error(diag, NO_LOC, "--outer-overlap: no thread can be started: too many processes?");
    diag_destroy(queue->diag);
    free(queue);
    return NULL;
}

void exchange_queue_destroy(ExchangeQueue *queue) {
    if (!queue) return;
    islands_abort(queue->islands, true);
    pthread_mutex_lock(&queue->lock);
    queue->ends = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    islands_abort(queue->islands, false);
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    diag_destroy(queue->diag);
    free(queue);
}

void exchange_queue_begin(ExchangeQueue *queue, int part, const float *own,
                          const IslandsPlace *place) {
    pthread_mutex_lock(&queue->lock);
    if (queue->n_begun - queue->n_taken == OUTER_MOST_PARTS) BUG("a part is sent twice");
    queue->items[queue->n_begun++ % OUTER_MOST_PARTS] =
        (Exchange){.part = part, .own = own, .place = *place};
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

Exchange exchange_queue_take(ExchangeQueue *queue, Diag *diag) {
    pthread_mutex_lock(&queue->lock);
    if (queue->n_taken == queue->n_begun) BUG("nothing was begun");
    islands_behind(queue->islands, false);
    while (queue->n_ended == queue->n_taken) pthread_cond_wait(&queue->changed, &queue->lock);
    islands_behind(queue->islands, true);
    const Exchange item = queue->items[queue->n_taken++ % OUTER_MOST_PARTS];
    if (queue->n_taken == queue->n_begun) queue->is_broken = false;
    /* The thread reports where it fails, and then only waits. */
    if (item.result == ISLANDS_FAILED) diag_append(diag, queue->diag);
    pthread_mutex_unlock(&queue->lock);
    return item;
}
