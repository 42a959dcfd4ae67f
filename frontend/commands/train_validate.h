/* The validation loss of a run: of each source, and of all together. */
#ifndef FRONTEND_COMMANDS_TRAIN_VALIDATE_H
#define FRONTEND_COMMANDS_TRAIN_VALIDATE_H

#include "frontend/commands/train_data.h"
#include "ir/op.h"
#include "runtime/engine.h"
#include "runtime/metrics/step_metrics.h"

typedef struct ValidationResult {
    /* Over the labels of the blend; where they are files of --val, over theirs. Of a student its
     * own, without the teacher's. */
    double loss;
    double bits_per_byte;              /* 0: not known */
    bool is_bound;                     /* losses are: by diffusion */
    bool is_empty;                     /* no label that was looked at counts: loss NAN */
    bool is_partial;                   /* not all windows were looked at */
    double losses[BLEND_MOST_SOURCES]; /* of each source */
    double accuracy; /* of classes of texts, where the plan has all logits; else not a number */
    double kl;       /* of a student from its teacher; likewise */
    StepValue values[OUTPUT_MOST_REPORTED + 1]; /* the step's, and this one */
} ValidationResult;

/* Mean loss over the labels that count of the validation windows, or of batches spread evenly over
 * them. tokens, labels [global_batch, seq] are room for them. False: reported. */
bool train_validate(TrainData *data, Engine *engine, int32_t *tokens, int32_t *labels,
                    ValidationResult *out, Diag *diag);

/* What the progress line and the log say of it. names [n_val] and `result` outlive metrics. */
void train_validate_tell(const TrainData *data, ValidationResult *result, const char **names,
                         StepMetrics *metrics);
/* ", 1.9 in validation": of the line that ends a run. */
void train_validate_print(const ValidationResult *result);
/* A line for each of several sources. */
void train_validate_print_sources(const TrainData *data, const ValidationResult *result);

#endif
