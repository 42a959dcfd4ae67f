/* A run's log as series of numbers over its steps. */
#ifndef FRONTEND_COMMANDS_RUN_CURVE_H
#define FRONTEND_COMMANDS_RUN_CURVE_H

#include "frontend/commands/run_heat.h"
#include "frontend/commands/run_norms.h"
#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* One figure of the log. */
typedef struct Series {
    const char *key, *title;
    double *values; /* [n_steps], NaN where the log has none */
    int count;      /* that are finite */
    double last;    /* finite one; NaN: none, or of the noise scale: a null came after it */
} Series;

/* Those of one object of the log, by their keys. */
enum { MOST_NAMED = 32, MOST_NAME_BYTES = 100 };
typedef struct NamedSeries {
    Series items[MOST_NAMED];
    int count;
} NamedSeries;

enum {
    S_STEP,
    S_LOSS,
    S_VAL_LOSS,
    S_VAL_LOSS_EMA,
    S_GRAD_NORM,
    S_NOISE_SCALE,
    S_NOISE_ERROR,
    S_LOSS_SCALE,
    S_LR,
    S_SPEED,
    S_SECONDS,
    N_SERIES
};

typedef struct RunCurve {
    Arena *arena;
    const char *path;
    int n_steps, n_skipped, n_spikes;
    int64_t n_values; /* that there is memory for */
    Series series[N_SERIES];
    /* Of its first line and its last; NaN: the log has none. */
    double parameters, active_parameters, row_tokens, samples;
    NamedSeries sources; /* "val_losses": one for each source of validation data */
    NamedSeries values;  /* "values": what the model tells beside its loss */
    RunHeat heat;        /* "stragglers" */
    RunNorms norms;      /* "norms" */
} RunCurve;

/* By its name: *.jsonl. */
bool is_run_log(const char *path);

/* The log is untrusted: NULL, reported with its line. */
RunCurve *run_curve_read(Arena *arena, const char *path, Diag *diag);

/* Of all steps, 0 where the log has none. */
double run_curve_seconds(const RunCurve *curve);

#endif
