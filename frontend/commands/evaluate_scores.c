#include "frontend/commands/evaluate_scores.h"

#include "frontend/commands/score_metrics.h"
#include "ir/base/json.h"
#include "runtime/tokenizer/characters.h"

#include <inttypes.h>
#include <math.h>

/* --- what is said of each text --- */

static void put_numbers(StrBuf *out, const char *key, const float *numbers, int n, bool alone) {
    strbuf_printf(out, "\"%s\": %s", key, alone ? "" : "[");
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%.6g", i ? ", " : "", (double)numbers[i]);
    if (!alone) strbuf_put(out, "]");
}

/* The names of those that are at least so much. */
static void put_set(const TrainClasses *classes, StrBuf *out, const char *key, const float *numbers,
                    double least) {
    bool any = false;
    strbuf_printf(out, "\"%s\": [", key);
    for (int i = 0; i < classes->n; i++) {
        if (!((double)numbers[i] >= least)) continue;
        if (any) strbuf_put(out, ", ");
        json_put_text(out, class_names_at(classes->names, i).text);
        any = true;
    }
    strbuf_put(out, "]");
}

void score_put_prediction(const TrainClasses *classes, const float *told, int32_t label,
                          StrBuf *out) {
    const int n = classes->n;
    const bool alone = n == 1, sets = classes->labels == CLASS_SETS;
    float given[CLASS_MOST];
    if (sets) {
        put_set(classes, out, "labels", told, classes->threshold);
        strbuf_put(out, ", ");
        put_numbers(out, "probabilities", told, n, false);
    } else {
        put_numbers(out, alone ? "label" : "labels", told, n, alone);
    }
    if (!train_classes_knows(classes, label)) return;
    for (int i = 0; i < n; i++) given[i] = train_classes_at(classes, label, i);
    strbuf_put(out, ", ");
    if (sets) {
        put_set(classes, out, "given", given, 1);
    } else {
        put_numbers(out, "given", given, n, alone);
    }
}

/* --- of all --- */

typedef struct SetFigures {
    double exact, micro, macro, precision;
} SetFigures;

static double class_precision(const ClassResult *r, int n, int class) {
    return score_average_precision(r->numbers + class, r->given + class, r->n_texts, n);
}

static SetFigures find_set_figures(const TrainClasses *classes, const ClassResult *r) {
    double both = 0, right = 0, sum = 0, count = 0;
    for (int i = 0; i < classes->n; i++) {
        const double precision = class_precision(r, classes->n, i);
        right += (double)r->right[i];
        both += (double)(r->texts[i] + r->told[i]);
        if (isnan(precision)) continue;
        sum += precision;
        count++;
    }
    return (SetFigures){.exact = (double)r->n_right / (double)r->n_texts,
                        .micro = both > 0 ? 2 * right / both : NAN,
                        .macro = class_result_mean_f1(r, classes->n),
                        .precision = count > 0 ? sum / count : NAN};
}

typedef struct NumberFigures {
    double squared, absolute, pearson, spearman, r2;
} NumberFigures;

static NumberFigures find_number_figures(const ClassResult *r, int n, int i) {
    const float *told = r->numbers + i, *given = r->given + i;
    return (NumberFigures){.squared = score_mean_error(told, given, r->n_texts, n, 2),
                           .absolute = score_mean_error(told, given, r->n_texts, n, 1),
                           .pearson = score_pearson(told, given, r->n_texts, n),
                           .spearman = score_spearman(told, given, r->n_texts, n),
                           .r2 = score_r2(told, given, r->n_texts, n)};
}

/* --- as text --- */

void score_put_figure(StrBuf *out, const char *what, double value) {
    if (isnan(value)) {
        strbuf_printf(out, "%s none", what);
    } else {
        strbuf_printf(out, "%s %.4f", what, value);
    }
}

void score_put_name(const TrainClasses *classes, int i, StrBuf *out) {
    int width = 0;
    for (int k = 0; k < classes->n && k < SCORE_MOST_PUT; k++) {
        const int columns = text_columns(class_names_at(classes->names, k).text);
        if (columns > width) width = columns;
    }
    const ClassName name = class_names_at(classes->names, i);
    strbuf_printf(out, "        %s%*s", name.text, width - text_columns(name.text), "");
}

double score_part(int64_t part, int64_t all) {
    return all > 0 ? (double)part / (double)all : NAN;
}

static void put_class(const TrainClasses *classes, const ClassResult *r, int i, StrBuf *out) {
    score_put_name(classes, i, out);
    score_put_figure(out, "  precision", score_part(r->right[i], r->told[i]));
    score_put_figure(out, "  recall", score_part(r->right[i], r->texts[i]));
    score_put_figure(out, "  F1", class_result_f1(r, i));
    score_put_figure(out, "  average precision", class_precision(r, classes->n, i));
    strbuf_printf(out, "  %" PRId64 " texts, %" PRId64 " told\n", r->texts[i], r->told[i]);
}

