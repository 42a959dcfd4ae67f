#include "frontend/commands/show_run.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "planner/show/show_html.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { RUN_LOG_LIMIT_BYTES = 512 << 20, MAX_POINTS = 600, MAX_TICKS = 20 };

/* Beyond any f32 and any step; with larger numbers the span of an axis could overflow. */
static const double LARGEST = 1e40;

/* One figure of the log: as drawn, at most MAX_POINTS means of neighbouring steps. */
typedef struct Series {
    const char *key, *title;
    double *values; /* [n_steps], NaN where the log has none */
    int count;      /* that are finite */
    double last;    /* finite one */
} Series;

/* Those of one object of the log, by their keys. */
enum { MOST_NAMED = 32, MOST_NAME_BYTES = 100 };
typedef struct NamedSeries {
    Series items[MOST_NAMED];
    int count;
} NamedSeries;

/* Curves in one panel take turns with so many colours. */
enum { N_HUES = 8 };

enum { S_STEP, S_LOSS, S_VAL_LOSS, S_GRAD_NORM, S_LOSS_SCALE, S_LR, S_SPEED, S_SECONDS, N_SERIES };

/* Of all series together, 2 GiB: a few bytes of a log can ask for a series as long as the log. */
#define MOST_VALUES ((int64_t)1 << 28)

typedef struct RunCurve {
    Arena *arena;
    int n_steps, n_skipped;
    int64_t n_values; /* that there is memory for */
    Series series[N_SERIES];
    NamedSeries sources; /* "val_losses": one for each source of validation data */
    NamedSeries values;  /* "values": what the model tells beside its loss */
} RunCurve;

/* The panels of the page, in order; loss and val_loss share the first. */
static const struct {
    int series;
    bool from_zero;
} PANELS[] = {
    {S_LOSS, false}, {S_GRAD_NORM, true}, {S_LOSS_SCALE, true}, {S_LR, true}, {S_SPEED, true}};

static void series_init(RunCurve *curve) {
    static const char *const keys[N_SERIES][2] = {
        [S_STEP] = {"step", "Step"},
        [S_LOSS] = {"loss", "Loss (nats per token)"},
        [S_VAL_LOSS] = {"val_loss", "Validation loss"},
        [S_GRAD_NORM] = {"grad_norm", "Gradient norm"},
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
        if (!isfinite(value)) continue;
        series->count++;
        series->last = value;
    }
    read_named(curve, &curve->sources, json_object_get(object, "val_losses"), capacity);
    read_named(curve, &curve->values, json_object_get(object, "values"), capacity);
    curve->n_skipped += json_is_true(json_object_get(object, "skipped"));
    json_decref(object);
    if (curve->n_values > MOST_VALUES) {
        diag_error(diag, loc, "the run log has too many lines for so many losses and values");
        return false;
    }
    if (isfinite(curve->series[S_STEP].values[curve->n_steps++])) return true;
    diag_error(diag, loc, "no line of a run log: it has no \"step\"");
    return false;
}

static bool read_log(RunCurve *curve, const char *path, Diag *diag) {
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
        if (size > 0 && !read_line(curve, text + at, size, loc, n_lines, diag)) return false;
        at += size + 1;
    }
    if (curve->n_steps > 0) return true;
    diag_error(diag, (SourceLoc){path, 0}, "the run log has no steps yet");
    return false;
}

/* A panel's drawing area in its own coordinates. */
enum { LEFT = 64, TOP = 12, WIDTH = 860, HEIGHT = 220, BOTTOM = 26 };

typedef struct Scale {
    double x_least, x_most, y_least, y_most;
} Scale;

static double scale_x(const Scale *scale, double x) {
    double span = scale->x_most - scale->x_least;
    return LEFT + (span > 0 ? (x - scale->x_least) / span : 0.5) * WIDTH;
}

static double scale_y(const Scale *scale, double y) {
    return TOP + (1 - (y - scale->y_least) / (scale->y_most - scale->y_least)) * HEIGHT;
}

/* Of all n together. */
static Scale fit_scale(const RunCurve *curve, const Series *const *series, int n, bool from_zero) {
    const double *steps = curve->series[S_STEP].values;
    Scale scale = {steps[0], steps[curve->n_steps - 1], INFINITY, -INFINITY};
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < curve->n_steps; i++) {
            double value = series[k]->values[i];
            if (!isfinite(value)) continue;
            scale.y_least = fmin(scale.y_least, value);
            scale.y_most = fmax(scale.y_most, value);
        }
    }
    if (from_zero && scale.y_least > 0) scale.y_least = 0;
    double least_span = fmax(1, fabs(scale.y_least) * 1e-6);
    if (!(scale.y_most > scale.y_least)) scale.y_most = scale.y_least + least_span;
    double margin = (scale.y_most - scale.y_least) * 0.04;
    if (!from_zero) scale.y_least -= margin;
    scale.y_most += margin;
    return scale;
}

