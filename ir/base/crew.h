/* Threads that share one piece of work: whoever is free takes the next items. */
#ifndef IR_BASE_CREW_H
#define IR_BASE_CREW_H

enum { MOST_CREW = 64 };

/* Items [begin, end) of the work; `worker`, below crew_size, counts the threads that take part. */
typedef void CrewWork(void *context, int worker, int begin, int end);

/* How many threads `n_threads` are: 0 is one for each core. */
int crew_size(int n_threads);

/* Does all items, `run` at a time, and returns when they are done. What an item becomes must not
 * depend on the others. */
void crew_run(int n_items, int run, int n_threads, CrewWork *work, void *context);

#endif
