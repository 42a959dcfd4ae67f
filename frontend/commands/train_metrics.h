/* --metrics FILE: the run's state for Prometheus, replaced as a whole every few seconds and at the
 * beginning and end. A file that cannot be written is told of once and tried again, and costs
 * itself and not the run. */
#ifndef FRONTEND_COMMANDS_TRAIN_METRICS_H
#define FRONTEND_COMMANDS_TRAIN_METRICS_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"
#include "runtime/engine.h"
#include "runtime/metrics/progress.h"
#include "runtime/metrics/prometheus.h"

typedef struct TrainMetrics {
    const char *path; /* NULL: not asked for */
    RunStatus status;
    StepMetrics last;
    double written; /* clock_now of the last file, or of the last try */
    bool failed;    /* the last one */
} TrainMetrics;

/* A run that begins, or goes on from `place`; it is the first of several processes. */
void train_metrics_open(const CliArgs *args, const Plan *plan, int64_t n_steps,
                        const TrainingPlace *place, TrainMetrics *out);
/* After a step; checkpoint_step: the last that was written by it, -1: none. */
void train_metrics_step(TrainMetrics *metrics, const StepMetrics *step, double n_tokens,
                        Progress *progress);
void train_metrics_checkpoint(TrainMetrics *metrics, int64_t step);
/* What has become of the run. */
void train_metrics_end(TrainMetrics *metrics, RunState state, Progress *progress);
void train_metrics_print(const TrainMetrics *metrics);

#endif
