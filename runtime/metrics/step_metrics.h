/* What a training step tells the progress line and the run log. */
#ifndef RUNTIME_METRICS_STEP_METRICS_H
#define RUNTIME_METRICS_STEP_METRICS_H

#include <stdbool.h>
#include <stdint.h>

/* What a model tells of a step beside its loss: the mean over the global batch. */
typedef struct StepValue {
    const char *name; /* an identifier */
    double value;
} StepValue;

/* How large a parameter that trains is, its gradient and what the step has changed of it: roots of
 * sums of squares (runtime/engine_norms.h). */
typedef struct ParameterNorm {
    const char *name; /* logical */
    double weight;    /* after the step */
    double gradient; /* as grad_norm: before clipping, without a loss scale; NAN: it has none, as it
                      * is balanced, not learned */
    double change;   /* NAN: not known */
} ParameterNorm;

typedef struct StepMetrics {
    int64_t step;      /* 1-based: steps done with this one */
    int64_t n_samples; /* counted with this step's; 0: not known */
    double loss;       /* mean per token, nats */
    double grad_norm;  /* before clipping */
    double lr;
    double tokens_per_s;
    double seconds; /* wall time of this step */
    bool stays;     /* of a progress line: on a line of its own, as with a validation loss */
    bool has_val_loss;
    double val_loss;
    bool has_loss_scale;
    double loss_scale;     /* of the next step's gradients */
    bool skipped;          /* nothing was updated: gradients were not finite */
    int64_t n_skipped;     /* steps of this run that were */
    bool spike;            /* likewise: their norm was far above others' */
    int64_t n_spikes;      /* of the run, with what it went on from */
    bool has_val_loss_ema; /* with val_loss: of the average of the weights */
    double val_loss_ema;
    double val_bits_per_byte;        /* with val_loss; 0: not known */
    bool has_n_labels;               /* not all of the batch's labels count */
    int64_t n_labels;                /* that do */
    int n_sources;                   /* with val_loss: of several, each one's; else 0 */
    const char *const *source_names; /* [n_sources]; printable ASCII without quotes, short */
    const double *source_losses;     /* [n_sources] */
    int n_values;
    const StepValue *values;    /* [n_values] */
    const char *stragglers;     /* an object of JSON about ranks' work; NULL: none with this step */
    double slowest_ratio;       /* the most work of a rank, to the median of those alike; 0: none */
    int n_norms;                /* 0: not measured after this step */
    const ParameterNorm *norms; /* [n_norms] */
    /* The gradient noise scale (noise_scale.h): with this step's measurement, of `small_batch`
     * samples, whose gradients have that norm; 0: none with this step. */
    int small_batch;
    double small_grad_norm;
    double noise_scale, noise_error; /* of all measurements so far; 0: not known */
    /* A meeting of islands after this step; outer_step counts them, 0: there was none. */
    int64_t outer_step, outer_bytes;
    double outer_seconds, outer_norm; /* of the outer gradient */
    int outer_islands;                /* whose weights were in the mean */
    int outer_part;                   /* that met, from 1; 0: all */
    bool has_outer_hidden;            /* meetings go on behind training: */
    double outer_wait_seconds;        /* that it stood still for what had not come back, */
    double outer_hidden_seconds;      /* and that it did not */
    /* What a log begins with; 0: not said. */
    int64_t n_parameters, n_active; /* n_active: that a token meets, as there are experts */
    int64_t row_tokens;             /* of a sample */
} StepMetrics;

#endif
