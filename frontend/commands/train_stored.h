/* What a teacher said of the data, in a file (--teacher-logits), where the plan's loss reads it:
 * samples of a batch -> their words and log-probabilities. */
#ifndef FRONTEND_COMMANDS_TRAIN_STORED_H
#define FRONTEND_COMMANDS_TRAIN_STORED_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"
#include "runtime/data/dataset.h"
#include "runtime/data/stored_logits.h"
#include "runtime/engine.h"

typedef struct TrainStored {
    StoredLogits *file; /* NULL: the plan reads none */
    const char *path;
    StoredShape shape;
    int32_t *words;  /* [global_batch, seq, n_words]: of the batch that was read */
    float *logprobs; /* likewise */
    bool of_val;     /* the file has all that is validated on, too */
    uint64_t name;   /* of its teacher: a hash of what is said of the first window */
} TrainStored;

/* The file, if the plan reads one, against the plan. False: reported. Closed by train_stored_close,
 * either way. */
bool train_stored_open(const CliArgs *args, const Plan *plan, TrainStored *out, Diag *diag);
void train_stored_close(TrainStored *stored);

/* Has the file all windows of the data? Reads their tokens. False: `path` is told of the first that
 * it has not, unless `silent`, or what else is wrong is. */
bool train_stored_has(const TrainStored *stored, const Dataset *data, const char *path, bool silent,
                      Arena *arena, Diag *diag);

/* Sets the name: whatever else a file has, one teacher says the same of the data's first window. */
bool train_stored_name(TrainStored *stored, const Dataset *data, const char *path, Arena *arena,
                       Diag *diag);

/* The row of tokens becomes number `at` of a batch. */
bool train_stored_take(TrainStored *stored, const char *path, int64_t at, const int32_t *tokens,
                       bool validates, Diag *diag);
void train_stored_give(const TrainStored *stored, Engine *engine);
/* What a batch of it takes beside the plan, in each process; the file is mapped. */
int64_t train_stored_bytes(const TrainStored *stored, const Plan *plan);
void train_stored_print(const TrainStored *stored);

#endif
