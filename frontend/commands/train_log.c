#include "frontend/commands/train_log.h"

#include <inttypes.h>
#include <stdio.h>

/* NULL: there is none. */
static bool open_lines(const char *path, int64_t step, RunLog **out, Diag *diag) {
    if (path) *out = step ? run_log_continue(path, step, diag) : run_log_open(path, diag);
    return !path || *out;
}

/* Events first: a run log that is opened has lost the lines of an earlier run. */
bool train_log_open(const CliArgs *args, int64_t step, TrainLog *out, Diag *diag) {
    const char *folder = cli_text(args, OPT_TENSORBOARD, NULL);
    const char *path = cli_text(args, OPT_LOG, NULL);
    *out = (TrainLog){.lines_path = path, .answers_path = cli_text(args, OPT_ANSWERS_LOG, NULL)};
    if (folder && !(out->events = event_file_open(folder, step, diag))) return false;
    return open_lines(path, step, &out->lines, diag) &&
           open_lines(out->answers_path, step, &out->answers, diag);
}

static void tell_failure(TrainLog *log, const char *what, int64_t step, Progress *progress,
                         const Diag *diag) {
    progress_finish(progress);
    diag_print(diag, stderr);
    fprintf(stderr, "no %s from step %" PRId64 " on%s\n", what, step,
            log->ends ? "" : "; training goes on");
    log->failed = true;
}

static void write_line(TrainLog *log, const StepMetrics *metrics, Progress *progress) {
    Diag *diag = diag_create();
    if (!run_log_write(log->lines, metrics, diag)) {
        tell_failure(log, "log", metrics->step, progress, diag);
        run_log_close(log->lines);
        log->lines = NULL;
    }
    diag_destroy(diag);
}

static void write_event(TrainLog *log, const StepMetrics *metrics, Progress *progress) {
    Diag *diag = diag_create();
    if (!event_file_write(log->events, metrics, diag)) {
        tell_failure(log, "events for TensorBoard", metrics->step, progress, diag);
        event_file_close(log->events);
        log->events = NULL;
    }
    diag_destroy(diag);
}

void train_log_write(TrainLog *log, const StepMetrics *metrics, Progress *progress) {
    if (log->lines) write_line(log, metrics, progress);
    if (log->events) write_event(log, metrics, progress);
}

void train_log_write_answers(TrainLog *log, int64_t step, const StrBuf *lines, Progress *progress) {
    Diag *diag = diag_create();
    if (log->answers && !run_log_write_text(log->answers, lines->text, lines->length, diag)) {
        tell_failure(log, "answers", step, progress, diag);
        run_log_close(log->answers);
        log->answers = NULL;
    }
    diag_destroy(diag);
}

void train_log_print(const TrainLog *log) {
    if (log->lines) printf("wrote   %s\n", log->lines_path);
    if (log->answers) printf("wrote   %s\n", log->answers_path);
    if (log->events) printf("wrote   %s\n", event_file_path(log->events));
}

void train_log_close(TrainLog *log) {
    run_log_close(log->lines);
    run_log_close(log->answers);
    event_file_close(log->events);
    *log = (TrainLog){0};
}
