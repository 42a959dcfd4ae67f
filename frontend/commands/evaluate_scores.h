/* How well sets of classes and numbers are told, source by source: what evaluate_classes.h has of
 * classes of which a text has one. */
#ifndef FRONTEND_COMMANDS_EVALUATE_SCORES_H
#define FRONTEND_COMMANDS_EVALUATE_SCORES_H

#include "frontend/commands/train_classes.h"
#include "ir/base/strbuf.h"

/* What is said of a text and, where it is known, what was given, without the braces:
 *   "labels": ["a"], "probabilities": [0.9, 0.2], "given": []      or, of one number,
 *   "label": 3.4, "given": 3.5                                     else lists of them. */
void score_put_prediction(const TrainClasses *classes, const float *told, int32_t label,
                          StrBuf *out);
/* `name`: the source's, which has texts. */
void score_put(const TrainClasses *classes, const ClassResult *result, const char *name,
               StrBuf *out);
/* What follows "texts": n; a brace that is open stays so. */
void score_put_json(const TrainClasses *classes, const ClassResult *result, StrBuf *out);

#endif
