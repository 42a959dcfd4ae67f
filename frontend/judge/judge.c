#include "frontend/judge/judge.h"

#include "frontend/judge/judge_command.h"
#include "frontend/judge/judge_lua.h"
#include "ir/base/memory.h"

#include <stdlib.h>

/* One of them. */
struct Judge {
    LuaJudge *lua;
    CommandJudge *command;
};

static Judge *make_judge(LuaJudge *lua, CommandJudge *command) {
    if (!lua && !command) return NULL;
    Judge *judge = memory_alloc(sizeof(Judge));
    *judge = (Judge){.lua = lua, .command = command};
    return judge;
}

Judge *judge_open_lua(const char *path, Arena *arena, Diag *diag) {
    return make_judge(lua_judge_open(path, arena, diag), NULL);
}

Judge *judge_open_command(const char *command, double timeout_s, Diag *diag) {
    return make_judge(NULL, command_judge_open(command, timeout_s, diag));
}

bool judge_answers(Judge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                   Diag *diag) {
    return judge->lua ? lua_judge_answers(judge->lua, answers, n, out_rewards, diag)
                      : command_judge_answers(judge->command, answers, n, out_rewards, diag);
}

void judge_close(Judge *judge) {
    if (!judge) return;
    lua_judge_close(judge->lua);
    command_judge_close(judge->command);
    free(judge);
}
