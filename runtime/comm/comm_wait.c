#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/comm/comm_wait.h"

#include "ir/base/clock.h"
#include "ir/base/host.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One pause takes 10 to 140 cycles by processor: some tens of microseconds in all, about what a
 * sleep and its wake-up cost, in a virtual machine above all. Ranks that do the same work arrive
 * that far apart: with a twentieth of it a small GPT's steps on t=2 took a third longer. */
enum { N_SPINS = 2000 };

void wait_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int wait_own_cores(uint64_t *out_id) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a (Fowler, Noll, Vo) */
    for (size_t i = 0; known && i < sizeof cores; i++) {
        hash = (hash ^ ((const unsigned char *)&cores)[i]) * UINT64_C(0x100000001b3);
    }
    if (out_id) *out_id = hash;
    return host_count_cores();
}

int wait_choose_spins(int n_threads) {
    return n_threads <= wait_own_cores(NULL) ? N_SPINS : 0;
}

static struct timespec time_after(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double whole = floor(fmin(seconds, 1e9)); /* later than any run's end, and it fits time_t */
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)((fmin(seconds, 1e9) - whole) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static _Thread_local double waited_seconds;

double wait_thread_seconds(void) {
    return waited_seconds;
}

void wait_add_seconds(double seconds) {
    waited_seconds += seconds;
}

/* Sleeps while the count is `seen`, until the deadline (absolute, CLOCK_MONOTONIC; NULL: none).
 * False when it has passed. Other early returns are harmless: the caller tests again. */
static bool event_sleep(WaitEvent *event, uint32_t seen, const struct timespec *deadline) {
    atomic_fetch_add(&event->n_sleepers, 1);
    long rc = syscall(SYS_futex, &event->count, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
                      deadline, NULL, FUTEX_BITSET_MATCH_ANY);
    bool in_time = rc == 0 || errno != ETIMEDOUT;
    atomic_fetch_sub(&event->n_sleepers, 1);
    return in_time;
}

static WaitResult wait_for(const WaitPolicy *policy, WaitEvent *event,
                           bool (*ready)(const void *state), const void *state) {
    struct timespec deadline;
    bool has_deadline = false, in_time = true;
    for (int n_spins = 0;; n_spins++) {
        uint32_t seen = atomic_load(&event->count);
        if (atomic_load_explicit(policy->aborted, memory_order_acquire)) return WAIT_ABORTED;
        if (ready(state)) return WAIT_READY;
        if (!in_time) return WAIT_TIMED_OUT;
        if (n_spins < policy->n_spins) {
            wait_pause();
            continue;
        }
        if (policy->timeout_s > 0 && !has_deadline) {
            deadline = time_after(policy->timeout_s);
            has_deadline = true;
        }
        in_time = event_sleep(event, seen, has_deadline ? &deadline : NULL);
    }
}

WaitResult wait_until(const WaitPolicy *policy, WaitEvent *event, bool (*ready)(const void *state),
                      const void *state) {
    if (ready(state) && !atomic_load_explicit(policy->aborted, memory_order_acquire)) {
        return WAIT_READY; /* without looking at a clock */
    }
    double start = clock_now();
    WaitResult result = wait_for(policy, event, ready, state);
    waited_seconds += clock_now() - start;
    return result;
}

/* Sequentially consistent on purpose: with the count changed before n_sleepers is read, and
 * n_sleepers raised before the kernel compares the count, one of the two sides sees the other. */
void wait_signal(WaitEvent *event) {
    atomic_fetch_add(&event->count, 1);
    if (atomic_load(&event->n_sleepers) > 0) {
        syscall(SYS_futex, &event->count, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
    }
}
