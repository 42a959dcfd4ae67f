#include "runtime/cuda/driver/abort_watch.h"

#include "ir/base/diag.h"
#include "ir/base/temporary.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct AbortWatch {
    int rank;
    double seconds;
    const char *why;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ended; /* under the lock */
};

static void end_process(const AbortWatch *watch) {
    fflush(stdout);
    if (watch->why) fprintf(stderr, "perilune: %s\n", watch->why);
    fprintf(stderr,
            "perilune: rank %d: NCCL did not give up its communicators within %.3g s: the process "
            "ends without\n",
            watch->rank, watch->seconds);
    temporary_remove_all();
    _exit(EXIT_FAILURE);
}

static void *run_watch(void *user) {
    AbortWatch *watch = user;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)watch->seconds + 1;
    pthread_mutex_lock(&watch->lock);
    while (!watch->ended) {
        int error = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
        if (error == ETIMEDOUT && !watch->ended) end_process(watch);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

AbortWatch *abort_watch_begin(int rank, double seconds, const char *why) {
    sigset_t all, before;
    AbortWatch *watch = malloc(sizeof(*watch));
    if (!watch) BUG("out of memory");
    *watch = (AbortWatch){
        .rank = rank, .seconds = seconds, .why = why, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&watch->thread, NULL, run_watch, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return watch;
    pthread_cond_destroy(&watch->changed);
    free(watch);
    return NULL;
}

void abort_watch_end(AbortWatch *watch) {
    if (!watch) return;
    pthread_mutex_lock(&watch->lock);
    watch->ended = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->changed);
    free(watch);
}
