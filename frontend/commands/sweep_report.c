#include "frontend/commands/sweep_report.h"

#include "frontend/commands/text_columns.h"
#include "planner/show/show_json_put.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *sweep_state_name(SweepState state) {
    static const char *const NAMES[] = {
        [SWEEP_DONE] = "done",     [SWEEP_STOPPED] = "stopped", [SWEEP_BEGUN] = "begun",
        [SWEEP_FAILED] = "failed", [SWEEP_WAITING] = "waiting",
    };
    return NAMES[state];
}

/* --- rows --- */

/* Its figures; of many long runs the curves themselves would take much memory. */
static void read_log(Arena *arena, const char *path, const char *by, bool keep, SweepRow *row) {
    Diag *why = diag_create();
    Arena *log = keep ? arena : arena_create();
    const RunCurve *curve = run_curve_read(log, arena_strdup(log, path), why);
    if (curve) {
        row->has_log = true;
        row->figures = run_figures(log, curve);
        row->losses = sweep_loss_of(curve, INT64_MAX, by);
        row->parameters = curve->parameters;
        row->tokens = curve->samples * curve->row_tokens;
        row->curve = keep ? curve : NULL;
        row->figures.curve = row->curve;
    } else {
        row->why = arena_strdup(arena, diag_text(why));
    }
    if (!keep) arena_destroy(log);
    diag_destroy(why);
}

static bool read_row(Arena *arena, const Sweep *sweep, int r, bool keep, SweepRow *row,
                     Diag *diag) {
    const SweepRun *run = &sweep->runs[r];
    SweepResult result;
    const char *path = sweep_file(arena, run, "log.jsonl");
    *row = (SweepRow){.run = run, .state = SWEEP_WAITING, .loss = NAN, .why = ""};
    if (!sweep_result_read(arena, run, &result, diag)) return false;
    if (access(path, F_OK) == 0) read_log(arena, path, sweep->by, keep, row);
    if (!result.known) { /* a log that has no step yet is none */
        if (row->has_log) row->state = SWEEP_BEGUN;
        row->why = "";
        return true;
    }
    row->state = result.stopped ? SWEEP_STOPPED : SWEEP_DONE;
    if (result.exit_code == 0 && row->has_log) return true;
    row->state = SWEEP_FAILED;
    if (result.exit_code) {
        row->why = sweep_failure(arena, run, result.exit_code);
    } else if (!*row->why) {
        row->why = "it has no log";
    }
    const char *end = strchr(row->why, '\n');
    if (end) row->why = arena_strndup(arena, row->why, (size_t)(end - row->why));
    return true;
}

/* Those that are done say which loss it is. */
static void set_losses(Arena *arena, SweepReport *report) {
    const int n = report->sweep->n_runs;
    SweepLoss *of = ARENA_ARRAY(arena, SweepLoss, n);
    double *losses = ARENA_ARRAY(arena, double, n);
    for (int i = 0; i < n; i++) {
        const SweepRow *row = &report->rows[i];
        if (row->state == SWEEP_DONE || report->n_done == 0) of[i] = row->losses;
    }
    report->validated = sweep_losses(of, n, losses);
    for (int i = 0; i < n; i++) {
        SweepRow *row = &report->rows[i];
        if (row->has_log) row->loss = report->validated ? row->losses.val : row->losses.end;
    }
}

