#include "frontend/commands/train_metrics.h"

#include "ir/base/clock.h"
#include "ir/base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Prometheus asks every 15 seconds or more seldom. */
static const double INTERVAL_SECONDS = 5;

static double since_1970(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 0: the system does not say. */
static int64_t resident_bytes(void) {
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*d %lld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* dir/gpt.prom: gpt. */
static const char *name_run(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return dot && dot > name ? arena_strndup(arena, name, (size_t)(dot - name)) : name;
}

static void write_file(TrainMetrics *metrics, Progress *progress) {
    StrBuf text = strbuf_create();
    Diag *diag = diag_create();
    metrics->status.now_seconds = since_1970();
    metrics->status.memory_bytes = resident_bytes();
    prometheus_format(&text, &metrics->status);
    metrics->written = clock_now();
    const bool failed = !file_write(metrics->path, text.text, text.length, diag);
    if (failed != metrics->failed && progress) progress_finish(progress);
    if (failed && !metrics->failed) {
        diag_print(diag, stderr);
        fprintf(stderr, "no metrics after step %lld%s\n", (long long)metrics->status.step,
                metrics->status.state == RUN_RUNNING ? "; training goes on, and tries again" : "");
    } else if (!failed && metrics->failed) {
        fprintf(stderr, "metrics are written again, after step %lld\n",
                (long long)metrics->status.step);
    }
    metrics->failed = failed;
    diag_destroy(diag);
    strbuf_destroy(&text);
}

void train_metrics_open(const CliArgs *args, const Plan *plan, int64_t n_steps,
                        const TrainingPlace *place, TrainMetrics *out) {
    *out = (TrainMetrics){.path = cli_text(args, OPT_METRICS, NULL)};
    out->status = (RunStatus){.run = out->path ? name_run(args->arena, out->path) : "",
                              .model = plan->model,
                              .state = RUN_RUNNING,
                              .step = place->step,
                              .n_steps = n_steps,
                              .n_samples = place->samples,
                              .n_ranks = mesh_rank_count(&plan->mesh),
                              .flops = plan->model_flops,
                              .val_loss = NAN,
                              .val_loss_ema = NAN,
                              .checkpoint_step = -1};
    if (out->path) write_file(out, NULL);
}

void train_metrics_step(TrainMetrics *metrics, const StepMetrics *step, double n_tokens,
                        Progress *progress) {
    if (!metrics->path) return;
    RunStatus *status = &metrics->status;
    metrics->last = *step; /* of which only numbers are read */
    status->last = &metrics->last;
    status->step = step->step;
    status->n_samples = step->n_samples;
    status->n_tokens = (int64_t)n_tokens;
    if (step->has_val_loss) status->val_loss = step->val_loss;
    if (step->has_val_loss_ema) status->val_loss_ema = step->val_loss_ema;
    if (step->outer_step > 0) {
        status->n_meetings = step->outer_step;
        status->n_islands = step->outer_islands;
        status->has_outer_hidden = step->has_outer_hidden;
        status->outer_wait_seconds += step->outer_wait_seconds;
    }
    if (step->slowest_ratio > 0) status->slowest_ratio = step->slowest_ratio;
    if (clock_now() - metrics->written >= INTERVAL_SECONDS) {
        write_file(metrics, progress);
    }
}

void train_metrics_checkpoint(TrainMetrics *metrics, int64_t step) {
    if (step < 0 || step == metrics->status.checkpoint_step) return;
    metrics->status.checkpoint_step = step;
    metrics->status.checkpoint_seconds = since_1970();
}

void train_metrics_end(TrainMetrics *metrics, RunState state, Progress *progress) {
    metrics->status.state = state;
    if (metrics->path) write_file(metrics, progress);
}

void train_metrics_print(const TrainMetrics *metrics) {
    if (metrics->path && !metrics->failed) printf("wrote   %s\n", metrics->path);
}
