#include "frontend/commands/train_norms.h"

#include "ir/base/clock.h"
#include "ir/base/strbuf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

TrainNorms train_norms_from_args(const CliArgs *args) {
    return (TrainNorms){.every = cli_int(args, OPT_NORMS, 0)};
}

static bool is_due(const TrainNorms *norms, int64_t step) {
    return norms->every && step % norms->every == 0;
}

void train_norms_begin(TrainNorms *norms, Engine *engine, int64_t step) {
    norms->engine = engine;
    if (!is_due(norms, step)) return;
    const double begun = clock_now();
    if (!norms->norms) norms->norms = engine_norms_create(engine);
    engine_norms_begin(norms->norms);
    norms->seconds += clock_now() - begun;
}

/* How much of its size a parameter has changed; 0 where that says nothing, as of keys' biases, to
 * which no loss leads and whose steps are of roundings. */
static double pace(const ParameterNorm *norm, double grad_norm) {
    const double least = 1e-6 * grad_norm;
    return norm->weight > 0 && norm->gradient > least ? norm->change / norm->weight : 0;
}

static void keep_fastest(TrainNorms *norms, const StepMetrics *metrics) {
    norms->fastest_pace = 0;
    norms->fastest[0] = '\0';
    for (int i = 0; i < metrics->n_norms; i++) {
        const double of_it = pace(&metrics->norms[i], metrics->grad_norm);
        if (!(of_it > norms->fastest_pace)) continue;
        norms->fastest_pace = of_it;
        snprintf(norms->fastest, sizeof(norms->fastest), "%s", metrics->norms[i].name);
    }
}

/* "spike   step 57 left out: gradients' norm 35.2; 62 % of its square in blocks.3.attn.wq, 20 % in
 * wte" */
static void tell_spike(const StepMetrics *metrics, Progress *progress) {
    enum { MOST_TOLD = 3 };
    const double least_share = 0.1, total = metrics->grad_norm * metrics->grad_norm;
    double before = INFINITY;
    int n_told = 0;
    StrBuf text = strbuf_create();
    strbuf_printf(&text, "spike   step %" PRId64 " left out: gradients' norm %.4g", metrics->step,
                  metrics->grad_norm);
    while (n_told < MOST_TOLD) {
        const ParameterNorm *most = NULL;
        for (int i = 0; i < metrics->n_norms; i++) {
            const ParameterNorm *norm = &metrics->norms[i];
            if (norm->gradient < before && (!most || norm->gradient > most->gradient)) most = norm;
        }
        const double share = most ? most->gradient * most->gradient / total : 0;
        if (!(share >= (n_told ? least_share : 0)) || !most) break;
        strbuf_printf(&text, n_told ? ", %.0f %% in %s" : "; %.0f %% of its square in %s",
                      100 * share, most->name);
        before = most->gradient;
        n_told++;
    }
    strbuf_put(&text, "\n");
    progress_finish(progress);
    fputs(text.text, stderr);
    strbuf_destroy(&text);
}

bool train_norms_end(TrainNorms *norms, StepMetrics *metrics, Progress *progress, bool quiet,
                     Diag *diag) {
    const bool due = is_due(norms, metrics->step);
    if (!due && !metrics->spike) return true;
    const double begun = clock_now();
    if (!norms->norms) norms->norms = engine_norms_create(norms->engine);
    if (!engine_norms_end(norms->norms, metrics->grad_norm, &metrics->norms, &metrics->n_norms,
                          diag)) {
        return false;
    }
    if (due) {
        keep_fastest(norms, metrics);
        norms->n_times++;
        norms->seconds += clock_now() - begun;
    }
    if (metrics->spike && metrics->n_norms && !quiet) tell_spike(metrics, progress);
    return true;
}

void train_norms_print(const TrainNorms *norms) {
    if (!norms->every) return;
    if (norms->n_times == 0) {
        printf("norms   not measured: that takes %" PRId64 " steps\n", norms->every);
        return;
    }
    printf("norms   measured %" PRId64 " time%s, in %.2f s", norms->n_times,
           norms->n_times == 1 ? "" : "s", norms->seconds);
    if (norms->fastest[0]) {
        const double percent = 100 * norms->fastest_pace;
        printf("; the last time %s changed most beside its size, by %.*g %%", norms->fastest,
               percent < 10 ? 2 : 3, percent);
    }
    printf("\n");
}

void train_norms_close(TrainNorms *norms) {
    engine_norms_destroy(norms->norms);
    norms->norms = NULL;
}
