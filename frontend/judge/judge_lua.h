/* A judge that is a Lua script, in the sandbox: it may take as much memory, instructions and time
 * for each answer as a model's script may for a model. Its globals stay from answer to answer.
 *
 *     return function(line)
 *       return line.text == line.solution and 1 or 0
 *     end
 *
 * For answers in texts there are answer.find(text, FILTER), a text or nil, and
 * answer.is_right(text, right, FILTER): answer_match.h, whose names of filters FILTER is one of.
 */
#ifndef FRONTEND_JUDGE_JUDGE_LUA_H
#define FRONTEND_JUDGE_JUDGE_LUA_H

#include "frontend/judge/judge.h"

typedef struct LuaJudge LuaJudge;

/* As judge.h has them. */
LuaJudge *lua_judge_open(const char *path, Arena *arena, Diag *diag);
bool lua_judge_answers(LuaJudge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                       Diag *diag);
/* By a function(line, a, b): the prompt's line, and of each answer text, tokens and ended. */
bool lua_judge_pairs(LuaJudge *judge, const JudgedPair *pairs, int n, float *out_verdicts,
                     Diag *diag);
void lua_judge_close(LuaJudge *judge);

#endif
