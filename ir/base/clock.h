/* A clock that only goes forward: how long something took, and when waiting ends. */
#ifndef IR_BASE_CLOCK_H
#define IR_BASE_CLOCK_H

#include <time.h>

/* Seconds from some moment on, the same for all threads and processes of the machine. */
static inline double clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double clock_now_us(void) {
    return 1e6 * clock_now();
}

#endif
