#include "frontend/commands/train_classes.h"

#include "ir/base/memory.h"
#include "ir/op.h"
#include "runtime/data/dataset.h"
#include "runtime/tokenizer/corpus_labels.h"
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

/* False: they are not those of a plan that can be. */
static bool set_targets(const Plan *plan, const Node *share, Arena *arena, TrainClasses *out) {
    const int64_t rows = plan->global_batch * plan->seq;
    out->smoothing = node_float(share, ATTR_smoothing, 0);
    if (node_attr(share, ATTR_weights)) {
        const char *list = node_string(share, ATTR_weights);
        out->balanced = strcmp(list, "balanced") == 0;
        out->weights = ARENA_ARRAY(arena, double, out->n);
        for (int i = 0; i < out->n; i++) out->weights[i] = 1;
        if (!out->balanced && !class_weights_read(list, out->n, out->weights)) return false;
    }
    if (!plan_reads_numbers(plan, TOKEN_TARGETS)) return true;
    out->targets = ARENA_ARRAY(arena, float, rows * out->n);
    out->batch_labels = ARENA_ARRAY(arena, int32_t, rows);
    return plan_numbers_width(plan, TOKEN_TARGETS) == out->n;
}

bool train_classes_of(const Plan *plan, const Node *share, Arena *arena, TrainClasses *out,
                      Diag *diag) {
    *out = (TrainClasses){0};
    if (!share || !node_attr(share, ATTR_classes)) return true;
    const char *names = node_string(share, ATTR_classes);
    int64_t pad = node_int(share, ATTR_pad, -1), between = node_int(share, ATTR_between, 1);
    const char *kind = node_attr(share, ATTR_labels) ? node_string(share, ATTR_labels) : "one";
    const ClassLabels labels = class_labels_find(kind);
    *out = (TrainClasses){.reads = true,
                          .names = names,
                          .labels = labels,
                          .n = class_names_count_of(names, labels),
                          .between = (int)between,
                          .threshold = 0.5,
                          .end = node_int(share, ATTR_eos, -1),
                          .how = {.seq = (size_t)plan->seq,
                                  .pad = (uint32_t)pad,
                                  .first = node_int(share, ATTR_first, 0) != 0},
                          .packs_apart = knows_documents(plan)};
    const bool fits = labels == CLASS_ONE ? out->n <= plan->vocab : labels < N_CLASS_LABELS;
    if (out->n >= 1 && fits && pad >= 0 && pad < plan->vocab && plan->seq >= 2 && between >= 0 &&
        between <= CLASS_MOST_BETWEEN && set_targets(plan, share, arena, out)) {
        out->counts = ARENA_ARRAY(arena, int64_t, out->n + 1);
        out->table.n_words = class_label_words(labels, out->n);
        return true;
    }
    diag_error(diag, share->loc,
               "label_share: classes '%.200s', pad %" PRId64 " and between %" PRId64
               ": must be names of at least two classes, no more than the %" PRId64
               " tokens, as many as there are targets, one of these, and a number from 0 to %d; "
               "sequences have at least 2 tokens",
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
    if (classes->labels != CLASS_ONE) how.table = &classes->table;
    if (!class_rows(buffer, &how, classes->counts, classes->n + 1, &totals, diag)) return false;
    class_add_totals(&classes->totals, &totals);
    return true;
}

void train_classes_release(TrainClasses *classes) {
    free(classes->table.items);
    classes->table = (ClassTable){.n_words = classes->table.n_words};
}

/* " 33.8 % negative": texts of a class, or the mean and spread of numbers. */
static void print_class(const TrainClasses *classes, int i) {
    const ClassName name = class_names_at(classes->names, i);
    const double n_texts = (double)classes->totals.n_texts;
    double sum = 0, squares = 0;
    if (classes->labels == CLASS_ONE) {
        printf(" %.1f %% %s", 100 * (double)classes->counts[i] / n_texts, name.text);
        return;
    }
    for (int64_t row = 0; row < classes->table.n; row++) {
        const double number = (double)train_classes_at(classes, (int32_t)row, i);
        sum += number;
        squares += number * number;
    }
    const double n = (double)classes->table.n, mean = sum / n;
    if (classes->labels == CLASS_SETS) {
        printf(" %.1f %% %s", 100 * mean, name.text);
    } else {
        printf(" %s %.4g +- %.4g", name.text, mean, sqrt(fmax(squares / n - mean * mean, 0)));
    }
}

void train_classes_print(const TrainClasses *classes) {
    enum { MOST_LISTED = 12 };
    const ClassTotals *totals = &classes->totals;
    if (!classes->reads || totals->n_texts == 0) return;
    printf("%s %" PRId64 " texts of %.1f tokens in the mean:",
           classes->labels == CLASS_NUMBERS ? "numbers" : "classes", totals->n_texts,
           (double)totals->n_tokens / (double)totals->n_texts);
    for (int i = 0; i < classes->n && i < MOST_LISTED; i++) {
        if (i) printf(",");
        print_class(classes, i);
    }
    printf("%s\n", classes->n > MOST_LISTED ? ", ..." : "");
    if (classes->weights) {
        printf("        count");
        for (int i = 0; i < classes->n && i < MOST_LISTED; i++) {
            printf("%s %.4g", i ? "," : "", classes->weights[i]);
        }
        printf(" times%s\n", classes->n > MOST_LISTED ? ", ..." : "");
    }
    if (totals->n_cut) {
        printf("        %" PRId64 " are longer than a row and lose their end\n", totals->n_cut);
    }
    if (totals->n_empty) {
        printf("        %" PRId64 " more have no token: left out\n", totals->n_empty);
    }
}

/* --- what is given to the loss --- */

bool train_classes_weigh(TrainClasses *classes, Diag *diag) {
    double n = 0;
    if (!classes->balanced) return true;
    for (int i = 0; i < classes->n; i++) n += (double)classes->counts[i];
    for (int i = 0; i < classes->n; i++) {
        if (classes->counts[i] == 0) {
            diag_error(diag, NO_LOC,
                       "class_weights=balanced: no text is of class %s: give it a weight, as in "
                       "--set class_weights=1,2,...",
                       class_names_at(classes->names, i).text);
            return false;
        }
        classes->weights[i] = n / classes->n / (double)classes->counts[i];
    }
    return true;
}

void train_classes_take(TrainClasses *classes, const int32_t *labels, int64_t at) {
    if (!classes->targets) return;
    const size_t seq = classes->how.seq;
    memcpy(classes->batch_labels + at * (int64_t)seq, labels, seq * sizeof(*labels));
}

float train_classes_at(const TrainClasses *classes, int32_t label, int i) {
    const ClassTable *table = &classes->table;
    return class_label_at(classes->labels, table->items + (int64_t)label * table->n_words, i);
}

bool train_classes_knows(const TrainClasses *classes, int32_t label) {
    if (label < 0) return false;
    if (classes->labels == CLASS_ONE) return label < classes->n;
    return classes->table.items[(int64_t)label * classes->table.n_words] != 0;
}

/* By what a text's loss is multiplied, so that the mean is one over weights. */
static double find_scale(const TrainClasses *classes, int64_t n_labels) {
    double sum = 0, count = 0;
    for (int64_t t = 0; classes->weights && t < n_labels; t++) {
        const int32_t label = classes->batch_labels[t];
        if (!train_classes_knows(classes, label)) continue;
        sum += classes->weights[label];
        count++;
    }
    return sum > 0 ? count / sum : 1;
}

void train_classes_give(TrainClasses *classes, const Plan *plan, Engine *engine) {
    const int64_t n_labels = plan->global_batch * plan->seq;
    const int n = classes->n;
    if (!classes->targets) return;
    const bool one = classes->labels == CLASS_ONE;
    const double scale = one ? find_scale(classes, n_labels) : 1;
    const double all = classes->smoothing / n, own = 1 - classes->smoothing;
    memset(classes->targets, 0, (size_t)(n_labels * n) * sizeof(*classes->targets));
    for (int64_t t = 0; t < n_labels; t++) {
        const int32_t label = classes->batch_labels[t];
        if (!train_classes_knows(classes, label)) continue;
        for (int i = 0; i < n; i++) {
            const double weight = classes->weights ? classes->weights[i] : 1;
            classes->targets[t * n + i] =
                one ? (float)(scale * weight * (all + (i == label ? own : 0)))
                    : train_classes_at(classes, label, i);
        }
    }
    engine_set_numbers(engine, TOKEN_TARGETS, classes->targets);
}

/* --- how well they are told --- */

ClassResult class_result_create(const TrainClasses *classes, Arena *arena) {
    return (ClassResult){.texts = ARENA_ARRAY(arena, int64_t, classes->n),
                         .told = ARENA_ARRAY(arena, int64_t, classes->n),
                         .right = ARENA_ARRAY(arena, int64_t, classes->n)};
}

void class_result_release(ClassResult *result) {
    free(result->numbers);
    free(result->given);
    result->numbers = result->given = NULL;
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
    to->n_texts++;
    to->loss += minus_log_of(logits, n, best, class);
    to->texts[class]++;
    to->told[best]++;
    to->right[class] += best == class;
    to->n_right += best == class;
}

static void keep_numbers(const TrainClasses *classes, ClassResult *to, const float *logits,
                         int32_t label) {
    const int n = classes->n;
    if (to->n_texts == to->capacity) {
        to->capacity = to->capacity ? 2 * to->capacity : 256;
        const size_t bytes = (size_t)(to->capacity * n) * sizeof(float);
        to->numbers = memory_grow(to->numbers, bytes);
        to->given = memory_grow(to->given, bytes);
    }
    for (int i = 0; i < n; i++) {
        to->numbers[to->n_texts * n + i] = logits[i];
        to->given[to->n_texts * n + i] = train_classes_at(classes, label, i);
    }
}

static void add_numbers(const TrainClasses *classes, ClassResult *to, const float *logits,
                        const float *told, int32_t label) {
    const int n = classes->n;
    bool same = true;
    if (to->keeps) keep_numbers(classes, to, logits, label);
    to->n_texts++;
    for (int i = 0; i < n; i++) {
        const double x = (double)logits[i], wanted = (double)train_classes_at(classes, label, i);
        if (classes->labels == CLASS_NUMBERS) {
            to->loss += (x - wanted) * (x - wanted) / n;
            continue;
        }
        const bool tells = (double)told[i] >= classes->threshold, has = wanted != 0;
        to->loss += (fmax(x, 0) - x * wanted + log1p(exp(-fabs(x)))) / n;
        to->texts[i] += has;
        to->told[i] += tells;
        to->right[i] += has && tells;
        same &= has == tells;
    }
    to->n_right += same;
}

/* What logits say, [n]. False: it is not finite. */
static bool find_told(const TrainClasses *classes, const float *logits, float *told) {
    bool finite = true;
    if (classes->labels == CLASS_ONE) {
        return isfinite(told[find_probabilities(logits, classes->n, told)]);
    }
    for (int i = 0; i < classes->n; i++) {
        const double x = (double)logits[i];
        told[i] = classes->labels == CLASS_SETS ? (float)(1 / (1 + exp(-x))) : logits[i];
        finite &= isfinite(x) != 0;
    }
    return finite;
}

/* The text at which logits and its label are; false: they are not finite. */
static bool tell_text(const TrainClasses *classes, const float *logits, int32_t label, float *told,
                      ClassResult *to, ClassTaker *take, void *user) {
    const bool finite = find_told(classes, logits, told);
    if (finite && train_classes_knows(classes, label)) {
        if (classes->labels == CLASS_ONE) {
            int best = 0;
            for (int i = 1; i < classes->n; i++) best = logits[i] > logits[best] ? i : best;
            add_text(to, logits, classes->n, best, label);
        } else {
            add_numbers(classes, to, logits, told, label);
        }
    }
    if (finite && take) take(user, told, label);
    return finite;
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
    float *told = ARENA_ARRAY(arena, float, n);
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
            const int32_t label = labels[first * seq + t];
            if (label == DATASET_NO_LABEL) continue;
            finite &= tell_text(classes, logits + t * n, label, told, to, take, user);
        }
    }
    arena_destroy(arena);
    if (!good || (finite && isfinite(to->loss))) return good;
    diag_error(diag, NO_LOC, "%s not finite; wrong weights?",
               finite                             ? "the loss is"
               : classes->labels == CLASS_NUMBERS ? "numbers are"
                                                  : "probabilities are");
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
