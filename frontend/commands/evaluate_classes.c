#include "frontend/commands/evaluate_classes.h"

#include "frontend/commands/evaluate_scores.h"
#include "ir/base/json.h"
#include "ir/class_names.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* "label": "good", "probability": 0.9, "probabilities": [0.1, 0.9], "given": "bad" */
static void put_class_of(const TrainClasses *classes, const float *probabilities, int32_t class,
                         StrBuf *out) {
    int best = 0;
    for (int i = 1; i < classes->n; i++) best = probabilities[i] > probabilities[best] ? i : best;
    strbuf_put(out, "\"label\": ");
    json_put_text(out, class_names_at(classes->names, best).text);
    strbuf_printf(out, ", \"probability\": %.6g, \"probabilities\": [",
                  (double)probabilities[best]);
    for (int i = 0; i < classes->n; i++) {
        strbuf_printf(out, "%s%.6g", i ? ", " : "", (double)probabilities[i]);
    }
    strbuf_put(out, "]");
    if (class < classes->n) {
        strbuf_put(out, ", \"given\": ");
        json_put_text(out, class_names_at(classes->names, class).text);
    }
}

static void put_prediction(void *user, const float *told, int32_t label) {
    ClassEvaluation *e = user;
    const TrainClasses *classes = &e->data->classes;
    StrBuf *out = &e->predictions;
    strbuf_put(out, "{");
    if (classes->labels == CLASS_ONE) {
        put_class_of(classes, told, label, out);
    } else {
        score_put_prediction(classes, told, label, out);
    }
    if (e->source) {
        strbuf_put(out, ", \"path\": ");
        json_put_text(out, e->source);
    }
    strbuf_put(out, "}\n");
    e->n_predictions++;
}

static bool evaluate_source(ClassEvaluation *e, int source, int32_t *tokens, int32_t *labels,
                            Diag *diag) {
    const TrainPart *part = &e->data->val[source];
    const Plan *plan = e->data->plan;
    const int64_t n = dataset_count_windows(part->data), batch = plan->global_batch;
    e->source = e->data->n_val > 1 ? part->path : NULL;
    for (int64_t first = 0; first < n; first += batch) {
        int64_t count = n - first < batch ? n - first : batch;
        for (int64_t i = 0; i < count; i++) {
            if (!train_data_window(e->data, source, first + i, i, tokens, labels, diag)) {
                return false;
            }
        }
        if (!train_classes_tell(&e->data->classes, plan, e->engine, tokens, labels, count,
                                &e->results[source], e->predicts ? put_prediction : NULL, e,
                                diag)) {
            return false;
        }
        if (!e->line) continue;
        progress_line_show(e->line, (int)(first / batch + 1), (int)((n - 1) / batch + 1),
                           part->name);
    }
    if (e->results[source].n_texts > 0 || e->predicts) return true;
    diag_error(diag, (SourceLoc){part->path, 0}, "no text of it has a label");
    return false;
}

bool evaluate_classes(ClassEvaluation *e, int32_t *tokens, int32_t *labels, Diag *diag) {
    e->predictions = strbuf_create();
    e->results = ARENA_ARRAY(e->data->args->arena, ClassResult, e->data->n_val);
    for (int i = 0; i < e->data->n_val; i++) {
        e->results[i] = class_result_create(&e->data->classes, e->data->args->arena);
        e->results[i].keeps = e->data->classes.labels != CLASS_ONE;
        if (!evaluate_source(e, i, tokens, labels, diag)) return false;
    }
    return true;
}

static void put_classes(const TrainClasses *classes, const ClassResult *r, StrBuf *out) {
    for (int i = 0; i < classes->n && i < SCORE_MOST_PUT; i++) {
        score_put_name(classes, i, out);
        score_put_figure(out, "  precision", score_part(r->right[i], r->told[i]));
        score_put_figure(out, "  recall", score_part(r->right[i], r->texts[i]));
        score_put_figure(out, "  F1", class_result_f1(r, i));
        strbuf_printf(out, "  %" PRId64 " texts, %" PRId64 " told\n", r->texts[i], r->told[i]);
    }
    if (classes->n > SCORE_MOST_PUT) {
        strbuf_printf(out, "        and %d more: --json\n", classes->n - SCORE_MOST_PUT);
    }
}

void evaluate_classes_put(const ClassEvaluation *e, StrBuf *out) {
    const TrainClasses *classes = &e->data->classes;
    for (int i = 0; i < e->data->n_val; i++) {
        const ClassResult *r = &e->results[i];
        if (r->n_texts == 0) continue;
        if (classes->labels != CLASS_ONE) {
            score_put(classes, r, e->data->val[i].name, out);
            continue;
        }
        strbuf_printf(out,
                      "classes %.2f %% right, mean F1 %.4f, loss %.4f; %s: %" PRId64 " texts\n",
                      100 * score_part(r->n_right, r->n_texts), class_result_mean_f1(r, classes->n),
                      r->loss / (double)r->n_texts, e->data->val[i].name, r->n_texts);
        put_classes(classes, r, out);
    }
    if (!e->predicts) return;
    strbuf_printf(out, "wrote   %s: of %" PRId64 " texts\n",
                  cli_text(e->data->args, OPT_PREDICTIONS, ""), e->n_predictions);
}

void evaluate_classes_put_json(const ClassEvaluation *e, StrBuf *out) {
    const TrainClasses *classes = &e->data->classes;
    const ClassLabels labels = classes->labels;
    strbuf_put(out, labels == CLASS_NUMBERS ? "\"numbers\": [" : "\"classes\": [");
    for (int s = 0; s < e->data->n_val; s++) {
        const ClassResult *r = &e->results[s];
        strbuf_put(out, s ? ", {\"path\": " : "{\"path\": ");
        json_put_text(out, e->data->val[s].path);
        strbuf_printf(out, ", \"texts\": %" PRId64, r->n_texts);
        if (labels != CLASS_ONE) {
            score_put_json(classes, r, out);
            strbuf_put(out, "}");
            continue;
        }
        score_put_json_figure(out, "accuracy", score_part(r->n_right, r->n_texts));
        score_put_json_figure(out, "mean_f1", class_result_mean_f1(r, classes->n));
        score_put_json_figure(out, "loss", r->n_texts ? r->loss / (double)r->n_texts : NAN);
        strbuf_put(out, ", \"by_class\": [");
        for (int i = 0; i < classes->n; i++) {
            strbuf_put(out, i ? ", {\"name\": " : "{\"name\": ");
            json_put_text(out, class_names_at(classes->names, i).text);
            strbuf_printf(out,
                          ", \"texts\": %" PRId64 ", \"told\": %" PRId64 ", \"right\": %" PRId64,
                          r->texts[i], r->told[i], r->right[i]);
            score_put_json_figure(out, "precision", score_part(r->right[i], r->told[i]));
            score_put_json_figure(out, "recall", score_part(r->right[i], r->texts[i]));
            score_put_json_figure(out, "f1", class_result_f1(r, i));
            strbuf_put(out, "}");
        }
        strbuf_put(out, "]}");
    }
    strbuf_put(out, "]");
}

void evaluate_classes_release(ClassEvaluation *e) {
    strbuf_destroy(&e->predictions);
    for (int i = 0; e->results && i < e->data->n_val; i++) class_result_release(&e->results[i]);
}