/* 1, 2 or 5 times a power of ten: about `count` of them in `span`. */
static double tick_step(double span, int count) {
    double rough = span / count, power = pow(10, floor(log10(rough)));
    double digit = rough / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* Ticks are counted, not added up: beside 1e17 a step of 1 changes nothing. */
static int count_ticks(double least, double most, double step, double *out_first) {
    *out_first = ceil(least / step);
    double count = floor(most / step) - *out_first + 1;
    return count >= 0 && count <= MAX_TICKS ? (int)count : 0;
}

static void put_ticks(StrBuf *out, const Scale *scale) {
    double first, step = tick_step(scale->y_most - scale->y_least, 5);
    int n = count_ticks(scale->y_least, scale->y_most, step, &first);
    for (int i = 0; i < n; i++) {
        double y = (first + i) * step, at = scale_y(scale, y);
        strbuf_printf(out,
                      "<line class=grid x1=%d x2=%d y1=%.1f y2=%.1f />"
                      "<text x=%d y=%.1f text-anchor=end>%.6g</text>\n",
                      LEFT, LEFT + WIDTH, at, at, LEFT - 8, at + 4, fabs(y) < step / 2 ? 0 : y);
    }
    step = fmax(1, tick_step(fmax(1, scale->x_most - scale->x_least), 8));
    n = count_ticks(scale->x_least, scale->x_most, step, &first);
    for (int i = 0; i < n; i++) {
        double x = (first + i) * step;
        strbuf_printf(out, "<text x=%.1f y=%d text-anchor=middle>%.10g</text>\n", scale_x(scale, x),
                      TOP + HEIGHT + 18, x);
    }
}

/* Means over neighbouring steps, so that a page of a million steps stays small. */
static void put_curve(StrBuf *out, const RunCurve *curve, const Series *series, const Scale *scale,
                      const char *class) {
    int width = (curve->n_steps + MAX_POINTS - 1) / MAX_POINTS;
    strbuf_printf(out, "<polyline class=\"%s\" points=\"", class);
    for (int first = 0; first < curve->n_steps; first += width) {
        double x = 0, y = 0;
        int count = 0;
        for (int i = first; i < first + width && i < curve->n_steps; i++) {
            if (!isfinite(series->values[i])) continue;
            x += curve->series[S_STEP].values[i];
            y += series->values[i];
            count++;
        }
        if (count == 0) continue;
        strbuf_printf(out, "%.1f,%.1f ", scale_x(scale, x / count), scale_y(scale, y / count));
    }
    strbuf_put(out, "\" />\n");
}

/* Measured now and then: every one is drawn as a point. */
static void put_points(StrBuf *out, const RunCurve *curve, const Series *series, const Scale *scale,
                       const char *class) {
    int stride = series->count / MAX_POINTS + 1, seen = 0;
    for (int i = 0; i < curve->n_steps; i++) {
        double y = series->values[i], x = curve->series[S_STEP].values[i];
        if (!isfinite(y) || seen++ % stride != 0) continue;
        strbuf_printf(out,
                      "<circle class=\"%s\" cx=%.1f cy=%.1f r=4><title>step %.0f: %.4f</title>"
                      "</circle>\n",
                      class, scale_x(scale, x), scale_y(scale, y), x, y);
    }
}

static void put_panel(StrBuf *out, const RunCurve *curve, const Series *series, bool from_zero) {
    const Series *loss = &curve->series[S_LOSS], *val = &curve->series[S_VAL_LOSS];
    const Series *second = series == loss && val->count > 0 ? val : NULL;
    if (series->count == 0) return;
    Scale scale = fit_scale(curve, (const Series *[]){series, second}, second ? 2 : 1, from_zero);
    strbuf_put(out, "<section><h2>");
    html_put(out, series->title);
    if (second) strbuf_put(out, " <span class=key>points: validation</span>");
    strbuf_printf(out, "</h2>\n<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"",
                  LEFT + WIDTH + 12, TOP + HEIGHT + BOTTOM);
    html_put(out, series->title);
    strbuf_put(out, "\">\n");
    put_ticks(out, &scale);
    put_curve(out, curve, series, &scale, "training");
    if (second && second->count > 1) put_curve(out, curve, second, &scale, "validation");
    if (second) put_points(out, curve, second, &scale, "validation");
    strbuf_put(out, "</svg></section>\n");
}

/* Losses of each source, where validation has several. */
static void put_sources(StrBuf *out, const RunCurve *curve) {
    const NamedSeries *sources = &curve->sources;
    const Series *all[MOST_NAMED];
    int n = 0;
    for (int i = 0; i < sources->count; i++) {
        if (sources->items[i].count > 0) all[n++] = &sources->items[i];
    }
    if (n == 0) return;
    Scale scale = fit_scale(curve, all, n, false);
    strbuf_put(out, "<section><h2>Validation loss by source");
    for (int i = 0; i < n; i++) {
        strbuf_printf(out, " <span class=\"key hue%d\">", i % N_HUES);
        html_put(out, all[i]->key);
        strbuf_printf(out, " %.4f</span>", all[i]->last);
    }
    strbuf_printf(out, "</h2>\n<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"by source\">\n",
                  LEFT + WIDTH + 12, TOP + HEIGHT + BOTTOM);
    put_ticks(out, &scale);
    for (int i = 0; i < n; i++) {
        char class[32];
        snprintf(class, sizeof(class), "source hue%d", i % N_HUES);
        put_curve(out, curve, all[i], &scale, class);
        put_points(out, curve, all[i], &scale, class);
    }
    strbuf_put(out, "</svg></section>\n");
}

static const char PAGE_HEAD[] =
    "<!doctype html>\n<html lang=en><meta charset=utf-8>"
    "<meta name=viewport content=\"width=device-width\"><title>Training run</title>\n<style>\n"
    ":root{color-scheme:light dark;--ink:#1c2330;--dim:#667085;--line:#e4e7ec;--card:#fff;"
    "--page:#f6f7f9;--a:#2f6fde;--b:#d9480f}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--dim:#98a2b3;--line:#2b3342;"
    "--card:#171c26;--page:#0f131a;--a:#6ea3ff;--b:#ff9f5a}}\n"
    "body{margin:0 auto;max-width:1000px;padding:28px 24px;background:var(--page);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:24px;margin:0 0 18px}h2{font-size:15px;margin:0 0 8px}\n"
    ".key{color:var(--b);font-weight:400;margin-left:10px}\n"
    "dl{display:flex;flex-wrap:wrap;gap:12px;margin:0 0 20px}\n"
    "dl div{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:10px 16px}dt{color:var(--dim);font-size:13px}dd{margin:0;font-size:20px;"
    "font-variant-numeric:tabular-nums}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:16px 18px;margin:0 0 16px}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}"
    "svg text{fill:var(--dim);font-size:12px}\n"
    "@media(max-width:700px){body{padding:20px 12px}svg text{font-size:24px}}\n"
    ".grid{stroke:var(--line)}polyline{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    ".training{stroke:var(--a)}.validation{stroke:var(--b)}circle.validation{fill:var(--b)}\n"
    "polyline.validation{stroke-dasharray:5 4;stroke-width:1.5}\n"
    "polyline.source{stroke:currentColor}circle.source{fill:currentColor;r:3}\n"
    ".hue0{color:#2f6fde}.hue1{color:#d9480f}.hue2{color:#2b8a3e}.hue3{color:#ae3ec9}"
    ".hue4{color:#c2255c}.hue5{color:#0b7285}.hue6{color:#a37200}.hue7{color:#868e96}\n"
    "</style>\n";

static void put_figure(StrBuf *out, const char *name, const char *format, double value) {
    char text[64];
    if (!isfinite(value)) return;
    snprintf(text, sizeof(text), format, value);
    strbuf_printf(out, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, text);
}

bool show_run_html(StrBuf *out, const char *path, Diag *diag) {
    RunCurve curve = {.arena = arena_create()};
    series_init(&curve);
    bool good = read_log(&curve, path, diag);
    if (good) {
        double seconds = 0;
        const Series *wall = &curve.series[S_SECONDS];
        for (int i = 0; i < curve.n_steps; i++) {
            if (isfinite(wall->values[i])) seconds += wall->values[i];
        }
        strbuf_put(out, PAGE_HEAD);
        strbuf_put(out, "<h1>Training run</h1>\n<dl>\n");
        put_figure(out, "steps", "%.0f", curve.series[S_STEP].last);
        put_figure(out, "loss, last step", "%.4f", curve.series[S_LOSS].last);
        put_figure(out, "validation loss", "%.4f", curve.series[S_VAL_LOSS].last);
        put_figure(out, "tokens per second", "%.0f", curve.series[S_SPEED].last);
        put_figure(out, "seconds in steps", "%.1f", seconds);
        if (curve.series[S_LOSS_SCALE].count > 0) {
            put_figure(out, "steps skipped", "%.0f", curve.n_skipped);
        }
        strbuf_put(out, "</dl>\n");
        for (size_t i = 0; i < sizeof(PANELS) / sizeof(PANELS[0]); i++) {
            put_panel(out, &curve, &curve.series[PANELS[i].series], PANELS[i].from_zero);
            if (PANELS[i].series == S_LOSS) put_sources(out, &curve);
        }
        for (int i = 0; i < curve.values.count; i++) {
            put_panel(out, &curve, &curve.values.items[i], false);
        }
        strbuf_put(out, "</html>\n");
    }
    arena_destroy(curve.arena);
    return good;
}
