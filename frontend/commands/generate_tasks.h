/* More texts than are written side by side: where one ends the next begins, and each is what it
 * would be alone. */
#ifndef FRONTEND_COMMANDS_GENERATE_TASKS_H
#define FRONTEND_COMMANDS_GENERATE_TASKS_H

#include "frontend/commands/generate_writer.h"

typedef struct WriterTasks {
    int64_t count;
    void *user;
    /* What a task's text begins as, a fork; *state: of its random numbers. */
    GenerateText (*begin)(void *user, int64_t task, uint64_t *state);
    int64_t (*most)(void *user, int64_t task); /* tokens that it gets at most */
    /* ended: by itself. False: reported, and no more is written. */
    bool (*end)(void *user, int64_t task, const GenerateText *text, bool ended);
    /* How many of those that this process writes are written; may be NULL. */
    void (*tell)(void *user, int64_t n_written, int64_t n);
} WriterTasks;

/* Those of this process alone. */
bool generate_tasks(GenerateWriter *writer, const WriterTasks *tasks, Diag *diag);

/* The same by all processes, where the plan has several: each group of ranks writes its share, and
 * when all are written every process is told of all of them, in order. */
bool generate_tasks_together(GenerateWriter *writer, const WriterTasks *tasks, Diag *diag);

#endif
