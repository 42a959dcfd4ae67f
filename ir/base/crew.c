#include "ir/base/crew.h"

#include "ir/base/host.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct Shift {
    CrewWork *work;
    void *context;
    int n_items, run;
    atomic_int next, n_workers;
} Shift;

/* One run of items; false: there are none left. */
static bool take_run(Shift *shift, int worker) {
    int begin = atomic_fetch_add(&shift->next, shift->run), end = begin + shift->run;
    if (begin >= shift->n_items) return false;
    shift->work(shift->context, worker, begin, end < shift->n_items ? end : shift->n_items);
    return true;
}

static void *work_on(void *argument) {
    Shift *shift = argument;
    int worker = atomic_fetch_add(&shift->n_workers, 1);
    while (take_run(shift, worker)) continue;
    return NULL;
}

int crew_size(const Crew *crew) {
    int n = crew->n_threads > 0 ? crew->n_threads : host_count_cores();
    return n < MOST_CREW ? n : MOST_CREW;
}

void crew_run(const Crew *crew, const char *what, int n_items, int run, CrewWork *work,
              void *context) {
    Shift shift = {.work = work, .context = context, .n_items = n_items, .run = run};
    pthread_t threads[MOST_CREW];
    int n_started = 0, n_useful = (n_items + run - 1) / run, n_threads = crew_size(crew);
    for (int i = 1; i < n_threads && i < n_useful; i++) {
        if (pthread_create(&threads[n_started], NULL, work_on, &shift) == 0) n_started++;
    }
    /* This thread too: alone, if no other could be started. */
    int worker = atomic_fetch_add(&shift.n_workers, 1);
    while (take_run(&shift, worker)) {
        int begun = atomic_load(&shift.next);
        if (crew->progress) {
            crew->progress(crew->user, what, begun < n_items ? begun : n_items, n_items);
        }
    }
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
}
