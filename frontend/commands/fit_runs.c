#include "frontend/commands/fit_runs.h"

#include "frontend/commands/cli.h"
#include "frontend/commands/run_curve.h"
#include "frontend/validate/csv.h"

#include <math.h>
#include <string.h>

static const double MOST_COUNT = 1e24, MOST_LOSS = 1e3;

/* What is read so far. */
typedef struct Reading {
    Arena *arena;
    Diag *diag;
    FitRun runs[FIT_MOST_RUNS];
    double val_losses[FIT_MOST_RUNS]; /* of logs; NaN: it has none */
    int n, n_logs, n_validated, n_warm;
} Reading;

static bool add_run(Reading *reading, SourceLoc loc, FitRun run) {
    if (reading->n == FIT_MOST_RUNS) {
        diag_error(reading->diag, loc, "a law is fitted to at most %d runs", FIT_MOST_RUNS);
        return false;
    }
    reading->val_losses[reading->n] = NAN;
    reading->runs[reading->n++] = run;
    return true;
}

/* --- logs --- */

static double mean_of_end(const RunCurve *curve) {
    const Series *series = &curve->series[S_LOSS];
    double sum = 0;
    int first = curve->n_steps - (curve->n_steps + 9) / 10;
    for (int i = first; i < curve->n_steps; i++) sum += series->values[i]; /* NaN stays */
    return sum / (curve->n_steps - first);
}

/* Does the run end with more than half of its highest rate? */
static bool is_warm(const RunCurve *curve) {
    const Series *rate = &curve->series[S_LR];
    double most = 0;
    for (int i = 0; i < curve->n_steps; i++) {
        if (rate->values[i] > most) most = rate->values[i];
    }
    return rate->count > 0 && rate->last > most / 2;
}

static bool read_log(Reading *reading, const char *path) {
    const RunCurve *curve = run_curve_read(reading->arena, path, reading->diag);
    SourceLoc loc = {path, 0};
    if (!curve) return false;
    double active = curve->active_parameters, val = curve->series[S_VAL_LOSS].last;
    FitRun run = {.name = path,
                  .parameters = isfinite(active) ? active : curve->parameters,
                  .tokens = curve->samples * curve->row_tokens,
                  .loss = mean_of_end(curve)};
    if (!isfinite(run.parameters) || !isfinite(run.tokens)) {
        diag_error(reading->diag, loc,
                   "the log does not say \"%s\", as those that train --log writes now do; a .csv "
                   "with columns parameters,tokens,loss can say it",
                   !isfinite(run.parameters)      ? "parameters"
                   : !isfinite(curve->row_tokens) ? "row_tokens"
                                                  : "samples");
        return false;
    }
    if (!isfinite(run.loss) || !(run.loss > 0) || (isfinite(val) && !(val > 0))) {
        diag_error(reading->diag, loc,
                   "its last losses are no losses of a finished run: leave it out");
        return false;
    }
    if (!add_run(reading, loc, run)) return false;
    reading->val_losses[reading->n - 1] = val;
    reading->n_logs++;
    reading->n_validated += isfinite(val);
    reading->n_warm += is_warm(curve);
    return true;
}

/* --- tables --- */

static const char *const COLUMNS[] = {"parameters", "tokens", "loss"};
enum { N_COLUMNS = 3 };

static bool check_header(const CsvTable *table, Diag *diag) {
    for (int c = 0; c < N_COLUMNS; c++) {
        if (csv_column(table, COLUMNS[c]) >= 0) continue;
        diag_error(diag, (SourceLoc){table->path, table->header_line},
                   "there is no column '%s': the first line must name parameters, tokens and loss",
                   COLUMNS[c]);
        return false;
    }
    return true;
}

static bool read_row(Reading *reading, const CsvTable *table, const CsvRow *row) {
    SourceLoc loc = {table->path, row->line};
    double values[N_COLUMNS];
    for (int c = 0; c < N_COLUMNS; c++) {
        const char *text = row->fields[csv_column(table, COLUMNS[c])];
        double most = c == 2 ? MOST_LOSS : MOST_COUNT;
        bool good = cli_parse_real(text, &values[c]) && values[c] > 0 && values[c] <= most;
        if (good && (c == 2 || values[c] >= 1)) continue;
        diag_error(reading->diag, loc, "%s '%.40s' is not a number %s %g", COLUMNS[c], text,
                   c == 2 ? "above 0 and up to" : "from 1 to", most);
        return false;
    }
    int name = csv_column(table, "name");
    bool named = name >= 0 && row->fields[name][0];
    return add_run(
        reading, loc,
        (FitRun){.name = named ? row->fields[name]
                               : arena_printf(reading->arena, "%s:%d", table->path, row->line),
                 .parameters = values[0],
                 .tokens = values[1],
                 .loss = values[2]});
}

static bool read_table(Reading *reading, const char *path) {
    const CsvTable *table = csv_read(reading->arena, path, check_header, reading->diag);
    bool good = table != NULL;
    for (int i = 0; good && i < table->n_rows; i++)
        good = read_row(reading, table, &table->rows[i]);
    return good;
}

/* --- all of them --- */

static void note(Reading *reading, FitReport *report) {
    const char **warnings = ARENA_ARRAY(reading->arena, const char *, 2);
    int n = 0;
    if (reading->n_warm > 0) {
        warnings[n++] =
            arena_printf(reading->arena,
                         "%d of %d logs end with more than half of their highest learning rate: "
                         "losses are those of finished runs only where the rate has come down",
                         reading->n_warm, reading->n_logs);
    }
    if (reading->n_validated > 0 && reading->n_validated < reading->n_logs) {
        warnings[n++] = arena_printf(reading->arena,
                                     "%d of %d logs have no validation loss: training losses are "
                                     "taken of all",
                                     reading->n_logs - reading->n_validated, reading->n_logs);
    }
    report->warnings = warnings;
    report->n_warnings = n;
}

bool fit_runs_read(Arena *arena, const char *const *paths, int n_paths, FitReport *report,
                   Diag *diag) {
    Reading *reading = ARENA_NEW(arena, Reading);
    reading->arena = arena, reading->diag = diag;
    for (int i = 0; i < n_paths; i++) {
        size_t length = strlen(paths[i]);
        bool is_table = length > 4 && strcmp(paths[i] + length - 4, ".csv") == 0;
        if (!is_table && !is_run_log(paths[i])) {
            diag_error(diag, (SourceLoc){paths[i], 0},
                       "neither a run's log (.jsonl) nor a table of runs (.csv)");
            return false;
        }
        if (!(is_table ? read_table(reading, paths[i]) : read_log(reading, paths[i]))) return false;
    }
    bool validated = reading->n_logs > 0 && reading->n_validated == reading->n_logs;
    for (int i = 0; validated && i < reading->n; i++) {
        if (isfinite(reading->val_losses[i])) reading->runs[i].loss = reading->val_losses[i];
    }
    const char *of_logs =
        validated ? "the logs' last in validation" : "in training, over the logs' last tenth";
    report->runs = reading->runs;
    report->n_runs = reading->n;
    report->losses = reading->n_logs == 0 ? "as given"
                     : reading->n_logs < reading->n
                         ? arena_printf(arena, "as given, and %s", of_logs)
                         : of_logs;
    note(reading, report);
    return true;
}
