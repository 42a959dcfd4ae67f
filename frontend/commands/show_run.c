#include "frontend/commands/show_run.h"

#include "frontend/commands/run_chart.h"
#include "planner/show/show_html.h"

#include <math.h>

/* The panels of the page, in order; loss and val_loss share the first. */
static const struct {
    int series;
    bool from_zero;
} PANELS[] = {{S_LOSS, false},       {S_VAL_LOSS_EMA, false}, {S_GRAD_NORM, true},
              {S_NOISE_SCALE, true}, {S_LOSS_SCALE, true},    {S_LR, true},
              {S_SPEED, true}};

static void put_panel(StrBuf *out, const RunCurve *curve, const Series *series, bool from_zero) {
    const Series *loss = &curve->series[S_LOSS], *val = &curve->series[S_VAL_LOSS];
    bool both = series == loss && val->count > 0;
    const ChartLine lines[] = {{curve, series, "training", false, NULL},
                               {curve, val, "validation", true, NULL}};
    if (series->count == 0) return;
    strbuf_put(out, "<section><h2>");
    html_put(out, series->title);
    if (both) strbuf_put(out, " <span class=key>points: validation</span>");
    strbuf_put(out, "</h2>\n");
    run_chart_put(out, series->title, lines, both ? 2 : 1, from_zero);
    strbuf_put(out, "</section>\n");
}

/* Losses of each source, where validation has several. */
static void put_sources(StrBuf *out, const RunCurve *curve) {
    const NamedSeries *sources = &curve->sources;
    ChartLine lines[MOST_NAMED];
    char classes[MOST_NAMED][32];
    int n = 0;
    for (int i = 0; i < sources->count; i++) {
        if (sources->items[i].count == 0) continue;
        snprintf(classes[n], sizeof(classes[n]), "source hue%d", n % N_HUES);
        lines[n] =
            (ChartLine){curve, &sources->items[i], classes[n], true, sources->items[i].title};
        n++;
    }
    if (n == 0) return;
    strbuf_put(out, "<section><h2>Validation loss by source");
    for (int i = 0; i < n; i++) {
        strbuf_printf(out, " <span class=\"key hue%d\">", i % N_HUES);
        html_put(out, lines[i].series->key);
        strbuf_printf(out, " %.4f</span>", lines[i].series->last);
    }
    strbuf_put(out, "</h2>\n");
    run_chart_put(out, "by source", lines, n, false);
    strbuf_put(out, "</section>\n");
}

static void put_page(StrBuf *out, const RunCurve *curve) {
    run_chart_begin_page(out, "Training run");
    strbuf_put(out, "<dl>\n");
    run_chart_put_figure(out, "steps", "%.0f", curve->series[S_STEP].last);
    run_chart_put_figure(out, "loss, last step", "%.4f", curve->series[S_LOSS].last);
    run_chart_put_figure(out, "validation loss", "%.4f", curve->series[S_VAL_LOSS].last);
    if (curve->series[S_VAL_LOSS_EMA].count > 0) {
        run_chart_put_figure(out, "of averaged weights", "%.4f",
                             curve->series[S_VAL_LOSS_EMA].last);
    }
    if (curve->n_spikes > 0) run_chart_put_figure(out, "spikes left out", "%.0f", curve->n_spikes);
    run_chart_put_figure(out, "tokens per second", "%.0f", curve->series[S_SPEED].last);
    run_chart_put_figure(out, "seconds in steps", "%.1f", run_curve_seconds(curve));
    if (curve->series[S_LOSS_SCALE].count > 0) {
        run_chart_put_figure(out, "steps skipped", "%.0f", curve->n_skipped);
    }
    strbuf_put(out, "</dl>\n");
    for (size_t i = 0; i < sizeof(PANELS) / sizeof(PANELS[0]); i++) {
        put_panel(out, curve, &curve->series[PANELS[i].series], PANELS[i].from_zero);
        if (PANELS[i].series == S_LOSS) put_sources(out, curve);
    }
    for (int i = 0; i < curve->values.count; i++) {
        put_panel(out, curve, &curve->values.items[i], false);
    }
    run_norms_put(out, &curve->norms, curve->arena);
    run_heat_put(out, &curve->heat, curve->arena);
    strbuf_put(out, "</html>\n");
}

bool show_run_html(StrBuf *out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    const RunCurve *curve = run_curve_read(arena, path, diag);
    if (curve) put_page(out, curve);
    arena_destroy(arena);
    return curve != NULL;
}
