#include "frontend/commands/train_noise.h"

#include "ir/base/clock.h"
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

TrainNoise train_noise_from_args(const CliArgs *args) {
    return (TrainNoise){.every = cli_int(args, OPT_NOISE_SCALE, 0)};
}

bool train_noise_check(const TrainNoise *noise, const Plan *plan, const TrainData *data,
                       bool writes_answers, Diag *diag) {
    const char *why = NULL;
    if (noise->every == 0) return true;
    if (!plan_skips_spikes(plan)) {
        why = "measures by a step whose update is left out, which this plan has none of; plan with "
              "--skip-spikes";
    } else if (writes_answers) {
        why = "not for learning from answers: those to one prompt are no samples by themselves";
    } else if (data->diffusion.by_row) {
        why = "not of rows that are weighed by what is hidden in the whole batch";
    } else if (data->full_batch / train_pairs_batch_rows(&data->pairs) < 2) {
        why = "compares a part of the batch with all of it, and there is one sample; plan with a "
              "larger --global-batch";
    }
    if (why) diag_error(diag, NO_LOC, "train: --noise-scale: %s", why);
    return !why;
}

bool train_noise_begin(TrainNoise *noise, Engine *engine, const TrainData *data, int64_t step,
                       const int32_t *tokens, const int32_t *labels, Diag *diag) {
    noise->small_norm = 0;
    if (!noise->every || step % noise->every != 0) return true;
    const double begun = clock_now();
    if (!noise->noise) {
        noise->noise = engine_noise_create(engine, train_pairs_batch_rows(&data->pairs));
    }
    if (engine_noise_batch(noise->noise) < 2) return true; /* while a ramp begins */
    const bool good = engine_noise_measure(noise->noise, step, step / noise->every, tokens, labels,
                                           &noise->small_norm, diag);
    noise->seconds += clock_now() - begun;
    return good;
}

void train_noise_end(TrainNoise *noise, NoiseScale *scale, StepMetrics *metrics) {
    if (noise->every == 0) {
        *scale = (NoiseScale){0};
        return;
    }
    const double norm = noise->small_norm;
    /* Spikes are left out here as they are there. */
    const bool counts = norm > 0 && !metrics->spike && !metrics->skipped;
    if (counts && noise_scale_add(scale, engine_noise_small_batch(noise->noise), norm * norm,
                                  engine_noise_batch(noise->noise),
                                  metrics->grad_norm * metrics->grad_norm)) {
        metrics->small_batch = engine_noise_small_batch(noise->noise);
        metrics->small_grad_norm = norm;
        noise->n_times++;
    }
    metrics->noise_scale = noise_scale_samples(scale);
    metrics->noise_error = noise_scale_error(scale);
}

/* Of numbers of samples, and how many times as many. */
static const char *number(double x, char text[UNIT_TEXT]) {
    if (x >= 10000) return unit_count(x, text);
    snprintf(text, UNIT_TEXT, x >= 99.95 ? "%.0f" : "%.3g", x);
    return text;
}

static void print_meaning(double samples, int batch) {
    char all[UNIT_TEXT], most[UNIT_TEXT], tokens[UNIT_TEXT], steps[UNIT_TEXT];
    printf("        training in batches of %d takes %s times the fewest tokens and %s times the "
           "fewest steps;\n",
           batch, number(1 + batch / samples, tokens), number(1 + samples / batch, steps));
    printf("        in batches of %s twice both; ", number(samples, all));
    if (samples >= 10) {
        printf("batches up to about %s lose little, a tenth of the tokens\n",
               number(samples / 10, most));
    } else {
        printf("no batch is so small that it loses little\n");
    }
}

void train_noise_print(const TrainNoise *noise, const NoiseScale *scale, const TrainData *data) {
    if (!noise->every) return;
    const double samples = noise_scale_samples(scale), error = noise_scale_error(scale);
    const int rows = train_pairs_batch_rows(&data->pairs);
    char text[UNIT_TEXT], tokens[UNIT_TEXT];
    if (noise->n_times == 0) {
        if (noise->seconds > 0) {
            printf("noise   not measured: gradients were zero or not finite, or spikes\n");
        } else {
            printf("noise   not measured: that takes %" PRId64 " steps\n", noise->every);
        }
        return;
    }
    printf("noise   measured %" PRId64 " time%s, in %.1f s: ", noise->n_times,
           noise->n_times == 1 ? "" : "s", noise->seconds);
    if (samples == 0) {
        printf("not enough to tell a scale; measure more often, or with larger batches\n");
        return;
    }
    printf("a scale of %s %s (%s tokens)", number(samples, text), rows > 1 ? "pairs" : "sequences",
           unit_count(samples * rows * (double)plan_row_tokens(data->plan), tokens));
    if (error > 0) printf(", give or take %.*f %%", error < 0.1 ? 1 : 0, 100 * error);
    printf("\n");
    print_meaning(samples, data->plan->global_batch / rows);
}

void train_noise_close(TrainNoise *noise) {
    engine_noise_destroy(noise->noise);
    noise->noise = NULL;
}
