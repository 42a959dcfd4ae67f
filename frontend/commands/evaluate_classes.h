/* How well a model tells classes of texts, source by source, and what it says of each text. */
#ifndef FRONTEND_COMMANDS_EVALUATE_CLASSES_H
#define FRONTEND_COMMANDS_EVALUATE_CLASSES_H

#include "frontend/commands/train_data.h"
#include "frontend/progress_line.h"
#include "ir/base/strbuf.h"

typedef struct ClassEvaluation {
    TrainData *data;
    Engine *engine;
    ProgressLine *line;   /* NULL: nobody is told */
    ClassResult *results; /* [n_val] */
    bool predicts;        /* what is said of each text is kept */
    StrBuf predictions;   /* lines of JSON, released by evaluate_classes_release */
    const char *source;   /* of the next text; NULL: there is one */
    int64_t n_predictions;
} ClassEvaluation;

/* tokens, labels [global_batch, seq] are room. False: reported. */
bool evaluate_classes(ClassEvaluation *e, int32_t *tokens, int32_t *labels, Diag *diag);
void evaluate_classes_put(const ClassEvaluation *e, StrBuf *out);
/* "classes": [...] */
void evaluate_classes_put_json(const ClassEvaluation *e, StrBuf *out);
void evaluate_classes_release(ClassEvaluation *e);

#endif
