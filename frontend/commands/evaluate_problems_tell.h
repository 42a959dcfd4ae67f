/* What shares of answers in writing are right, as text and as JSON. */
#ifndef FRONTEND_COMMANDS_EVALUATE_PROBLEMS_TELL_H
#define FRONTEND_COMMANDS_EVALUATE_PROBLEMS_TELL_H

#include "frontend/commands/problem_file.h"

/* Of n answers, n_right of them right, the chance that k drawn without replacement have a right
 * one: 1 - C(n - n_right, k) / C(n, k)   (Chen et al. 2021, equation 1, without bias) */
double problem_pass_at(int n, int n_right, int k);

/* chat: the template's name; "": none. */
void evaluate_problems_put(StrBuf *out, const ProblemFile *file, int n_shots, int64_t length,
                           const char *chat);
void evaluate_problems_put_json(StrBuf *out, const ProblemFile *file, int n_shots,
                                const char *chat);

#endif
