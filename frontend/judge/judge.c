#include "frontend/judge/judge.h"

#include "frontend/judge/judge_command.h"
#include "frontend/judge/judge_lua.h"
#include "frontend/judge/judge_model.h"
#include "ir/base/memory.h"

#include <stdlib.h>

/* One of them. */
struct Judge {
    LuaJudge *lua;
    CommandJudge *command;
    ModelJudge *model;
};

static Judge *make_judge(LuaJudge *lua, CommandJudge *command, ModelJudge *model) {
    if (!lua && !command && !model) return NULL;
    Judge *judge = memory_alloc(sizeof(Judge));
    *judge = (Judge){.lua = lua, .command = command, .model = model};
    return judge;
}

Judge *judge_open_lua(const char *path, Arena *arena, Diag *diag) {
    return make_judge(lua_judge_open(path, arena, diag), NULL, NULL);
}

Judge *judge_open_command(const char *command, double timeout_s, Diag *diag) {
    return make_judge(NULL, command_judge_open(command, timeout_s, diag), NULL);
}

Judge *judge_open_model(const Plan *plan, Engine *engine, uint32_t pad, Diag *diag) {
    return make_judge(NULL, NULL, model_judge_open(plan, engine, pad, diag));
}

bool judge_answers(Judge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                   Diag *diag) {
    if (judge->model) return model_judge_answers(judge->model, answers, n, out_rewards, diag);
    return judge->lua ? lua_judge_answers(judge->lua, answers, n, out_rewards, diag)
                      : command_judge_answers(judge->command, answers, n, out_rewards, diag);
}

bool judge_pairs(Judge *judge, const JudgedPair *pairs, int n, float *out_verdicts, Diag *diag) {
    if (judge->model) BUG("a model compares no pairs");
    return judge->lua ? lua_judge_pairs(judge->lua, pairs, n, out_verdicts, diag)
                      : command_judge_pairs(judge->command, pairs, n, out_verdicts, diag);
}

void judge_close(Judge *judge) {
    if (!judge) return;
    lua_judge_close(judge->lua);
    command_judge_close(judge->command);
    model_judge_close(judge->model);
    free(judge);
}
