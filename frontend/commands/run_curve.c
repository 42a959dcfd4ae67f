#include "frontend/commands/run_curve.h"

#include "ir/base/file.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { RUN_LOG_LIMIT_BYTES = 512 << 20 };

/* Beyond any f32 and any step; with larger numbers the span of an axis could overflow. */
static const double LARGEST = 1e40;

/* Of all series together, 2 GiB: a few bytes of a log can ask for a series as long as the log. */
#define MOST_VALUES ((int64_t)1 << 28)

static void series_init(RunCurve *curve) {
    static const char *const keys[N_SERIES][2] = {
        [S_STEP] = {"step", "Step"},
        [S_LOSS] = {"loss", "Loss (nats per token)"},
        [S_VAL_LOSS] = {"val_loss", "Validation loss"},
        [S_VAL_LOSS_EMA] = {"val_loss_ema", "Validation loss of averaged weights"},
        [S_GRAD_NORM] = {"grad_norm", "Gradient norm"},
        [S_NOISE_SCALE] = {"noise_scale", "Gradient noise scale (a batch, in samples)"},
        [S_NOISE_ERROR] = {"noise_error", "Its standard error, beside itself"},
        [S_LOSS_SCALE] = {"loss_scale", "Loss scale (its logarithm to base 2)"},
        [S_LR] = {"lr", "Learning rate"},
        [S_SPEED] = {"tokens_per_s", "Tokens per second"},
        [S_SECONDS] = {"seconds", "Seconds"},
    };
    for (int s = 0; s < N_SERIES; s++) {
        curve->series[s] = (Series){.key = keys[s][0], .title = keys[s][1], .last = NAN};
    }
}

static Series *find_named(RunCurve *curve, NamedSeries *named, const char *name, int capacity) {
    int i = 0;
    while (i < named->count && strcmp(named->items[i].key, name) != 0) i++;
    if (i < named->count) return &named->items[i];
    if (i == MOST_NAMED || strlen(name) > MOST_NAME_BYTES) return NULL;
    curve->n_values += capacity;
    if (curve->n_values > MOST_VALUES) return NULL;
    Series *series = &named->items[named->count++];
    name = arena_strdup(curve->arena, name);
    *series = (Series){.key = name, .title = name, .last = NAN};
    series->values = ARENA_ARRAY(curve->arena, double, capacity);
    for (int step = 0; step < capacity; step++) series->values[step] = NAN;
    return series;
}

static void read_named(RunCurve *curve, NamedSeries *named, json_t *object, int capacity) {
    const char *name;
    json_t *number;
    json_object_foreach(object, name, number) {
        double value = json_is_number(number) ? json_number_value(number) : NAN;
        Series *series = find_named(curve, named, name, capacity);
        if (!series || !(fabs(value) <= LARGEST)) continue;
        series->values[curve->n_steps] = series->last = value;
        series->count++;
    }
}

/* What is no series: the last one that a line has counts. */
static void read_counts(RunCurve *curve, json_t *object) {
    const struct {
        const char *key;
        double *at;
    } counts[] = {{"parameters", &curve->parameters},
                  {"active_parameters", &curve->active_parameters},
                  {"row_tokens", &curve->row_tokens},
                  {"samples", &curve->samples}};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        json_t *number = json_object_get(object, counts[i].key);
        double value = json_is_number(number) ? json_number_value(number) : 0;
        if (value >= 1 && value <= LARGEST) *counts[i].at = value;
    }
}

