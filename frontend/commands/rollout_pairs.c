/* What is learned from pairs of what was written (nn.preference, `online`): of the answers to a
 * prompt the better ones are chosen and the worse ones rejected (Guo et al. 2024, arXiv 2402.04792,
 * of two; Yuan et al. 2024, arXiv 2401.10020, the best and the worst of several), and the loss is
 * the one that pairs of data have. Pairs whose answers are worth the same, or are the same, are
 * ties: they stand in the batch and count for nothing. */
#include "frontend/commands/rollout_judge.h"
#include "frontend/commands/rollout_reference.h"
#include "ir/base/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct RolloutPairs {
    bool *is_tie;            /* [n_most / 2] */
    float *weights;          /* [n_most, seq], TOKEN_EXTRA_WEIGHTS */
    float *reference;        /* [n_most]; NULL: nothing is compared with one */
    int64_t n_pairs, n_ties; /* so far */
} RolloutPairs;

/* --- which answers are pairs --- */

static bool are_tied(const RolloutAnswer *a, const RolloutAnswer *b) {
    return a->reward == b->reward || rollout_answers_equal(a, b);
}

/* The first of the best and the first of the worst; of answers that are all worth the same, any
 * two. */
static void pick_best(RolloutAnswer *const *group, int n, int out[2]) {
    out[0] = out[1] = 0;
    for (int i = 1; i < n; i++) {
        if (group[i]->reward > group[out[0]]->reward) out[0] = i;
        if (group[i]->reward < group[out[1]]->reward) out[1] = i;
    }
    if (out[0] == out[1]) out[1] = 1;
}

static bool is_dull_for_best(RolloutAnswer *const *group, int n) {
    int pair[2];
    pick_best(group, n, pair);
    return are_tied(group[pair[0]], group[pair[1]]);
}

static bool is_dull_for_all(RolloutAnswer *const *group, int n) {
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (!are_tied(group[i], group[k])) return false;
        }
    }
    return true;
}

static bool open_pairs(Rollout *r, CliArgs *args, Diag *diag) {
    RolloutPairs *own = r->pairs = ARENA_NEW(r->arena, RolloutPairs);
    own->is_tie = ARENA_ARRAY(r->arena, bool, r->n_most / 2);
    own->weights = ARENA_ARRAY(r->arena, float, r->n_most * r->writer.plan->seq);
    if (train_prompts_compare(r->writer.plan)) {
        own->reference = ARENA_ARRAY(r->arena, float, r->n_most);
    }
    return rollout_judged_open(
        r, args, r->writer.prompts->all_pairs ? is_dull_for_all : is_dull_for_best, diag);
}

/* --- rows --- */

/* Two answers of a group, the first of them no worse, as rows `row` and the next. */
static void put_pair(Rollout *r, int64_t row, int64_t chosen, int64_t rejected) {
    const int64_t seq = r->writer.plan->seq, both[2] = {chosen, rejected};
    for (int i = 0; i < 2; i++) {
        r->answers[row + i] = r->judged->answers[both[i]];
        r->asked[row + i] = r->judged->asked[both[i]];
        rollout_put_row(r, &r->writer.prompts->items[r->asked[row + i]], r->answers[row + i],
                        r->tokens + (row + i) * seq, r->labels + (row + i) * seq);
    }
    r->pairs->is_tie[row / 2] = are_tied(r->answers[row], r->answers[row + 1]);
}

/* Every two of the group of n answers that begins with answer `first`. */
static void put_all(Rollout *r, int64_t row, int64_t first, int n) {
    RolloutAnswer *const *group = r->judged->answers + first;
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++, row += 2) {
            const bool second = group[k]->reward > group[i]->reward;
            put_pair(r, row, first + (second ? k : i), first + (second ? i : k));
        }
    }
}

static void put_rows(Rollout *r) {
    const TrainPrompts *prompts = r->writer.prompts;
    for (int64_t row = 0; row < r->n_rows; row += prompts->group_rows) {
        const int64_t first = rollout_count_answers(r, row);
        int pair[2];
        if (prompts->all_pairs) {
            put_all(r, row, first, prompts->n_answers);
            continue;
        }
        pick_best(r->judged->answers + first, prompts->n_answers, pair);
        put_pair(r, row, first + pair[0], first + pair[1]);
    }
}

/* Of the batch that begins with row `first`. */
static int count_ties(const Rollout *r, int64_t first) {
    int n_ties = 0;
    for (int64_t i = 0; i < r->writer.plan->global_batch; i += 2) {
        n_ties += r->pairs->is_tie[(first + i) / 2];
    }
    return n_ties;
}

/* The loss is the mean over the pairs of the global batch that are no ties; where all are, 0. */
static void put_weights(Rollout *r) {
    const int64_t seq = r->writer.plan->seq, batch = r->writer.plan->global_batch;
    memset(r->pairs->weights, 0, (size_t)(r->n_rows * seq) * sizeof(*r->pairs->weights));
    for (int64_t first = 0; first < r->n_rows; first += batch) {
        const double n = 0.5 * (double)batch, kept = n - count_ties(r, first);
        for (int64_t row = first; row < first + batch; row += 2) {
            const bool tied = r->pairs->is_tie[row / 2];
            r->pairs->weights[row * seq] = tied ? -1 : (float)(n / kept - 1);
        }
    }
}

