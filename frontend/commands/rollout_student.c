/* What a student learns from its teacher on answers of its own (on-policy distillation: Agarwal et
 * al. 2023, arXiv 2306.13649): a share of the rows is written by the weights as they are, the
 * others are the data's, and the step is distillation's on all of them. Nothing is judged, and
 * nothing is learned through the choice of tokens. */
#include "frontend/commands/rollout_state.h"
#include "runtime/data/dataset.h"

#include <math.h>
#include <stdlib.h>

typedef struct RolloutStudent {
    int *prompts;             /* [n_most]: of those that are written, one after the other */
    uint64_t *states;         /* likewise */
    int32_t *tokens, *labels; /* [global_batch, seq], of validation */
} RolloutStudent;

static bool open_student(Rollout *r, CliArgs *args, Diag *diag) {
    const Plan *plan = r->writer.plan;
    RolloutStudent *own = r->student = ARENA_NEW(r->arena, RolloutStudent);
    (void)args, (void)diag;
    own->prompts = ARENA_ARRAY(r->arena, int, r->n_most);
    own->states = ARENA_ARRAY(r->arena, uint64_t, r->n_most);
    own->tokens = ARENA_ARRAY(r->arena, int32_t, plan->global_batch * plan->seq);
    own->labels = ARENA_ARRAY(r->arena, int32_t, plan->global_batch * plan->seq);
    return true;
}

/* --- rows --- */

/* Of rows in a row the share is written, as evenly as can be: which ones follows from a row's
 * number in the run alone. */
static bool is_written(const Rollout *r, int64_t row) {
    const double share = r->writer.prompts->share, at = (double)(r->first + row);
    return floor((at + 1) * share) > floor(at * share);
}

/* The data's prompt and completion. */
static void put_given(const Rollout *r, const TrainPrompt *prompt, int32_t *tokens,
                      int32_t *labels) {
    for (int64_t i = 0; i < r->writer.plan->seq; i++) {
        const bool counts = i + 1 < prompt->n_row && prompt->is_label[i + 1];
        tokens[i] = (int32_t)(i < prompt->n_row ? prompt->row[i] : r->writer.prompts->pad);
        labels[i] = counts ? (int32_t)prompt->row[i + 1] : DATASET_NO_LABEL;
    }
}

/* Of row i what is there: answer NULL: the data's. */
static void put(const Rollout *r, int prompt, const RolloutAnswer *answer, int32_t *tokens,
                int32_t *labels) {
    const TrainPrompt *of = &r->writer.prompts->items[prompt];
    if (answer) {
        rollout_put_row(r, of, answer, tokens, labels);
    } else {
        put_given(r, of, tokens, labels);
    }
}

static bool write_answers(Rollout *r, RolloutAnswer *answers, int64_t count, const int *prompts,
                          const uint64_t *states, bool greedy, Diag *diag) {
    const RolloutRequest request = {.answers = answers,
                                    .count = count,
                                    .prompts = prompts,
                                    .states = states,
                                    .greedy = greedy,
                                    .doing = "writing"};
    return count == 0 || (rollout_writer_renew(&r->writer, diag) &&
                          rollout_writer_write(&r->writer, &request, diag));
}

static bool make_student(Rollout *r, Diag *diag) {
    RolloutStudent *own = r->student;
    const int64_t seq = r->writer.plan->seq;
    int64_t n_written = 0;
    for (int64_t i = 0; i < r->n_rows; i++) {
        uint64_t state;
        rollout_draw(r, i, 0, &r->asked[i], &state);
        r->answers[i] = NULL;
        if (!is_written(r, i)) continue;
        r->answers[i] = &r->written[n_written];
        own->prompts[n_written] = r->asked[i];
        own->states[n_written++] = state;
    }
    if (!write_answers(r, r->written, n_written, own->prompts, own->states, false, diag)) {
        return false;
    }
    for (int64_t i = 0; i < r->n_rows; i++) {
        put(r, r->asked[i], r->answers[i], r->tokens + i * seq, r->labels + i * seq);
    }
    return true;
}

/* --- validation --- */

typedef struct Sums {
    double loss, kl, labels;
} Sums;

/* Rows first ... of validation; of the last batch what is too much counts for nothing. */
static bool add_batch(Rollout *r, const int *prompts, bool written, int64_t first, Sums *sums,
                      Diag *diag) {
    RolloutStudent *own = r->student;
    const int64_t seq = r->writer.plan->seq;
    double loss, ce, kl = 0;
    for (int64_t i = 0; i < r->writer.plan->global_batch; i++) {
        const int64_t at = first + i < r->n_validated ? first + i : first;
        int32_t *labels = own->labels + i * seq;
        put(r, prompts[at], written ? &r->validated[at] : NULL, own->tokens + i * seq, labels);
        for (int64_t k = 0; k < seq && at != first + i; k++) labels[k] = DATASET_NO_LABEL;
    }
    if (!engine_evaluate(r->writer.engine, own->tokens, own->labels, &loss, diag)) return false;
    if (!engine_evaluated(r->writer.engine, "ce", &ce)) ce = loss;
    engine_evaluated(r->writer.engine, "kl", &kl);
    const double n = (double)engine_count_labels(r->writer.engine, own->labels);
    sums->loss += ce * n;
    sums->kl += kl * n;
    sums->labels += n;
    return true;
}

/* On the data's completions, as distillation is validated; where lines have none, on the likeliest
 * answers, of which the student's own loss says nothing. */
static bool validate_student(Rollout *r, RolloutValidation *out, Diag *diag) {
    const bool written = !r->writer.prompts->validates_rows;
    int *prompts = calloc((size_t)r->n_validated + 1, sizeof(*prompts));
    uint64_t *states = calloc((size_t)r->n_validated + 1, sizeof(*states));
    if (!prompts || !states) BUG("out of memory");
    rollout_pick_validated(r, prompts, states);
    Sums sums = {0};
    bool good =
        !written || write_answers(r, r->validated, r->n_validated, prompts, states, true, diag);
    for (int64_t i = 0; i < r->n_validated && good; i += r->writer.plan->global_batch) {
        good = add_batch(r, prompts, written, i, &sums, diag);
    }
    if (sums.labels > 0) out->kl = sums.kl / sums.labels;
    if (sums.labels > 0 && !written) out->loss = sums.loss / sums.labels;
    free(prompts);
    free(states);
    return good;
}

/* --- words --- */

static int values_after(Rollout *r, const RolloutValidation *val, StepValue *out) {
    (void)r;
    if (!val || isnan(val->kl)) return 0;
    *out = (StepValue){"val_kl", val->kl};
    return 1;
}

const RolloutKind ROLLOUT_STUDENT = {.open = open_student,
                                     .make = make_student,
                                     .validate = validate_student,
                                     .values_after = values_after};
