/* A run log as text, and its figures as JSON. */
#include "frontend/commands/plot.h"
#include "frontend/commands/run_figures.h"
#include "frontend/commands/show_run.h"
#include "ir/base/json.h"
#include "ir/base/utf8.h"
#include "planner/show/show_facts.h"

#include <math.h>

/* Names are the log's, which is not trusted: of a terminal's commands question marks are left. */
static const char *shown(const char *name, char text[MOST_NAME_BYTES + 1]) {
    snprintf(text, MOST_NAME_BYTES + 1, "%s", name);
    utf8_keep_printable(text);
    return text;
}

static double first_of(const RunCurve *curve, const Series *series) {
    for (int i = 0; i < curve->n_steps; i++) {
        if (isfinite(series->values[i])) return series->values[i];
    }
    return NAN;
}

/* "steps     120, 1920 samples, 123 k tokens; 24.5 s in steps" */
static void put_steps(StrBuf *out, const RunCurve *curve, const RunFigures *figures) {
    char text[UNIT_TEXT];
    strbuf_printf(out, "steps     %.0f", figures->last_step);
    if (isfinite(curve->samples)) strbuf_printf(out, ", %.0f samples", curve->samples);
    if (isfinite(curve->samples) && isfinite(curve->row_tokens)) {
        strbuf_printf(out, ", %s tokens", unit_count(curve->samples * curve->row_tokens, text));
    }
    strbuf_printf(out, "; %.1f s in steps", figures->seconds);
    if (isfinite(figures->tokens_per_s)) {
        strbuf_printf(out, ", %s tokens/s (the median)", unit_count(figures->tokens_per_s, text));
    }
    strbuf_put(out, "\n");
    if (isfinite(curve->parameters)) {
        strbuf_printf(out, "model     %s parameters", unit_count(curve->parameters, text));
        if (isfinite(curve->active_parameters)) {
            strbuf_printf(out, ", of which a token meets %s",
                          unit_count(curve->active_parameters, text));
        }
        strbuf_put(out, "\n");
    }
}

static void put_losses(StrBuf *out, const RunCurve *curve, const RunFigures *figures) {
    if (isfinite(figures->loss)) {
        strbuf_printf(out, "loss      %.4f at first, %.4f in the last step",
                      first_of(curve, &curve->series[S_LOSS]), figures->loss);
    } else {
        strbuf_put(out, "loss      no number");
    }
    if (isfinite(figures->end_loss)) {
        strbuf_printf(out, ", %.4f over the last tenth", figures->end_loss);
    }
    strbuf_put(out, "\n");
    if (isfinite(figures->val_loss)) {
        strbuf_printf(out, "validated %.4f at last", figures->val_loss);
        if (figures->best_val_loss < figures->val_loss) {
            strbuf_printf(out, ", %.4f at step %.0f", figures->best_val_loss, figures->best_at);
        }
        if (curve->series[S_VAL_LOSS_EMA].count) {
            strbuf_printf(out, "; %.4f with averaged weights", curve->series[S_VAL_LOSS_EMA].last);
        }
        strbuf_put(out, "\n");
    }
}

/* Whose squares the gradients' norm was mostly made of, the last time that was told. */
static void put_norms(StrBuf *out, const RunNorms *norms) {
    enum { MOST_TOLD = 3 };
    const NormColumn *last = norms->n_columns ? &norms->columns[norms->n_columns - 1] : NULL;
    double total = 0, before = INFINITY;
    for (int r = 0; last && r < last->n_rows; r++) {
        if (!isnan(last->rows[r].gradient)) total += (double)last->rows[r].gradient;
    }
    if (!(total > 0)) return;
    for (int k = 0; k < MOST_TOLD; k++) {
        char name[MOST_NAME_BYTES + 1];
        int most = -1;
        for (int r = 0; r < last->n_rows; r++) {
            const double square = (double)last->rows[r].gradient;
            if (!(square < before)) continue;
            if (most < 0 || square > (double)last->rows[most].gradient) most = r;
        }
        if (most < 0) break;
        before = (double)last->rows[most].gradient;
        if (k == 0) strbuf_printf(out, "gradients at step %.0f", last->step);
        strbuf_printf(out, k ? ", %.0f %% in %s" : ": %.0f %% of their square in %s",
                      100 * before / total, shown(norms->names[most], name));
    }
    strbuf_put(out, "\n");
}

