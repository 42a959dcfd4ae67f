#include "frontend/commands/sweep_loss.h"

#include <math.h>

/* How many of the log's lines are up to a step. */
static int count_lines(const RunCurve *curve, int64_t step) {
    int n = curve->n_steps;
    while (n > 0 && curve->series[S_STEP].values[n - 1] > (double)step) n--;
    return n;
}

double sweep_end_loss(const RunCurve *curve, int64_t step) {
    const int n = count_lines(curve, step), first = n - (n + 9) / 10;
    double sum = 0;
    for (int i = first; i < n; i++) sum += curve->series[S_LOSS].values[i]; /* NaN stays */
    return n ? sum / (n - first) : NAN;
}

static double val_loss(const RunCurve *curve, int64_t step) {
    int n = count_lines(curve, step);
    while (n > 0 && isnan(curve->series[S_VAL_LOSS].values[n - 1])) n--;
    return n ? curve->series[S_VAL_LOSS].values[n - 1] : NAN;
}

bool sweep_losses(const RunCurve *const *curves, const int64_t *steps, int n, double *losses) {
    int n_curves = 0, n_validated = 0;
    for (int i = 0; i < n; i++) {
        losses[i] = curves[i] ? val_loss(curves[i], steps[i]) : NAN;
        n_curves += curves[i] != NULL;
        n_validated += isfinite(losses[i]) != 0;
    }
    if (n_curves > 0 && n_validated == n_curves) return true;
    for (int i = 0; i < n; i++) losses[i] = curves[i] ? sweep_end_loss(curves[i], steps[i]) : NAN;
    return false;
}
