/* A fitted law as text and as JSON:
 *
 *   format      1;  law {E, A, alpha, B, beta};  losses  what they are
 *   intervals   of E, alpha, beta and growth (N_opt as C to this power): the 10th and the 90th
 *               percentile of fits on `draws` resamples; null without any
 *   residuals   median, worst: of |L(N, D) / loss - 1|
 *   held_out    name, loss, predicted from the other runs; null: too few
 *   budgets[]   flops, and the best split of them: parameters, tokens, loss, with _interval each
 *   runs[]      name, parameters, tokens, loss, predicted, residual;  warnings[]
 */
#include "planner/show/show_fit.h"

#include "planner/show/show_facts.h"
#include "planner/show/show_json_put.h"
#include "planner/show/show_lines.h"

#include <math.h>
#include <stdlib.h>

enum { WORST_ROWS = 8, NAME_COLUMNS = 32 };

static double flops_of(const FitRun *run) {
    return LAW_FLOPS * run->parameters * run->tokens;
}

static int largest_run(const FitReport *report) {
    int largest = 0;
    for (int i = 1; i < report->n_runs; i++) {
        if (flops_of(&report->runs[i]) > flops_of(&report->runs[largest])) largest = i;
    }
    return largest;
}

void fit_budgets(const FitReport *report, FitBudget out[FIT_BUDGETS]) {
    const ScalingLaw *law = &report->fit->law;
    double flops = flops_of(&report->runs[largest_run(report)]);
    for (int b = 0; b < FIT_BUDGETS; b++, flops *= 10) {
        double parameters[FIT_DRAWS], tokens[FIT_DRAWS], losses[FIT_DRAWS];
        for (int i = 0; i < law->n_draws; i++) {
            LawOptimum at = law_optimum(&law->draws[i], flops);
            parameters[i] = at.parameters, tokens[i] = at.tokens, losses[i] = at.loss;
        }
        out[b] = (FitBudget){.flops = flops,
                             .best = law_optimum(&law->terms, flops),
                             .parameters = interval_of(parameters, law->n_draws),
                             .tokens = interval_of(tokens, law->n_draws),
                             .loss = interval_of(losses, law->n_draws)};
    }
}

FitIntervals fit_intervals(const ScalingLaw *law) {
    double e[FIT_DRAWS], alpha[FIT_DRAWS], beta[FIT_DRAWS], growth[FIT_DRAWS];
    for (int i = 0; i < law->n_draws; i++) {
        const LawTerms *at = &law->draws[i];
        e[i] = at->e, alpha[i] = at->alpha, beta[i] = at->beta;
        growth[i] = at->beta / (at->alpha + at->beta);
    }
    return (FitIntervals){interval_of(e, law->n_draws), interval_of(alpha, law->n_draws),
                          interval_of(beta, law->n_draws), interval_of(growth, law->n_draws)};
}

/* "0.348 (0.33 to 0.36)" */
static void put_with_interval(StrBuf *out, const char *format, double value, Interval of) {
    strbuf_printf(out, format, value);
    if (!isfinite(of.low)) return;
    strbuf_put(out, " (");
    strbuf_printf(out, format, of.low);
    strbuf_put(out, " to ");
    strbuf_printf(out, format, of.high);
    strbuf_put(out, ")");
}

static void put_law(StrBuf *out, const FitReport *report) {
    const ScalingLaw *law = &report->fit->law;
    char text[LAW_TEXT], a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT];
    strbuf_printf(out, "law        %s, nats a token\n", law_text(&law->terms, text));
    StrBuf line = strbuf_create();
    strbuf_printf(&line, "%d: %s to %s parameters, %s to %s tokens; losses: %s", report->n_runs,
                  unit_count(law->parameters.least, a), unit_count(law->parameters.most, b),
                  unit_count(law->tokens.least, c), unit_count(law->tokens.most, d),
                  report->losses);
    lines_put_wrapped(out, "runs", 11, line.text);
    strbuf_destroy(&line);
    strbuf_printf(out, "residuals  %.2f %% in the median, %.2f %% at most\n",
                  100 * report->fit->median_residual, 100 * report->fit->worst_residual);
}

