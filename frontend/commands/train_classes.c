#include "frontend/commands/train_classes.h"

#include "ir/class_names.h"
#include "ir/op.h"
#include "runtime/data/dataset.h"
#include "runtime/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool knows_documents(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (node_tells_documents(graph->nodes[n])) return true;
        }
    }
    return false;
}

bool train_classes_of(const Plan *plan, const Node *share, Arena *arena, TrainClasses *out,
                      Diag *diag) {
    *out = (TrainClasses){0};
    if (!share || !node_attr(share, ATTR_classes)) return true;
    const char *names = node_string(share, ATTR_classes);
    int64_t pad = node_int(share, ATTR_pad, -1), between = node_int(share, ATTR_between, 1);
    *out = (TrainClasses){.reads = true,
                          .names = names,
                          .n = class_names_count(names),
                          .between = (int)between,
                          .end = node_int(share, ATTR_eos, -1),
                          .how = {.seq = (size_t)plan->seq,
                                  .pad = (uint32_t)pad,
                                  .first = node_int(share, ATTR_first, 0) != 0},
                          .packs_apart = knows_documents(plan)};
    if (out->n >= 2 && out->n <= plan->vocab && pad >= 0 && pad < plan->vocab && plan->seq >= 2 &&
        between >= 0 && between <= CLASS_MOST_BETWEEN) {
        out->counts = ARENA_ARRAY(arena, int64_t, out->n + 1);
        return true;
    }
    diag_error(diag, share->loc,
               "label_share: classes '%.200s', pad %" PRId64 " and between %" PRId64
               ": must be names of at least two classes, no more than the %" PRId64
               " tokens, one of these, and a number from 0 to %d; sequences have at least 2 tokens",
               names, pad, between, plan->vocab, CLASS_MOST_BETWEEN);
    return false;
}

bool train_classes_check_end(const TrainClasses *classes, uint32_t last, Diag *diag) {
    if (!classes->reads || classes->end < 0 || last == (uint32_t)classes->end) return true;
    if (last == NO_TOKEN) {
        diag_error(diag, NO_LOC,
                   "texts of classes end with the token %" PRId64
                   " in the plan: give it as --eot, '[SEP]' of BERT's tokenizers",
                   classes->end);
    } else {
        diag_error(diag, NO_LOC,
                   "texts of classes end with the token %u by --eot, and in the plan with %" PRId64
                   ": plan with --set sep_token=%u",
                   last, classes->end, last);
    }
    return false;
}

bool train_classes_rows(TrainClasses *classes, bool packs, bool whole, TokenBuffer *buffer,
                        Diag *diag) {
    ClassRowOptions how = classes->how;
    ClassTotals totals;
    how.documents = packs;
    how.shuffles = !whole;
    if (!class_rows(buffer, &how, classes->counts, classes->n + 1, &totals, diag)) return false;
    class_add_totals(&classes->totals, &totals);
    return true;
}

void train_classes_print(const TrainClasses *classes) {
    enum { MOST_LISTED = 12 };
    const ClassTotals *totals = &classes->totals;
    if (!classes->reads || totals->n_texts == 0) return;
    printf("classes %" PRId64 " texts of %.1f tokens in the mean:", totals->n_texts,
           (double)totals->n_tokens / (double)totals->n_texts);
    for (int i = 0; i < classes->n && i < MOST_LISTED; i++) {
        printf("%s %.1f %% %s", i ? "," : "",
               100 * (double)classes->counts[i] / (double)totals->n_texts,
               class_names_at(classes->names, i).text);
    }
    printf("%s\n", classes->n > MOST_LISTED ? ", ..." : "");
    if (totals->n_cut) {
        printf("        %" PRId64 " are longer than a row and lose their end\n", totals->n_cut);
    }
    if (totals->n_empty) {
        printf("        %" PRId64 " more have no token: left out\n", totals->n_empty);
    }
}

/* --- how well they are told --- */

ClassResult class_result_create(const TrainClasses *classes, Arena *arena) {
    return (ClassResult){.texts = ARENA_ARRAY(arena, int64_t, classes->n),
                         .told = ARENA_ARRAY(arena, int64_t, classes->n),
                         .right = ARENA_ARRAY(arena, int64_t, classes->n)};
}

/* logits [n] -> probabilities [n], and the greatest one's number, the least of equal ones. */
static int find_probabilities(const float *logits, int n, float *probabilities) {
    int best = 0;
    double sum = 0;
    for (int i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[best]);
    for (int i = 0; i < n; i++) {
        probabilities[i] = (float)(exp((double)logits[i] - (double)logits[best]) / sum);
    }
    return best;
}

static double minus_log_of(const float *logits, int n, int best, int class) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - (double)logits[best]);
    return log(sum) + (double)logits[best] - (double)logits[class];
}

static void add_text(ClassResult *to, const float *logits, int n, int best, int class) {
    if (class >= n) return;
    to->n_texts++;
    to->loss += minus_log_of(logits, n, best, class);
    to->texts[class]++;
    to->told[best]++;
    to->right[class] += best == class;
    to->n_right += best == class;
}

bool train_classes_tell(const TrainClasses *classes, const Plan *plan, Engine *engine,
                        const int32_t *tokens, const int32_t *labels, int64_t n_rows,
                        ClassResult *to, ClassTaker *take, void *user, Diag *diag) {
    const int64_t at_once = engine_forward_batch(engine), seq = plan->seq;
    const int n = classes->n;
    const int64_t width = engine_logits_width(engine);
    if (width != n) {
        diag_error(diag, NO_LOC, "the plan's loss is of %d classes, and its logits of %" PRId64, n,
                   width);
        return false;
    }
    Arena *arena = arena_create();
    float *logits = ARENA_ARRAY(arena, float, at_once *seq *n);
    float *probabilities = ARENA_ARRAY(arena, float, n);
    int32_t *rows = ARENA_ARRAY(arena, int32_t, at_once * seq);
    bool good = true, finite = true;
    for (int64_t first = 0; good && first < n_rows; first += at_once) {
        int64_t count = n_rows - first < at_once ? n_rows - first : at_once;
        for (int64_t i = 0; i < at_once; i++) { /* where rows are missing, the last one again */
            int64_t row = first + (i < count ? i : count - 1);
            memcpy(rows + i * seq, tokens + row * seq, (size_t)seq * sizeof(*rows));
        }
        good = engine_logits(engine, rows, logits, diag);
        for (int64_t t = 0; good && t < count * seq; t++) {
            int class = labels[first * seq + t];
            if (class == DATASET_NO_LABEL) continue;
            int best = find_probabilities(logits + t * n, n, probabilities);
            finite &= isfinite(probabilities[best]);
            add_text(to, logits + t * n, n, best, class);
            if (take) take(user, probabilities, class);
        }
    }
    arena_destroy(arena);
    if (!good || (finite && isfinite(to->loss))) return good;
    diag_error(diag, NO_LOC, "%s not finite; wrong weights?",
               finite ? "the loss is" : "probabilities are");
    return false;
}

double class_result_f1(const ClassResult *result, int class) {
    double of_both = (double)(result->texts[class] + result->told[class]);
    return of_both > 0 ? 2 * (double)result->right[class] / of_both : NAN;
}

double class_result_mean_f1(const ClassResult *result, int n) {
    double sum = 0, count = 0;
    for (int i = 0; i < n; i++) {
        double f1 = class_result_f1(result, i);
        if (isnan(f1)) continue;
        sum += f1;
        count++;
    }
    return count > 0 ? sum / count : NAN;
}
