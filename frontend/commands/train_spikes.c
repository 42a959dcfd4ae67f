#include "frontend/commands/train_spikes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_WINDOW = 128, DEFAULT_STOP = 10 };

bool train_spikes_from_args(const CliArgs *args, TrainSpikes *out, Diag *diag) {
    *out = (TrainSpikes){.factor = cli_real(args, OPT_SPIKE_FACTOR, 0),
                         .window = (int)cli_int(args, OPT_SPIKE_WINDOW, DEFAULT_WINDOW),
                         .stop = (int)cli_int(args, OPT_SPIKE_STOP, DEFAULT_STOP),
                         .limit = INFINITY};
    const char *lacking = cli_given(args, OPT_SPIKE_WINDOW) ? "spike-window"
                          : cli_given(args, OPT_SPIKE_STOP) ? "spike-stop"
                                                            : NULL;
    if (lacking && out->factor == 0) {
        diag_error(diag, NO_LOC, "train: --%s: of what is left out; give --spike-factor X",
                   lacking);
        return false;
    }
    if (cli_given(args, OPT_SPIKE_FACTOR) && !(out->factor > 1)) {
        diag_error(diag, NO_LOC,
                   "train: --spike-factor: half of all steps are above the median itself; give "
                   "more than 1, as 10");
        return false;
    }
    return true;
}

bool train_spikes_check(const TrainSpikes *spikes, const Plan *plan, bool writes_answers,
                        Diag *diag) {
    if (spikes->factor == 0) return true;
    if (!plan_skips_spikes(plan)) {
        diag_error(diag, NO_LOC,
                   "train: --spike-factor: this plan's update leaves no step out; plan with "
                   "--skip-spikes");
        return false;
    }
    if (!writes_answers) return true;
    diag_error(diag, NO_LOC,
               "train: --spike-factor: not for learning from answers, whose gradients come and go "
               "with their rewards: a batch of like answers has none");
    return false;
}

static int by_size(const void *left, const void *right) {
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double median(const float *norms, int n) {
    float sorted[CHECKPOINT_MOST_NORMS];
    memcpy(sorted, norms, (size_t)n * sizeof(*norms));
    qsort(sorted, (size_t)n, sizeof(*sorted), by_size);
    return ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
}

/* The oldest go: of a run that goes on with a smaller window, too. */
static void keep_last(TrainingPlace *place, int most) {
    int surplus = place->n_norms - most;
    if (surplus <= 0) return;
    memmove(place->norms, place->norms + surplus, (size_t)most * sizeof(place->norms[0]));
    place->n_norms = most;
}

void train_spikes_begin(TrainSpikes *spikes, TrainingPlace *place, Engine *engine) {
    if (spikes->factor == 0) {
        place->n_norms = place->n_spikes_in_row = 0;
        return;
    }
    keep_last(place, spikes->window);
    double middle = place->n_norms == spikes->window ? median(place->norms, place->n_norms) : 0;
    spikes->limit = middle > 0 ? spikes->factor * middle : INFINITY;
    engine_set_most_norm(engine, spikes->limit);
}

bool train_spikes_end(TrainSpikes *spikes, TrainingPlace *place, const StepResult *result,
                      Diag *diag) {
    if (spikes->factor == 0 || result->skipped) return true;
    if (!result->spike) {
        keep_last(place, spikes->window - 1);
        place->norms[place->n_norms++] = (float)result->grad_norm;
        place->n_spikes_in_row = 0;
        return true;
    }
    spikes->n_spikes++;
    place->n_spikes++;
    if (++place->n_spikes_in_row < spikes->stop) return true;
    diag_error(diag, NO_LOC,
               "train: %d step%s in a row %s: the last one's gradients had a norm of %.4g, the "
               "limit is %g times the median of %d steps, %.4g",
               place->n_spikes_in_row, place->n_spikes_in_row == 1 ? "" : "s",
               place->n_spikes_in_row == 1 ? "was a spike" : "were spikes", result->grad_norm,
               spikes->factor, spikes->window, spikes->limit);
    diag_note(diag, NO_LOC,
              "nothing has changed in them: it is no single batch. Go on from an earlier "
              "checkpoint (--resume) with other samples (--skip-samples) or a lower --lr; if norms "
              "are to stay that large, with a larger --spike-factor");
    return false;
}

void train_spikes_print(const TrainSpikes *spikes, int64_t n_steps) {
    if (spikes->factor == 0) return;
    printf("spikes  %" PRId64 " of %" PRId64 " steps were left out: norms above %g times the "
           "median of %d steps\n",
           spikes->n_spikes, n_steps, spikes->factor, spikes->window);
}
