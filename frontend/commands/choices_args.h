/* How questions with choices are asked, as options say: --choices and what goes with it, of
 * `evaluate` and `train`, whose name errors begin with. */
#ifndef FRONTEND_COMMANDS_CHOICES_ARGS_H
#define FRONTEND_COMMANDS_CHOICES_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/commands/evaluate_choices.h"
#include "planner/decode/decode.h"

/* But for `texts`. Options that make no sense without others are refused. False: reported. */
bool choices_args_way(const CliArgs *args, ChoicesWay *out, Diag *diag);

/* Whether the plan has what choices are scored by. False: reported. */
bool choices_args_check_plan(const CliArgs *args, const Plan *plan, Diag *diag);
/* And whether this is the one process that scores them. */
bool choices_args_check_job(const CliArgs *args, const EngineOptions *options, Diag *diag);

/* Where they are whole sequences: no option is for caches alone. False: reported. */
bool choices_args_check_rows(const CliArgs *args, Diag *diag);
/* On stderr, why they are; by the first process. */
void choices_args_note_rows(const CliArgs *args, const EngineOptions *options,
                            const DecodeObstacle *obstacle);

/* As tokens, behind --bos; of no chat. tokenizer NULL: as bytes. False: reported. */
bool choices_args_texts(const CliArgs *args, const Tokenizer *tokenizer, ChoiceTexts *out,
                        Diag *diag);

#endif
