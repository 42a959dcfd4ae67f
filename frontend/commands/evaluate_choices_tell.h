/* What is told of questions with choices: shares of right
 * ones with their standard errors, that is sqrt(p (1 - p) / (n - 1)), as the harness has it. */
#ifndef FRONTEND_COMMANDS_EVALUATE_CHOICES_TELL_H
#define FRONTEND_COMMANDS_EVALUATE_CHOICES_TELL_H

#include "frontend/commands/evaluate_choices.h"

/* Of answers that are greedy or not: exp of minus the mean of their logarithms. */
double evaluate_choices_perplexity(const ChoicesResult *r);
/* Lines of text. chat: the template that choices are answers by; "": they are none. */
void evaluate_choices_put(StrBuf *out, const char *path, const ChoicesWay *way,
                          const ChoicesResult *r, const char *chat);
/* A JSON object. */
void evaluate_choices_put_json(StrBuf *out, const char *path, const ChoicesWay *way,
                               const ChoicesResult *r, const char *chat);

#endif