static bool make_pairs(Rollout *r, Diag *diag) {
    if (!rollout_judged_make(r, diag)) return false;
    put_rows(r);
    put_weights(r);
    r->pairs->n_pairs += r->n_rows / 2;
    for (int64_t i = 0; i < r->n_rows / 2; i++) r->pairs->n_ties += r->pairs->is_tie[i];
    return !r->pairs->reference || rollout_score_reference(r, BY_ROW, r->pairs->reference, diag);
}

static void give_pairs(Rollout *r, int64_t row) {
    const RolloutPairs *own = r->pairs;
    engine_set_numbers(r->writer.engine, TOKEN_EXTRA_WEIGHTS,
                       own->weights + row * r->writer.plan->seq);
    if (own->reference) engine_set_reference(r->writer.engine, own->reference + row);
}

/* --- words --- */

/* Of pairs that are no ties. */
static int values_of_pairs(Rollout *r, const RolloutValidation *val, StepValue *out) {
    const int batch = r->writer.plan->global_batch;
    const double n = 0.5 * batch, kept = n - count_ties(r, r->first_of_step);
    double scores[2] = {0, 0}, tokens[2] = {0, 0};
    int at = rollout_judged_values(r, val, out);
    for (int64_t i = 0; i < batch; i++) {
        const int64_t row = r->first_of_step + i;
        if (r->pairs->is_tie[row / 2]) continue;
        scores[i % 2] += (double)r->answers[row]->reward / kept;
        tokens[i % 2] += (double)r->answers[row]->n_tokens / kept;
    }
    out[at++] = (StepValue){"ties", (n - kept) / n};
    if (kept == 0) return at;
    out[at++] = (StepValue){"chosen_score", scores[0]};
    out[at++] = (StepValue){"rejected_score", scores[1]};
    out[at++] = (StepValue){"chosen_tokens", tokens[0]};
    out[at++] = (StepValue){"rejected_tokens", tokens[1]};
    return at;
}

/* A text, or where the prompt is messages, the one that answers them. */
static void put_text(const TrainPrompt *prompt, const RolloutAnswer *answer, bool chat,
                     StrBuf *out) {
    GenerateText text = rollout_text_of(prompt, answer);
    if (chat) strbuf_put(out, "[{\"role\": \"assistant\", \"content\": ");
    json_put_bytes(out, text.text.text + text.n_prompt, text.text.length - text.n_prompt);
    if (chat) strbuf_put(out, "}]");
    generate_text_release(&text);
}

/* What the prompt's line says, without what is ours. Messages are called as lines of pairs have
 * them. */
static json_t *copy_record(const TrainPrompt *prompt) {
    static const char *const OURS[] = {"step",           "chosen",         "rejected",
                                       "chosen_score",   "rejected_score", "chosen_tokens",
                                       "rejected_tokens"};
    json_t *record = json_copy(prompt->record);
    json_t *messages = json_object_get(record, "messages");
    if (!record) BUG("out of memory");
    for (size_t i = 0; i < sizeof(OURS) / sizeof(OURS[0]); i++) json_object_del(record, OURS[i]);
    if (json_is_array(messages) && json_object_set(record, "prompt", messages) != 0) {
        BUG("out of memory");
    }
    if (json_is_array(messages)) json_object_del(record, "messages");
    return record;
}

/* A line of data, as preference tuning reads them: what was learned from once can be again. */
static void put_line(const Rollout *r, int64_t row, int64_t step, StrBuf *out) {
    static const char *const NAMES[] = {"chosen", "rejected"};
    const TrainPrompt *prompt = &r->writer.prompts->items[r->asked[row]];
    json_t *record = copy_record(prompt);
    const bool chat = json_is_array(json_object_get(record, "prompt"));
    char *given = json_dumps(record, JSON_ENSURE_ASCII);
    if (!given) BUG("out of memory");
    strbuf_printf(out, "{\"step\":%" PRId64 ", ", step);
    strbuf_put_bytes(out, given + 1, strlen(given) - 2); /* a prompt is in it */
    for (int i = 0; i < 2; i++) {
        const RolloutAnswer *answer = r->answers[row + i];
        strbuf_printf(out, ", \"%s\": ", NAMES[i]);
        put_text(prompt, answer, chat, out);
        strbuf_printf(out, ", \"%s_score\": %.7g, \"%s_tokens\": %d", NAMES[i],
                      (double)answer->reward, NAMES[i], (int)answer->n_tokens);
    }
    strbuf_put(out, "}\n");
    free(given);
    json_decref(record);
}

static void put_lines(const Rollout *r, int64_t step, StrBuf *out) {
    for (int64_t i = 0; i < r->writer.plan->global_batch; i += 2) {
        const int64_t row = r->first_of_step + i;
        if (!r->pairs->is_tie[row / 2]) put_line(r, row, step, out);
    }
}

static void print_end(const Rollout *r) {
    rollout_judged_print_end(r);
    printf(", %.1f %% of the pairs ties",
           100 * (double)r->pairs->n_ties / (double)r->pairs->n_pairs);
}

const RolloutKind ROLLOUT_PAIRS = {.open = open_pairs,
                                   .close = rollout_judged_close,
                                   .make = make_pairs,
                                   .give = give_pairs,
                                   .validate = rollout_judged_validate,
                                   .values_before = values_of_pairs,
                                   .put_lines = put_lines,
                                   .bytes = rollout_judged_bytes,
                                   .print = rollout_judged_print,
                                   .print_end = print_end};
