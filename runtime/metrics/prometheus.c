#include "runtime/metrics/prometheus.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_head(StrBuf *out, const char *name, const char *type, const char *help) {
    strbuf_printf(out, "# HELP perilune_%s %s\n# TYPE perilune_%s %s\n", name, help, name, type);
}

static void put_value(StrBuf *out, double value) {
    if (isnan(value)) {
        strbuf_put(out, "NaN\n");
    } else if (isinf(value)) {
        strbuf_put(out, value > 0 ? "+Inf\n" : "-Inf\n");
    } else {
        strbuf_printf(out, "%.9g\n", value);
    }
}

/* A label's value: backslash, quote and line end are written with a backslash. */
static void put_label(StrBuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '\\' || *text == '"') strbuf_put(out, "\\");
        if (*text == '\n') {
            strbuf_put(out, "\\n");
        } else {
            strbuf_put_bytes(out, text, 1);
        }
    }
}

/* With the run's name, since a node may have several. */
static void put_name(StrBuf *out, const RunStatus *status, const char *name) {
    strbuf_printf(out, "perilune_%s{run=\"", name);
    put_label(out, status->run);
    strbuf_put(out, "\"} ");
}

/* Those that end in _total count on. */
static const char *type_of(const char *name) {
    return strstr(name, "_total") ? "counter" : "gauge";
}

static void put(StrBuf *out, const RunStatus *status, const char *name, const char *help,
                double value) {
    put_head(out, name, type_of(name), help);
    put_name(out, status, name);
    put_value(out, value);
}

/* Exactly, as 9 digits of a count that grows would stand still. */
static void put_count(StrBuf *out, const RunStatus *status, const char *name, const char *help,
                      int64_t count) {
    put_head(out, name, type_of(name), help);
    put_name(out, status, name);
    strbuf_printf(out, "%" PRId64 "\n", count);
}

/* 9 digits would be off by seconds. */
static void put_time(StrBuf *out, const RunStatus *status, const char *name, const char *help,
                     double since_1970) {
    put_head(out, name, "gauge", help);
    put_name(out, status, name);
    strbuf_printf(out, "%.3f\n", since_1970);
}

/* One of the states is 1, all others 0: alerts ask for one by its name. */
static void put_state(StrBuf *out, const RunStatus *status) {
    static const char *const NAMES[N_RUN_STATES] = {
        [RUN_RUNNING] = "running",
        [RUN_FINISHED] = "finished",
        [RUN_STOPPED] = "stopped",
        [RUN_FAILED] = "failed",
    };
    put_head(out, "run_state", "gauge", "1 for what the run is, 0 for what it is not.");
    for (int i = 0; i < N_RUN_STATES; i++) {
        strbuf_put(out, "perilune_run_state{run=\"");
        put_label(out, status->run);
        strbuf_put(out, "\",model=\"");
        put_label(out, status->model);
        strbuf_printf(out, "\",state=\"%s\"} %d\n", NAMES[i], status->state == (RunState)i);
    }
}

static void put_step(StrBuf *out, const StepMetrics *last, const RunStatus *status) {
    put(out, status, "loss", "Mean loss of the last step, nats per label.", last->loss);
    put(out, status, "grad_norm", "Norm of the last step's gradients, before clipping.",
        last->grad_norm);
    put(out, status, "learning_rate", "Learning rate of the last step.", last->lr);
    put(out, status, "step_seconds", "Wall time of the last step.", last->seconds);
    put(out, status, "tokens_per_second", "Tokens of the last step over its wall time.",
        last->tokens_per_s);
    put_count(out, status, "tokens_total", "Tokens that this process' run has trained on.",
              status->n_tokens);
    if (status->flops > 0 && last->seconds > 0) {
        put(out, status, "model_flops_per_second",
            "Model FLOP of the last step over its wall time; over the devices' peak it is MFU.",
            status->flops / last->seconds);
    }
    if (last->noise_scale > 0) {
        put(out, status, "gradient_noise_scale",
            "The batch, in samples, that takes twice the fewest steps and samples.",
            last->noise_scale);
    }
    if (last->has_loss_scale) {
        put(out, status, "loss_scale", "Loss scale of the next step.", last->loss_scale);
        put_count(out, status, "skipped_steps_total",
                  "Steps whose gradients were not finite under the loss scale.", last->n_skipped);
    }
    put_count(out, status, "spikes_total", "Steps left out for their gradients' norm.",
              last->n_spikes);
}

void prometheus_format(StrBuf *out, const RunStatus *status) {
    put_state(out, status);
    put_count(out, status, "step",
              "The last step that was done, counted from the beginning of the run.", status->step);
    if (status->n_samples) {
        put_count(out, status, "samples_total",
                  "Samples taken, with those that an earlier process took.", status->n_samples);
    }
    put(out, status, "planned_steps", "Steps that the run is to take.", (double)status->n_steps);
    put(out, status, "ranks", "Ranks of the plan.", (double)status->n_ranks);
    put_time(out, status, "updated_timestamp_seconds", "When this file was written, since 1970.",
             status->now_seconds);
    if (status->last) put_step(out, status->last, status);
    if (!isnan(status->val_loss)) {
        put(out, status, "validation_loss", "Mean loss of the last validation.", status->val_loss);
    }
    if (!isnan(status->val_loss_ema)) {
        put(out, status, "validation_loss_ema",
            "The same with the average of the weights in their place.", status->val_loss_ema);
    }
    if (status->memory_bytes > 0) {
        put(out, status, "resident_memory_bytes", "Memory of the first process that is resident.",
            (double)status->memory_bytes);
    }
    if (status->n_meetings > 0) {
        put_count(out, status, "outer_step", "Meetings of islands so far.", status->n_meetings);
        put_count(out, status, "outer_islands", "Islands in the last meeting's mean.",
                  status->n_islands);
    }
    if (status->n_meetings > 0 && status->has_outer_hidden) {
        put(out, status, "outer_wait_seconds_total",
            "Time that training stood still for meetings behind it.", status->outer_wait_seconds);
    }
    if (status->slowest_ratio > 0) {
        put(out, status, "slowest_rank_ratio",
            "The slowest rank's own work over the median of those alike, as last measured.",
            status->slowest_ratio);
    }
    if (status->checkpoint_step >= 0) {
        put(out, status, "checkpoint_step", "Step of the last checkpoint that was written.",
            (double)status->checkpoint_step);
        put_time(out, status, "checkpoint_timestamp_seconds", "When that was, since 1970.",
                 status->checkpoint_seconds);
        put(out, status, "checkpoint_age_seconds", "How old that was when this file was written.",
            status->now_seconds - status->checkpoint_seconds);
    }
}
