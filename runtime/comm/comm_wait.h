/* Waiting between threads: an event count over a futex.
 *
 *     waiter                             publisher
 *     wait_until(event, ready, state)    change what ready() reads (release); event_signal(event)
 *
 * No wake-up is lost: a waiter notes the count, tests ready(), and sleeps only while the count is
 * what it noted; a publisher changes the state before the count. Without sleepers a signal makes no
 * system call.
 */
#ifndef RUNTIME_COMM_COMM_WAIT_H
#define RUNTIME_COMM_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CACHE_LINE_BYTES = 64 };

typedef struct WaitEvent {
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t count;
    _Atomic uint32_t n_sleepers;
} WaitEvent;

typedef struct WaitPolicy {
    int n_spins;                /* tests before sleeping; 0 when threads outnumber cores */
    double timeout_s;           /* <= 0: none */
    const atomic_bool *aborted; /* when true every wait ends */
} WaitPolicy;

typedef enum WaitResult { WAIT_READY, WAIT_ABORTED, WAIT_TIMED_OUT } WaitResult;

/* Between tests while spinning. */
void wait_pause(void);
/* Cores that this process may use; *out_id, unless NULL: equal for equal sets of them. */
int wait_own_cores(uint64_t *out_id);
/* For n_threads that wait at the same time on the cores this process may use. */
int wait_choose_spins(int n_threads);

/* ready(state) must read with acquire order what its publisher writes with release order. */
WaitResult wait_until(const WaitPolicy *policy, WaitEvent *event, bool (*ready)(const void *state),
                      const void *state);
void wait_signal(WaitEvent *event);

/* Seconds that the calling thread has waited so far, by its own clock readings: waits that were
 * ready at once count as none. */
double wait_thread_seconds(void);
/* Waits of other kinds count, too. */
void wait_add_seconds(double seconds);

#endif
