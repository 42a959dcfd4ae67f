/* Threads that share one piece of work: whoever is free takes the next items. */
#ifndef IR_BASE_CREW_H
#define IR_BASE_CREW_H

enum { MOST_CREW = 64 };

typedef struct Crew {
    int n_threads; /* 0: one for each core */
    /* Told now and then, on the thread that calls crew_run, how many items are begun; or NULL. */
    void (*progress)(void *user, const char *what, int n_begun, int n_items);
    void *user;
} Crew;

/* Items [begin, end) of the work; `worker`, below crew_size, counts the threads that take part. */
typedef void CrewWork(void *context, int worker, int begin, int end);

int crew_size(const Crew *crew);

/* Does all items, `run` at a time, and returns when they are done. What an item becomes must not
 * depend on the others. `what` they are, for who is told: "layouts priced". */
void crew_run(const Crew *crew, const char *what, int n_items, int run, CrewWork *work,
              void *context);

#endif