/* NaN comes last. */
static int compare_losses(double a, double b) {
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_rows(const void *x, const void *y) {
    const SweepRow *a = x, *b = y;
    int order = (int)a->state - (int)b->state;
    if (!order && a->state != SWEEP_DONE && a->has_log && b->has_log) { /* further is better */
        order = (a->figures.last_step < b->figures.last_step) -
                (a->figures.last_step > b->figures.last_step);
    }
    if (!order) order = compare_losses(a->loss, b->loss);
    return order ? order : strcmp(a->run->name, b->run->name);
}

/* --- groups --- */

static bool same_but_seed(const SweepReport *report, const SweepRun *a, const SweepRun *b) {
    for (int k = 0; k < report->sweep->n_keys; k++) {
        const char *x = a->settings[k], *y = b->settings[k];
        if (k == report->seed || (!x && !y)) continue;
        if (!x || !y || strcmp(x, y) != 0) return false;
    }
    return true;
}

static int compare_groups(const void *x, const void *y) {
    const SweepGroup *a = x, *b = y;
    int order = compare_losses(a->mean, b->mean);
    return order ? order : strcmp(a->run->name, b->run->name);
}

static void find_groups(Arena *arena, SweepReport *report) {
    const int n = report->sweep->n_runs;
    report->groups = ARENA_ARRAY(arena, SweepGroup, n);
    for (int i = 0; i < n; i++) {
        const SweepRun *run = report->rows[i].run;
        int g = 0;
        while (g < report->n_groups && !same_but_seed(report, report->groups[g].run, run)) g++;
        if (g < report->n_groups) continue;
        SweepGroup *group = &report->groups[report->n_groups++];
        double sum = 0, squares = 0;
        *group = (SweepGroup){.run = run, .mean = NAN, .deviation = NAN};
        for (int pass = 0; pass < 2; pass++) {
            for (int r = 0; r < n; r++) {
                const SweepRow *row = &report->rows[r];
                if (row->state != SWEEP_DONE || !isfinite(row->loss)) continue;
                if (!same_but_seed(report, row->run, run)) continue;
                if (pass == 0) sum += row->loss, group->n++;
                if (pass == 1) squares += (row->loss - group->mean) * (row->loss - group->mean);
            }
            if (pass == 0 && group->n) group->mean = sum / group->n;
        }
        if (group->n > 1) group->deviation = sqrt(squares / (group->n - 1));
    }
    if (report->n_groups) {
        qsort(report->groups, (size_t)report->n_groups, sizeof(SweepGroup), compare_groups);
    }
}

const SweepReport *sweep_report_read(Arena *arena, const char *dir, bool curves, Diag *diag) {
    SweepReport *report = ARENA_NEW(arena, SweepReport);
    const Sweep *sweep = report->sweep = sweep_folder_read(arena, dir, diag);
    if (!sweep) return NULL;
    report->rows = ARENA_ARRAY(arena, SweepRow, sweep->n_runs);
    report->seed = -1;
    for (int i = 0; i < sweep->n_runs; i++) {
        SweepRow *row = &report->rows[i];
        if (!read_row(arena, sweep, i, curves, row, diag)) return NULL;
        report->n_done += row->state == SWEEP_DONE;
        report->n_failed += row->state == SWEEP_FAILED;
        report->has_val |= row->has_log && isfinite(row->figures.val_loss);
    }
    set_losses(arena, report);
    qsort(report->rows, (size_t)sweep->n_runs, sizeof(SweepRow), compare_rows);
    for (int k = 0; k < sweep->n_keys; k++) {
        if (strcmp(sweep->keys[k], "seed") == 0) report->seed = k;
    }
    if (report->seed >= 0) find_groups(arena, report);
    return report;
}

double sweep_shown(const SweepReport *report, double loss) {
    return report->sweep->by ? -loss : loss;
}

const char *sweep_measure(const SweepReport *report) {
    return report->sweep->by ? report->sweep->by : report->validated ? "val loss" : "loss";
}

/* --- text --- */

const char *sweep_row_note(Arena *arena, const SweepRow *row) {
    switch (row->state) {
    case SWEEP_DONE: return "";
    case SWEEP_STOPPED: return "stopped: others were better";
    case SWEEP_BEGUN:
        return arena_printf(arena, "not done: %.0f of %" PRId64 " steps", row->figures.last_step,
                            row->run->n_steps);
    case SWEEP_FAILED: return arena_printf(arena, "failed: %s", row->why);
    case SWEEP_WAITING: return "not begun";
    }
    return "";
}

const char *sweep_group_name(Arena *arena, const SweepReport *report, const SweepGroup *group) {
    SweepRun run = *group->run;
    const int n = report->sweep->n_keys;
    run.settings = ARENA_ARRAY(arena, const char *, n + 1);
    for (int k = 0; k < n; k++) {
        if (k != report->seed) run.settings[k] = group->run->settings[k];
    }
    const char *name = sweep_describe(arena, report->sweep, &run);
    return *name ? name : "all";
}

static const char *number(Arena *arena, const char *format, double value) {
    char text[64];
    snprintf(text, sizeof(text), fabs(value) < 1e7 ? format : "%.4g", value);
    return isfinite(value) ? arena_strdup(arena, text) : "-";
}

static void put_rows(StrBuf *out, Arena *arena, const SweepReport *report) {
    const Sweep *sweep = report->sweep;
    const int n_columns = sweep->n_keys + 6 + report->has_val + (sweep->by != NULL);
    const char **cells = ARENA_ARRAY(arena, const char *, (sweep->n_runs + 1) * n_columns);
    const char **cell = cells;
    *cell++ = "run";
    for (int k = 0; k < sweep->n_keys; k++) *cell++ = sweep->keys[k];
    *cell++ = "step", *cell++ = "loss";
    if (report->has_val) *cell++ = "val loss";
    if (sweep->by) *cell++ = sweep->by;
    *cell++ = "tokens/s", *cell++ = "seconds", *cell++ = "";
    for (int i = 0; i < sweep->n_runs; i++) {
        const SweepRow *row = &report->rows[i];
        const RunFigures *f = &row->figures;
        *cell++ = row->run->name;
        for (int k = 0; k < sweep->n_keys; k++) {
            *cell++ = row->run->settings[k] ? row->run->settings[k] : "-";
        }
        *cell++ = number(arena, "%.0f", row->has_log ? f->last_step : (double)NAN);
        *cell++ = number(arena, "%.4f", row->has_log ? f->end_loss : (double)NAN);
        if (report->has_val) {
            *cell++ = number(arena, "%.4f", row->has_log ? f->val_loss : (double)NAN);
        }
        if (sweep->by) *cell++ = number(arena, "%.4f", sweep_shown(report, row->loss));
        *cell++ = number(arena, "%.0f", row->has_log ? f->tokens_per_s : (double)NAN);
        *cell++ = number(arena, "%.1f", row->has_log ? f->seconds : (double)NAN);
        *cell++ = sweep_row_note(arena, row);
    }
    text_columns_put(out, cells, sweep->n_runs + 1, n_columns, 1, true);
}

void sweep_report_text(StrBuf *out, Arena *arena, const SweepReport *report) {
    put_rows(out, arena, report);
    const bool says = report->validated || report->sweep->by;
    strbuf_printf(out,
                  "loss: the mean of the last tenth of steps in training; the best first%s%s%s\n",
                  says ? ", by " : "", says ? sweep_measure(report) : "",
                  report->sweep->by ? ", the greatest" : "");
    if (report->seed < 0) return;
    strbuf_put(out, "\nover seeds\n");
    const char **cells = ARENA_ARRAY(arena, const char *, 4 * (report->n_groups + 1));
    const char **cell = cells;
    *cell++ = "settings", *cell++ = "runs";
    *cell++ = sweep_measure(report), *cell++ = "+-";
    for (int g = 0; g < report->n_groups; g++) {
        const SweepGroup *group = &report->groups[g];
        *cell++ = sweep_group_name(arena, report, group);
        *cell++ = number(arena, "%.0f", group->n);
        *cell++ = number(arena, "%.4f", sweep_shown(report, group->mean));
        *cell++ = number(arena, "%.4f", group->deviation);
    }
    text_columns_put(out, cells, report->n_groups + 1, 4, 1, false);
}

/* --- JSON --- */

static json_t *settings_json(const SweepReport *report, const SweepRun *run, bool seed) {
    json_t *object = json_object();
    for (int k = 0; k < report->sweep->n_keys; k++) {
        if (!run->settings[k] || (!seed && k == report->seed)) continue;
        json_put_name(object, report->sweep->keys[k], run->settings[k]);
    }
    return object;
}

static json_t *row_json(Arena *arena, const SweepReport *report, const SweepRow *row) {
    json_t *object = json_object();
    json_put_name(object, "run", row->run->name);
    json_put_new(object, "settings", settings_json(report, row->run, true));
    json_put_name(object, "state", sweep_state_name(row->state));
    if (row->state == SWEEP_FAILED) json_put_name(object, "why", row->why);
    json_put_name(object, "log", row->has_log ? sweep_file(arena, row->run, "log.jsonl") : "");
    json_put_real(object, "parameters", row->has_log ? row->parameters : (double)NAN);
    json_put_real(object, "tokens", row->has_log ? row->tokens : (double)NAN);
    if (report->sweep->by) {
        json_put_real(object, report->sweep->by, sweep_shown(report, row->loss));
    }
    for (int f = 0; f < N_RUN_FIGURES; f++) {
        json_put_real(object, RUN_FIGURES[f].key,
                      row->has_log ? run_figure(&row->figures, f) : (double)NAN);
    }
    return object;
}

void sweep_report_json(StrBuf *out, Arena *arena, const SweepReport *report) {
    json_t *root = json_object(), *rows = json_array(), *groups = json_array();
    json_put_name(root, "model", report->sweep->model);
    const char *losses = report->validated ? "val_loss" : "end_loss";
    json_put_name(root, "ordered_by", report->sweep->by ? report->sweep->by : losses);
    json_put_int(root, "done", report->n_done);
    json_put_int(root, "failed", report->n_failed);
    for (int i = 0; i < report->sweep->n_runs; i++) {
        json_array_append_new(rows, row_json(arena, report, &report->rows[i]));
    }
    json_put_new(root, "runs", rows);
    for (int g = 0; g < report->n_groups; g++) {
        const SweepGroup *group = &report->groups[g];
        json_t *object = json_object();
        json_put_new(object, "settings", settings_json(report, group->run, false));
        json_put_int(object, "runs", group->n);
        json_put_real(object, "mean", sweep_shown(report, group->mean));
        json_put_real(object, "deviation", group->deviation);
        json_array_append_new(groups, object);
    }
    json_put_new(root, "over_seeds", groups);
    json_put_document(out, root);
}