static void put_held_out(StrBuf *out, const FitReport *report) {
    const LawFit *fit = report->fit;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    if (fit->held_out < 0) return;
    const FitRun *run = &report->runs[fit->held_out];
    StrBuf line = strbuf_create();
    lines_put_name(&line, run->name, NAME_COLUMNS);
    strbuf_printf(&line,
                  ", the largest (%s parameters, %s tokens): %.4f, where a law of the other runs "
                  "says %.4f (%+.2f %%)",
                  unit_count(run->parameters, a), unit_count(run->tokens, b), run->loss,
                  fit->held_out_loss, 100 * (fit->held_out_loss / run->loss - 1));
    lines_put_wrapped(out, "held out", 11, line.text);
    strbuf_destroy(&line);
}

static void put_exponents(StrBuf *out, const FitReport *report) {
    const ScalingLaw *law = &report->fit->law;
    const LawTerms *at = &law->terms;
    FitIntervals of = fit_intervals(law);
    StrBuf line = strbuf_create();
    strbuf_put(&line, "alpha ");
    put_with_interval(&line, "%.3f", at->alpha, of.alpha);
    strbuf_put(&line, ", beta ");
    put_with_interval(&line, "%.3f", at->beta, of.beta);
    strbuf_put(&line, ", E ");
    put_with_interval(&line, "%.3f", at->e, of.e);
    strbuf_put(&line, "; the best N grows as C to the power ");
    put_with_interval(&line, "%.3f", at->beta / (at->alpha + at->beta), of.growth);
    lines_put_wrapped(out, "numbers", 11, line.text);
    strbuf_destroy(&line);
}

/* "2.10 G (1.90 G to 2.40 G)" */
static const char *count_with_interval(double value, Interval of, char *text, size_t size) {
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    if (isfinite(of.low)) {
        snprintf(text, size, "%s (%s to %s)", unit_count(value, a), unit_count(of.low, b),
                 unit_count(of.high, c));
    } else {
        snprintf(text, size, "%s", unit_count(value, a));
    }
    return text;
}

static void put_budgets(StrBuf *out, const FitReport *report) {
    FitBudget budgets[FIT_BUDGETS];
    fit_budgets(report, budgets);
    strbuf_printf(out, "\nThe best of so many FLOPs (C = 6 N D)\n%9s  %-28s%-28s%7s  %s\n", "C",
                  "parameters N", "tokens D", "D/N", "loss");
    for (int b = 0; b < FIT_BUDGETS; b++) {
        const FitBudget *of = &budgets[b];
        char n[128], d[128];
        strbuf_printf(out, "%9.2e  %-28s%-28s%7.3g  ", of->flops,
                      count_with_interval(of->best.parameters, of->parameters, n, sizeof(n)),
                      count_with_interval(of->best.tokens, of->tokens, d, sizeof(d)),
                      of->best.tokens / of->best.parameters);
        put_with_interval(out, "%.3f", of->best.loss, of->loss);
        strbuf_put(out, "\n");
    }
    strbuf_put(out, "The first is what the largest run took. ");
    if (report->fit->law.n_draws > 0) {
        strbuf_printf(out, "In parentheses: 80 %% of %d fits on runs drawn again.",
                      report->fit->law.n_draws);
    }
    strbuf_put(out, "\n");
}

