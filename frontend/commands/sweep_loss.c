#include "frontend/commands/sweep_loss.h"

#include <math.h>
#include <string.h>

static double last_before(const Series *series, int n) {
    while (n > 0 && isnan(series->values[n - 1])) n--;
    return n > 0 ? series->values[n - 1] : NAN;
}

/* Steps that were left out have no loss. NaN: none has. */
static double mean_of_end(const Series *series, int n) {
    double sum = 0;
    int n_summed = 0;
    for (int i = n - (n + 9) / 10; i < n; i++) {
        if (!isfinite(series->values[i])) continue;
        sum += series->values[i];
        n_summed++;
    }
    return n_summed ? sum / n_summed : NAN;
}

SweepLoss sweep_loss_of(const RunCurve *curve, int64_t step, const char *by) {
    SweepLoss loss = {.counts = true, .val = NAN, .end = NAN};
    int n = curve->n_steps;
    while (n > 0 && curve->series[S_STEP].values[n - 1] > (double)step) n--;
    if (!by) {
        loss.end = mean_of_end(&curve->series[S_LOSS], n);
        loss.val = last_before(&curve->series[S_VAL_LOSS], n);
    }
    for (int i = 0; by && i < curve->values.count; i++) {
        const Series *series = &curve->values.items[i];
        if (strcmp(series->key, by) != 0) continue;
        const double mean = mean_of_end(series, n);
        loss.end = loss.val = -(isnan(mean) ? last_before(series, n) : mean);
    }
    return loss;
}

bool sweep_losses(const SweepLoss *of, int n, double *out) {
    int n_counting = 0, n_validated = 0;
    for (int i = 0; i < n; i++) {
        n_counting += of[i].counts;
        n_validated += of[i].counts && isfinite(of[i].val);
    }
    const bool validated = n_counting > 0 && n_validated == n_counting;
    for (int i = 0; i < n; i++) {
        out[i] = !of[i].counts ? (double)NAN : validated ? of[i].val : of[i].end;
    }
    return validated;
}

void sweep_loss_report_absent(const char *by, Diag *diag) {
    diag_error(diag, NO_LOC,
               "--by %s: no run's log has such a value so far: see \"values\" in log.jsonl; some "
               "come with --eval-every",
               by);
}
