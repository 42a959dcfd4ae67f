/* How well sets of classes and numbers are told, source by source: what evaluate_classes.h has of
 * classes of which a text has one. */
#ifndef FRONTEND_COMMANDS_EVALUATE_SCORES_H
#define FRONTEND_COMMANDS_EVALUATE_SCORES_H

#include "frontend/commands/train_classes.h"
#include "ir/base/strbuf.h"

enum { SCORE_MOST_PUT = 40 }; /* classes that a table has a line for */

/* The beginning of the line of class i: its name, as wide as any that has one. */
void score_put_name(const TrainClasses *classes, int i, StrBuf *out);
/* "WHAT 0.5000", or "WHAT none" of what is not a number. */
void score_put_figure(StrBuf *out, const char *what, double value);
/* , "KEY": 0.5, or null */
void score_put_json_figure(StrBuf *out, const char *key, double value);
/* part / all; of none, not a number. */
double score_part(int64_t part, int64_t all);

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
