/* Problems that are answered in writing: what share of the answers is right.
 *
 * Files are as problem_file.h has them. Answers are written as `generate --prompts` writes, side by
 * side and with caches, the likeliest token by default, to the end of the text, a text that ends
 * the benchmark's answers, or --length tokens. A prompt that leaves too little room for those in
 * the context loses its beginning, as in lm-evaluation-harness; one of a chat leaves less room.
 */
#ifndef FRONTEND_COMMANDS_EVALUATE_PROBLEMS_H
#define FRONTEND_COMMANDS_EVALUATE_PROBLEMS_H

#include "frontend/commands/cli.h"

/* `evaluate --problems`; the exit code. */
int evaluate_problems(CliArgs *args);
/* Options that say how answers are written need --problems. False: reported. */
bool evaluate_problems_check_absent(const CliArgs *args, Diag *diag);

#endif