static bool read_line(RunCurve *curve, const char *line, size_t length, SourceLoc loc, int capacity,
                      Diag *diag) {
    json_error_t error;
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) {
        diag_error(diag, loc, "no line of a run log: %s", object ? "no object" : error.text);
        json_decref(object);
        return false;
    }
    for (int s = 0; s < N_SERIES; s++) {
        Series *series = &curve->series[s];
        json_t *number = json_object_get(object, series->key);
        double value = json_is_number(number) ? json_number_value(number) : NAN;
        if (s == S_LOSS_SCALE) value = log2(value); /* it doubles and halves */
        if (!(fabs(value) <= LARGEST)) value = NAN;
        if (!series->values) series->values = ARENA_ARRAY(curve->arena, double, capacity);
        series->values[curve->n_steps] = value;
        /* Measured, and found to be all noise: what was known before no longer holds. */
        const bool forgets = s == S_NOISE_SCALE || s == S_NOISE_ERROR;
        if (forgets && json_is_null(number)) series->last = NAN;
        if (!isfinite(value)) continue;
        series->count++;
        series->last = value;
    }
    read_counts(curve, object);
    read_named(curve, &curve->sources, json_object_get(object, "val_losses"), capacity);
    read_named(curve, &curve->values, json_object_get(object, "values"), capacity);
    curve->n_skipped += json_is_true(json_object_get(object, "skipped"));
    curve->n_spikes += json_is_true(json_object_get(object, "spike"));
    const double step = curve->series[S_STEP].values[curve->n_steps];
    const bool fits = run_heat_add(&curve->heat, step, json_object_get(object, "stragglers"),
                                   MOST_VALUES, curve->arena) &&
                      run_norms_add(&curve->norms, step, json_object_get(object, "norms"),
                                    MOST_VALUES, curve->arena);
    json_decref(object);
    if (!fits || curve->n_values > MOST_VALUES) {
        diag_error(diag, loc, "the run log has too many lines for so many losses and values");
        return false;
    }
    const int at = curve->n_steps++;
    const double *steps = curve->series[S_STEP].values;
    if (!isfinite(steps[at])) {
        diag_error(diag, loc, "no line of a run log: it has no \"step\"");
    } else if (at > 0 && steps[at] <= steps[at - 1]) {
        diag_error(diag, loc, "step %.17g comes after step %.17g: are these several runs' logs?",
                   steps[at], steps[at - 1]);
    } else {
        return true;
    }
    return false;
}

static bool read_log(RunCurve *curve, Diag *diag) {
    const char *path = curve->path;
    size_t length;
    char *text = file_read(curve->arena, path, RUN_LOG_LIMIT_BYTES, &length, diag);
    if (!text) return false;
    if (strlen(text) != length) {
        diag_error(diag, (SourceLoc){path, 0}, "is no run log: it has zero bytes");
        return false;
    }
    int n_lines = 0, line = 0; /* n_lines: but for empty ones */
    for (size_t i = 0; i < length; i++) n_lines += text[i] != '\n' && (!i || text[i - 1] == '\n');
    curve->n_values = (int64_t)N_SERIES * n_lines;
    for (size_t at = 0; at < length;) {
        size_t size = strcspn(text + at, "\n");
        SourceLoc loc = {path, ++line};
        /* Whoever wrote it was killed, or still writes. */
        if (at + size == length && size > 0 && text[length - 1] != '}') break;
        if (size > 0 && !read_line(curve, text + at, size, loc, n_lines, diag)) return false;
        at += size + 1;
    }
    if (curve->n_steps > 0) return true;
    diag_error(diag, (SourceLoc){path, 0}, "the run log has no steps yet");
    return false;
}

bool is_run_log(const char *path) {
    size_t length = strlen(path);
    return length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
}

RunCurve *run_curve_read(Arena *arena, const char *path, Diag *diag) {
    RunCurve *curve = ARENA_ARRAY(arena, RunCurve, 1);
    *curve = (RunCurve){.arena = arena,
                        .path = path,
                        .parameters = NAN,
                        .active_parameters = NAN,
                        .row_tokens = NAN,
                        .samples = NAN};
    series_init(curve);
    return read_log(curve, diag) ? curve : NULL;
}

double run_curve_seconds(const RunCurve *curve) {
    const Series *wall = &curve->series[S_SECONDS];
    double seconds = 0;
    for (int i = 0; i < curve->n_steps; i++) {
        if (isfinite(wall->values[i])) seconds += wall->values[i];
    }
    return seconds;
}
