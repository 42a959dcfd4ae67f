/* How questions with choices are asked, as options say, and what is told of them: shares of right
 * ones with their standard errors, that is sqrt(p (1 - p) / (n - 1)), as the harness has it. */
#ifndef FRONTEND_COMMANDS_EVALUATE_CHOICES_TELL_H
#define FRONTEND_COMMANDS_EVALUATE_CHOICES_TELL_H

#include "frontend/commands/cli.h"
#include "frontend/commands/evaluate_choices.h"

/* But for `texts`. Options that make no sense without others are refused. False: reported. */
bool choices_way_from_args(const CliArgs *args, ChoicesWay *out, Diag *diag);

/* Lines of text. chat: the template that choices are answers by; "": they are none. */
void evaluate_choices_put(StrBuf *out, const char *path, const ChoicesWay *way,
                          const ChoicesResult *r, const char *chat);
/* A JSON object. */
void evaluate_choices_put_json(StrBuf *out, const char *path, const ChoicesWay *way,
                               const ChoicesResult *r, const char *chat);

#endif
