/* A judge that is a program: it reads answers, an object of JSON a line, and writes the reward of
 * each as a line with a number, in their order. Its standard error is ours.
 *
 * It is started once and goes on until its standard input ends. All answers of a call are sent
 * while rewards are read, so a program may read many before it writes, and judge them side by side.
 * It is in a process group of its own: Ctrl-C, after which training saves, does not end it.
 */
#ifndef FRONTEND_JUDGE_JUDGE_COMMAND_H
#define FRONTEND_JUDGE_JUDGE_COMMAND_H

#include "frontend/judge/judge.h"

typedef struct CommandJudge CommandJudge;

/* As judge.h has them. */
CommandJudge *command_judge_open(const char *command, double timeout_s, Diag *diag);
bool command_judge_answers(CommandJudge *judge, const JudgedAnswer *answers, int n,
                           float *out_rewards, Diag *diag);
bool command_judge_pairs(CommandJudge *judge, const JudgedPair *pairs, int n, float *out_verdicts,
                         Diag *diag);
void command_judge_close(CommandJudge *judge);

#endif