/* "noise     a scale of 310 samples (19.8 k tokens), give or take 20 %" */
static void put_noise(StrBuf *out, const RunCurve *curve) {
    const double scale = curve->series[S_NOISE_SCALE].last;
    const double error = curve->series[S_NOISE_ERROR].last;
    char text[UNIT_TEXT];
    if (!isfinite(scale)) {
        if (curve->series[S_NOISE_SCALE].count)
            strbuf_put(out, "noise     of the last measurements too much to tell a scale\n");
        return;
    }
    strbuf_printf(out, "noise     a scale of %.3g samples", scale);
    if (isfinite(curve->row_tokens)) {
        strbuf_printf(out, " (%s tokens)", unit_count(scale * curve->row_tokens, text));
    }
    if (isfinite(error))
        strbuf_printf(out, ", give or take %.*f %%", error < 0.1 ? 1 : 0, 100 * error);
    strbuf_put(out, "\n");
}

static void put_rest(StrBuf *out, const RunCurve *curve) {
    const Series *norm = &curve->series[S_GRAD_NORM], *rate = &curve->series[S_LR];
    if (norm->count) {
        strbuf_printf(out, "grad norm %.4g at first, %.4g in the last step, %.4g in the median\n",
                      first_of(curve, norm), norm->last, series_median(curve->arena, curve, norm));
    }
    if (rate->count) strbuf_printf(out, "lr        %.3g in the last step\n", rate->last);
    put_noise(out, curve);
    if (curve->n_spikes) strbuf_printf(out, "spikes    %d, left out\n", curve->n_spikes);
    if (curve->n_skipped) {
        strbuf_printf(out, "skipped   %d, not finite under the loss scale\n", curve->n_skipped);
    }
    for (int i = 0; i < curve->values.count; i++) {
        const Series *value = &curve->values.items[i];
        char name[MOST_NAME_BYTES + 1];
        if (!value->count) continue;
        strbuf_printf(out, "%-9s %.6g at last\n", shown(value->key, name), value->last);
    }
    put_norms(out, &curve->norms);
}

bool show_run_text(StrBuf *out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    const RunCurve *curve = run_curve_read(arena, path, diag);
    if (curve) {
        const RunFigures figures = run_figures(arena, curve);
        put_steps(out, curve, &figures);
        put_losses(out, curve, &figures);
        put_rest(out, curve);
        if (curve->series[S_LOSS].count > 1) strbuf_put(out, "\n");
        plot_put(out, curve->series[S_STEP].values, curve->series[S_LOSS].values, curve->n_steps,
                 plot_is_utf8());
    }
    arena_destroy(arena);
    return curve != NULL;
}

bool show_run_json(StrBuf *out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    const RunCurve *curve = run_curve_read(arena, path, diag);
    if (curve) {
        const RunFigures figures = run_figures(arena, curve);
        strbuf_put(out, "{\"file\":");
        json_put_text(out, path);
        run_figures_put(out, &figures);
        run_figures_put_number(out, "parameters", curve->parameters);
        run_figures_put_number(out, "active_parameters", curve->active_parameters);
        run_figures_put_number(out, "samples", curve->samples);
        run_figures_put_number(out, "row_tokens", curve->row_tokens);
        run_figures_put_number(out, "grad_norm", curve->series[S_GRAD_NORM].last);
        run_figures_put_number(out, "noise_scale", curve->series[S_NOISE_SCALE].last);
        strbuf_printf(out, ",\"spikes\":%d,\"skipped\":%d}\n", curve->n_spikes, curve->n_skipped);
    }
    arena_destroy(arena);
    return curve != NULL;
}
