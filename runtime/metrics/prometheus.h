/* The state of a run in Prometheus' text format (version 0.0.4), for node_exporter's textfile
 * collector or anything else that reads files: each metric with HELP and TYPE, then its value. What
 * is not known is left out; what is no number is NaN, which the format has.
 */
#ifndef RUNTIME_METRICS_PROMETHEUS_H
#define RUNTIME_METRICS_PROMETHEUS_H

#include "ir/base/strbuf.h"
#include "runtime/metrics/step_metrics.h"

typedef enum RunState { RUN_RUNNING, RUN_FINISHED, RUN_STOPPED, RUN_FAILED, N_RUN_STATES } RunState;

typedef struct RunStatus {
    const char *run, *model; /* labels: of every sample, and of the run's state */
    RunState state;
    const StepMetrics *last; /* NULL: no step yet */
    int64_t step, n_samples; /* done and taken so far, by whatever process; 0 samples: not told */
    int64_t n_steps;         /* that the run is to take */
    double val_loss;         /* the last ones; NaN: none yet */
    double val_loss_ema;
    int64_t n_tokens;          /* of this process' steps */
    double flops;              /* of the model, a step; forward and backward, nothing twice */
    int64_t memory_bytes;      /* that this process has resident; 0: not known */
    int64_t n_ranks;           /* of the plan */
    int64_t n_meetings;        /* of islands; 0: none */
    int n_islands;             /* in the last of them */
    bool has_outer_hidden;     /* meetings go on behind training: */
    double outer_wait_seconds; /* that it has stood still for them, of this process */
    double slowest_ratio;      /* as last measured; 0: not */
    int64_t checkpoint_step;   /* of the last that was written; -1: none */
    double checkpoint_seconds; /* when, since 1970 */
    double now_seconds;        /* since 1970 */
} RunStatus;

void prometheus_format(StrBuf *out, const RunStatus *status);

#endif