static int *order_by_residual(const FitReport *report) {
    int *order = malloc((size_t)report->n_runs * sizeof(*order));
    if (!order) BUG("out of memory");
    const double *of = report->fit->residuals;
    for (int i = 0; i < report->n_runs; i++) {
        int at = i;
        for (; at > 0 && fabs(of[order[at - 1]]) < fabs(of[i]); at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static void put_runs(StrBuf *out, const FitReport *report) {
    int *order = order_by_residual(report);
    int n = report->n_runs < WORST_ROWS ? report->n_runs : WORST_ROWS;
    strbuf_printf(out, "\n%-*s parameters    tokens    loss     law  residual\n", NAME_COLUMNS,
                  "Furthest from the law");
    for (int i = 0; i < n; i++) {
        const FitRun *run = &report->runs[order[i]];
        char a[UNIT_TEXT], b[UNIT_TEXT];
        double residual = report->fit->residuals[order[i]];
        lines_put_column(out, run->name, NAME_COLUMNS);
        strbuf_printf(out, " %10s %9s %7.4f %7.4f %+7.2f %%\n", unit_count(run->parameters, a),
                      unit_count(run->tokens, b), run->loss, run->loss * (1 + residual),
                      100 * residual);
    }
    if (n < report->n_runs) strbuf_printf(out, "%d of %d are shown.\n", n, report->n_runs);
    free(order);
}

void show_fit_text(StrBuf *out, const FitReport *report) {
    put_law(out, report);
    put_held_out(out, report);
    put_exponents(out, report);
    put_budgets(out, report);
    put_runs(out, report);
    for (int i = 0; i < report->n_warnings; i++) {
        lines_put_wrapped(out, "warning", 11, report->warnings[i]);
    }
}

static void put_interval_json(json_t *object, const char *key, Interval of) {
    if (isfinite(of.low)) {
        json_object_set_new(object, key, json_pack("[f, f]", of.low, of.high));
    } else {
        json_object_set_new(object, key, json_null());
    }
}

static void put_fit_json(json_t *root, const FitReport *report) {
    const LawFit *fit = report->fit;
    const LawTerms *at = &fit->law.terms;
    json_t *law = json_put_new(root, "law", json_object());
    json_put_real(law, "E", at->e);
    json_put_real(law, "A", at->a);
    json_put_real(law, "alpha", at->alpha);
    json_put_real(law, "B", at->b);
    json_put_real(law, "beta", at->beta);
    json_put_name(root, "losses", report->losses);
    FitIntervals of = fit_intervals(&fit->law);
    json_t *intervals = json_put_new(root, "intervals", json_object());
    json_put_int(intervals, "draws", fit->law.n_draws);
    put_interval_json(intervals, "E", of.e);
    put_interval_json(intervals, "alpha", of.alpha);
    put_interval_json(intervals, "beta", of.beta);
    put_interval_json(intervals, "growth", of.growth);
    json_t *residuals = json_put_new(root, "residuals", json_object());
    json_put_real(residuals, "median", fit->median_residual);
    json_put_real(residuals, "worst", fit->worst_residual);
    if (fit->held_out < 0) {
        json_object_set_new(root, "held_out", json_null());
        return;
    }
    json_t *held = json_put_new(root, "held_out", json_object());
    json_put_name(held, "name", report->runs[fit->held_out].name);
    json_put_real(held, "loss", report->runs[fit->held_out].loss);
    json_put_real(held, "predicted", fit->held_out_loss);
}

void show_fit_json(StrBuf *out, const FitReport *report) {
    json_t *root = json_object();
    FitBudget budgets[FIT_BUDGETS];
    json_put_int(root, "format", 1);
    put_fit_json(root, report);
    fit_budgets(report, budgets);
    json_t *list = json_put_new(root, "budgets", json_array());
    for (int b = 0; b < FIT_BUDGETS; b++) {
        json_t *row = json_object();
        json_array_append_new(list, row);
        json_put_real(row, "flops", budgets[b].flops);
        json_put_real(row, "parameters", budgets[b].best.parameters);
        put_interval_json(row, "parameters_interval", budgets[b].parameters);
        json_put_real(row, "tokens", budgets[b].best.tokens);
        put_interval_json(row, "tokens_interval", budgets[b].tokens);
        json_put_real(row, "loss", budgets[b].best.loss);
        put_interval_json(row, "loss_interval", budgets[b].loss);
    }
    list = json_put_new(root, "runs", json_array());
    for (int i = 0; i < report->n_runs; i++) {
        const FitRun *run = &report->runs[i];
        json_t *row = json_object();
        json_array_append_new(list, row);
        json_put_name(row, "name", run->name);
        json_put_real(row, "parameters", run->parameters);
        json_put_real(row, "tokens", run->tokens);
        json_put_real(row, "loss", run->loss);
        json_put_real(row, "predicted", run->loss * (1 + report->fit->residuals[i]));
        json_put_real(row, "residual", report->fit->residuals[i]);
    }
    list = json_put_new(root, "warnings", json_array());
    for (int i = 0; i < report->n_warnings; i++) {
        json_array_append_new(list, json_name(report->warnings[i]));
    }
    json_put_document(out, root);
}
