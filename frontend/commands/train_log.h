/* What a run writes while it takes its steps: --log's lines, --tensorboard's events,
 * --answers-log's lines, some or none. One that cannot be written on, as on a full disk, costs
 * itself and not the run, whose end says so again. Of several processes the first one writes. */
#ifndef FRONTEND_COMMANDS_TRAIN_LOG_H
#define FRONTEND_COMMANDS_TRAIN_LOG_H

#include "frontend/commands/cli.h"
#include "runtime/metrics/event_file.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/run_log.h"

typedef struct TrainLog {
    RunLog *lines;     /* NULL: not asked for, or failed */
    EventFile *events; /* the same */
    RunLog *answers;   /* the same */
    const char *lines_path, *answers_path;
    bool failed; /* any */
    bool ends;   /* the run does, with the step that is written */
} TrainLog;

/* For a run that goes on after `step`, or begins: 0. False: reported; close it all the same. */
bool train_log_open(const CliArgs *args, int64_t step, TrainLog *out, Diag *diag);
/* Errors go to stderr, below the progress line. */
void train_log_write(TrainLog *log, const StepMetrics *metrics, Progress *progress);
/* Lines of answers that step `step` learned from, each beginning {"step":N; likewise. */
void train_log_write_answers(TrainLog *log, int64_t step, const StrBuf *lines, Progress *progress);
/* `wrote FILE`, for each that is whole. */
void train_log_print(const TrainLog *log);
void train_log_close(TrainLog *log);

#endif