static void put_number(const NumberFigures *f, StrBuf *out) {
    score_put_figure(out, "squared error", f->squared);
    score_put_figure(out, ", absolute", f->absolute);
    score_put_figure(out, "; Pearson's r", f->pearson);
    score_put_figure(out, ", Spearman's", f->spearman);
    score_put_figure(out, ", R^2", f->r2);
}

void score_put(const TrainClasses *classes, const ClassResult *r, const char *name, StrBuf *out) {
    const int n = classes->n, shown = n < SCORE_MOST_PUT ? n : SCORE_MOST_PUT;
    if (classes->labels == CLASS_SETS) {
        const SetFigures f = find_set_figures(classes, r);
        strbuf_printf(out, "classes %.2f %% exactly right", 100 * f.exact);
        score_put_figure(out, "; F1 micro", f.micro);
        score_put_figure(out, ", macro", f.macro);
        score_put_figure(out, "; mean average precision", f.precision);
        strbuf_printf(out, ", loss %.4f; %s: %" PRId64 " texts\n", r->loss / (double)r->n_texts,
                      name, r->n_texts);
        for (int i = 0; i < shown; i++) put_class(classes, r, i, out);
    } else if (n == 1) {
        const NumberFigures f = find_number_figures(r, n, 0);
        strbuf_put(out, "numbers ");
        put_number(&f, out);
        strbuf_printf(out, "; %s: %" PRId64 " texts\n", name, r->n_texts);
    } else {
        strbuf_printf(out, "numbers squared error %.4f in the mean; %s: %" PRId64 " texts\n",
                      r->loss / (double)r->n_texts, name, r->n_texts);
        for (int i = 0; i < shown; i++) {
            const NumberFigures f = find_number_figures(r, n, i);
            score_put_name(classes, i, out);
            strbuf_put(out, "  ");
            put_number(&f, out);
            strbuf_put(out, "\n");
        }
    }
    if (shown < n) strbuf_printf(out, "        and %d more: --json\n", n - shown);
}

/* --- as JSON --- */

void score_put_json_figure(StrBuf *out, const char *key, double value) {
    if (isnan(value)) {
        strbuf_printf(out, ", \"%s\": null", key);
    } else {
        strbuf_printf(out, ", \"%s\": %.9g", key, value);
    }
}

static void put_json_number(const ClassResult *r, int n, int i, StrBuf *out) {
    const NumberFigures f = find_number_figures(r, n, i);
    score_put_json_figure(out, "squared_error", f.squared);
    score_put_json_figure(out, "absolute_error", f.absolute);
    score_put_json_figure(out, "pearson", f.pearson);
    score_put_json_figure(out, "spearman", f.spearman);
    score_put_json_figure(out, "r2", f.r2);
}

void score_put_json(const TrainClasses *classes, const ClassResult *r, StrBuf *out) {
    const bool sets = classes->labels == CLASS_SETS;
    if (r->n_texts == 0) return;
    score_put_json_figure(out, sets ? "loss" : "squared_error", r->loss / (double)r->n_texts);
    if (sets) {
        const SetFigures f = find_set_figures(classes, r);
        score_put_json_figure(out, "threshold", classes->threshold);
        score_put_json_figure(out, "accuracy", f.exact);
        score_put_json_figure(out, "micro_f1", f.micro);
        score_put_json_figure(out, "macro_f1", f.macro);
        score_put_json_figure(out, "mean_average_precision", f.precision);
    }
    strbuf_put(out, sets ? ", \"by_class\": [" : ", \"by_number\": [");
    for (int i = 0; i < classes->n; i++) {
        strbuf_put(out, i ? ", {\"name\": " : "{\"name\": ");
        json_put_text(out, class_names_at(classes->names, i).text);
        if (sets) {
            strbuf_printf(out,
                          ", \"texts\": %" PRId64 ", \"told\": %" PRId64 ", \"right\": %" PRId64,
                          r->texts[i], r->told[i], r->right[i]);
            score_put_json_figure(out, "precision", score_part(r->right[i], r->told[i]));
            score_put_json_figure(out, "recall", score_part(r->right[i], r->texts[i]));
            score_put_json_figure(out, "f1", class_result_f1(r, i));
            score_put_json_figure(out, "average_precision", class_precision(r, classes->n, i));
        } else {
            put_json_number(r, classes->n, i, out);
        }
        strbuf_put(out, "}");
    }
    strbuf_put(out, "]");
}
