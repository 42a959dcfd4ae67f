#include "ir/base/crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

typedef struct Crew {
    CrewWork *work;
    void *context;
    int n_items, run;
    atomic_int next, n_workers;
} Crew;

static void *work_on(void *argument) {
    Crew *crew = argument;
    int worker = atomic_fetch_add(&crew->n_workers, 1);
    for (;;) {
        int begin = atomic_fetch_add(&crew->next, crew->run), end = begin + crew->run;
        if (begin >= crew->n_items) return NULL;
        crew->work(crew->context, worker, begin, end < crew->n_items ? end : crew->n_items);
    }
}

int crew_size(int n_threads) {
    if (n_threads <= 0) n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n_threads < 1 ? 1 : n_threads < MOST_CREW ? n_threads : MOST_CREW;
}

void crew_run(int n_items, int run, int n_threads, CrewWork *work, void *context) {
    Crew crew = {.work = work, .context = context, .n_items = n_items, .run = run};
    pthread_t threads[MOST_CREW];
    int n_started = 0, n_useful = (n_items + run - 1) / run;
    n_threads = crew_size(n_threads);
    for (int i = 1; i < n_threads && i < n_useful; i++) {
        if (pthread_create(&threads[n_started], NULL, work_on, &crew) == 0) n_started++;
    }
    work_on(&crew); /* this thread too: alone, if no other could be started */
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
}
