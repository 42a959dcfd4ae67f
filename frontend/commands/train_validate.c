#include "frontend/commands/train_validate.h"

#include <math.h>
#include <stdio.h>

enum { MOST_BATCHES = 20, LEAST_BATCHES = 5 }; /* of all sources; of each */

typedef struct Sums {
    double loss, labels, bytes, right, kl;
} Sums;

/* Classes of texts, by their logits: how many are right. */
static bool add_classes(const TrainData *data, Engine *engine, const int32_t *tokens,
                        const int32_t *labels, Sums *to, Diag *diag) {
    Arena *arena = arena_create();
    ClassResult result = class_result_create(&data->classes, arena);
    bool good = train_classes_tell(&data->classes, data->plan, engine, tokens, labels,
                                   data->plan->global_batch, &result, NULL, NULL, diag);
    to->right += (double)result.n_right;
    class_result_release(&result);
    arena_destroy(arena);
    return good;
}

/* Numbers are not right or wrong. */
static bool tells_classes(const TrainData *data, const Engine *engine) {
    return data->classes.reads && data->classes.labels != CLASS_NUMBERS &&
           engine_logits_width(engine) > 0;
}

/* Does its loss have a teacher's in it? */
static bool is_student(const Plan *plan) {
    return plan_count_teacher(plan) > 0 || plan_stored_words(plan) > 0;
}

/* The last batch is filled up with the first windows. */
static bool sum_up(TrainData *data, int source, int64_t most_batches, Engine *engine,
                   int32_t *tokens, int32_t *labels, Sums *out, bool *out_partial, Diag *diag) {
    const Plan *plan = data->plan;
    int64_t batch = train_data_batch(data), n_labels = plan->global_batch * plan->seq;
    int64_t n_windows = dataset_count_windows(data->val[source].data);
    int64_t n_batches = (n_windows + batch - 1) / batch;
    most_batches = most_batches * data->full_batch / plan->global_batch; /* as many windows */
    int64_t n_used = n_batches < most_batches ? n_batches : most_batches;
    *out = (Sums){0};
    *out_partial |= n_used < n_batches;
    for (int64_t b = 0; b < n_used; b++) {
        int64_t first = b * n_batches / n_used * batch;
        double loss;
        for (int64_t i = 0; i < batch; i++) {
            if (!train_data_window(data, source, (first + i) % n_windows, i, tokens, labels,
                                   diag)) {
                return false;
            }
        }
        if (tells_classes(data, engine) && !add_classes(data, engine, tokens, labels, out, diag)) {
            return false;
        }
        if (!train_data_give(data, engine, false, diag) ||
            !engine_evaluate(engine, tokens, labels, &loss, diag)) {
            return false;
        }
        bool pairs = data->pairs.reads; /* losses are means over these */
        double n = (double)(pairs ? batch : engine_count_labels(engine, labels)), kl = 0;
        if (is_student(plan) && engine_evaluated(engine, "kl", &kl)) {
            engine_evaluated(engine, "ce", &loss);
            out->kl += kl * n;
        }
        double accuracy;
        if (data->embed.reads && engine_evaluated(engine, "accuracy", &accuracy)) {
            out->right += accuracy * n;
        }
        out->loss += loss * n;
        out->labels += n;
        if (pairs) continue;
        out->bytes += (double)train_text_count_bytes(&data->text, engine, labels, n_labels);
    }
    return true;
}

bool train_validate(TrainData *data, Engine *engine, int32_t *tokens, int32_t *labels,
                    ValidationResult *out, Diag *diag) {
    int64_t most = MOST_BATCHES / data->n_val;
    double bytes_a_label = 0, share = 0;
    *out = (ValidationResult){.accuracy = NAN, .kl = NAN, .is_bound = data->diffusion.hides};
    double right = 0, kl = 0;
    for (int i = 0; i < data->n_val; i++) {
        Sums sums;
        if (!sum_up(data, i, most < LEAST_BATCHES ? LEAST_BATCHES : most, engine, tokens, labels,
                    &sums, &out->is_partial, diag)) {
            return false;
        }
        /* Nothing of the windows looked at counts: the source says nothing. */
        out->losses[i] = sums.labels > 0 ? sums.loss / sums.labels : NAN;
        if (sums.labels == 0) continue;
        out->loss += data->val[i].label_share * out->losses[i];
        bytes_a_label += data->val[i].label_share * sums.bytes / sums.labels;
        right += data->val[i].label_share * sums.right / sums.labels;
        kl += data->val[i].label_share * sums.kl / sums.labels;
        share += data->val[i].label_share;
    }
    const bool tells = tells_classes(data, engine);
    if ((tells || data->embed.reads) && share > 0) out->accuracy = right / share;
    if (is_student(data->plan) && share > 0 && (!data->stored.file || data->stored.of_val)) {
        out->kl = kl / share;
    }
    out->is_empty = share == 0;
    out->loss = share > 0 ? out->loss / share : NAN;
    bytes_a_label = share > 0 ? bytes_a_label / share : 0;
    out->bits_per_byte = bytes_a_label > 0 ? out->loss / bytes_a_label / M_LN2 : 0;
    return true;
}

void train_validate_tell(const TrainData *data, ValidationResult *result, const char **names,
                         StepMetrics *metrics) {
    metrics->has_val_loss = !result->is_empty;
    metrics->val_loss = result->loss;
    metrics->val_bits_per_byte = result->bits_per_byte;
    const StepValue beside = isnan(result->kl) ? (StepValue){"val_accuracy", result->accuracy}
                                               : (StepValue){"val_kl", result->kl};
    if (!isnan(beside.value)) {
        for (int i = 0; i < metrics->n_values; i++) result->values[i] = metrics->values[i];
        result->values[metrics->n_values++] = beside;
        metrics->values = result->values;
    }
    if (data->n_val == 1) return;
    for (int i = 0; i < data->n_val; i++) names[i] = data->val[i].name;
    metrics->n_sources = data->n_val;
    metrics->source_names = names;
    metrics->source_losses = result->losses;
}

void train_validate_print(const ValidationResult *result) {
    const char *bound = result->is_bound ? "at most " : "";
    if (result->is_empty) {
        printf(", none in validation: no label of it counts%s",
               result->is_partial ? " (in a sample of it)" : "");
        return;
    }
    printf(", %s%.4f in validation%s", bound, result->loss,
           result->is_partial ? " (a sample of it)" : "");
    if (result->bits_per_byte > 0) printf(", %s%.4f bits per byte", bound, result->bits_per_byte);
    if (!isnan(result->kl)) printf(", %.4f from the teacher there", result->kl);
    if (!isnan(result->accuracy)) printf(", %.2f %% right there", 100 * result->accuracy);
}

void train_validate_print_sources(const TrainData *data, const ValidationResult *result) {
    for (int i = 0; i < data->n_val && data->n_val > 1; i++) {
        printf("        %.4f in validation on %s\n", result->losses[i], data->val[i].name);
    }
}
