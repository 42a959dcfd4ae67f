#include "frontend/judge/judge_lua.h"

#include "frontend/judge/answer_match.h"
#include "frontend/lua/lua_sandbox.h"

#include <lauxlib.h>
#include <math.h>

struct LuaJudge {
    Sandbox *sandbox;
    const JudgedAnswer *answer; /* that is being judged, */
    const JudgedPair *pair;     /* or, not NULL, two that are compared */
    float reward;
};

/* Its address is the registry's key of the function. */
static char FUNCTION;

/* --- answers in texts --- */

static AnswerFilter check_filter(lua_State *lua, int index) {
    const char *names[N_ANSWER_FILTERS + 1] = {0};
    for (int f = 0; f < N_ANSWER_FILTERS; f++) names[f] = answer_filter_name((AnswerFilter)f);
    return (AnswerFilter)luaL_checkoption(lua, index, NULL, names);
}

/* Times the passes that are made over it, roughly. */
static AnswerText check_text(lua_State *lua, int index) {
    const int64_t PASSES = 64;
    AnswerText text;
    text.text = luaL_checklstring(lua, index, &text.length);
    sandbox_count_steps(lua, PASSES * (int64_t)text.length);
    return text;
}

/* answer.find(text, filter): a text, or nil. */
static int find_answer(lua_State *lua) {
    const AnswerText found = answer_extract(check_filter(lua, 2), check_text(lua, 1));
    if (found.text) {
        lua_pushlstring(lua, found.text, found.length);
    } else {
        lua_pushnil(lua);
    }
    return 1;
}

/* answer.is_right(text, right, filter) */
static int is_answer_right(lua_State *lua) {
    const AnswerFilter filter = check_filter(lua, 3);
    const AnswerText text = check_text(lua, 1), right = check_text(lua, 2);
    lua_pushboolean(lua, answer_is_right(filter, answer_extract(filter, text), right));
    return 1;
}

static void open_globals(lua_State *lua) {
    static const luaL_Reg FUNCTIONS[] = {
        {"find", find_answer}, {"is_right", is_answer_right}, {NULL, NULL}};
    luaL_newlib(lua, FUNCTIONS);
    lua_setglobal(lua, "answer");
}

/* --- the script --- */

static int open_body(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    open_globals(lua);
    int n_results = sandbox_run_script(lua);
    if (n_results != 1 || !lua_isfunction(lua, 1)) {
        diag_error(sandbox->diag, (SourceLoc){sandbox->path, 0},
                   "the script must end in `return function(line) ... end`, which returns the "
                   "reward of an answer (or, to compare two, `function(line, a, b)`); it returned "
                   "%s",
                   n_results == 0  ? "nothing"
                   : n_results > 1 ? "several values"
                                   : luaL_typename(lua, 1));
        sandbox_fail(lua);
    }
    lua_rawsetp(lua, LUA_REGISTRYINDEX, &FUNCTION);
    return 0;
}

LuaJudge *lua_judge_open(const char *path, Arena *arena, Diag *diag) {
    static const EmbeddedScript NONE[] = {{0}}; /* layers of models are of no use here */
    Sandbox *sandbox = sandbox_create(arena, path, diag);
    if (!sandbox) return NULL;
    sandbox->embedded = NONE;
    if (!sandbox_run(sandbox, open_body)) {
        sandbox_destroy(sandbox);
        return NULL;
    }
    LuaJudge *judge = ARENA_NEW(arena, LuaJudge);
    judge->sandbox = sandbox;
    sandbox->context = judge;
    return judge;
}

void lua_judge_close(LuaJudge *judge) {
    if (judge) sandbox_destroy(judge->sandbox);
}

/* --- an answer --- */

static void push_json(lua_State *lua, const json_t *value);

/* A table of all fields, with room for so many more. */
static void push_object(lua_State *lua, const json_t *object, int n_more) {
    json_t *fields = (json_t *)object; /* jansson's iterators want it so; nothing is changed */
    const char *key;
    json_t *value;
    lua_createtable(lua, 0, (int)json_object_size(object) + n_more);
    json_object_foreach(fields, key, value) {
        push_json(lua, value);
        lua_setfield(lua, -2, key);
    }
}

/* null is nil. jansson reads nothing that is nested more than 2048 deep. */
static void push_json(lua_State *lua, const json_t *value) {
    luaL_checkstack(lua, 4, "the prompt's line is nested too deep");
    switch (json_typeof(value)) {
    case JSON_OBJECT: push_object(lua, value, 0); return;
    case JSON_ARRAY:
        lua_createtable(lua, (int)json_array_size(value), 0);
        for (size_t i = 0; i < json_array_size(value); i++) {
            push_json(lua, json_array_get(value, i));
            lua_rawseti(lua, -2, (lua_Integer)i + 1);
        }
        return;
    case JSON_STRING:
        lua_pushlstring(lua, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER: lua_pushinteger(lua, json_integer_value(value)); return;
    case JSON_REAL: lua_pushnumber(lua, json_real_value(value)); return;
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(lua, json_is_true(value)); return;
    case JSON_NULL: lua_pushnil(lua); return;
    }
}

/* Into the table on top. */
static void set_answer(lua_State *lua, const JudgedAnswer *answer) {
    lua_pushlstring(lua, answer->text, answer->length);
    lua_setfield(lua, -2, "text");
    lua_pushinteger(lua, answer->n_tokens);
    lua_setfield(lua, -2, "tokens");
    lua_pushboolean(lua, answer->ended);
    lua_setfield(lua, -2, "ended");
}

/* The function's arguments; how many. */
static int push_arguments(lua_State *lua, const LuaJudge *judge) {
    const JudgedPair *pair = judge->pair;
    if (!pair) {
        push_object(lua, judge->answer->record, 3);
        set_answer(lua, judge->answer);
        return 1;
    }
    push_object(lua, pair->a.record, 0);
    for (int i = 0; i < 2; i++) {
        lua_createtable(lua, 0, 3);
        set_answer(lua, i ? &pair->b : &pair->a);
    }
    return 3;
}

/* Of the value at index 1, at the line where the function begins: it has returned. */
static _Noreturn void refuse_reward(lua_State *lua) {
    Diag *diag = sandbox_of(lua)->diag;
    const LuaJudge *judge = sandbox_of(lua)->context;
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &FUNCTION);
    SourceLoc loc = sandbox_function_line(lua);
    if (lua_type(lua, 1) != LUA_TNUMBER) {
        diag_error(diag, loc, "returns %s%s; it must return a number, %s",
                   lua_isnil(lua, 1) ? "" : "a ", luaL_typename(lua, 1),
                   judge->pair ? "above 0 where a is the better answer, below 0 where b is"
                               : "the reward");
    } else {
        double value = lua_tonumber(lua, 1); /* a NaN may have a sign */
        diag_error(diag, loc, "returns %g; %s", isnan(value) ? (double)NAN : value,
                   judge->pair ? "it must be above 0, below 0, or 0"
                               : "a reward must be a finite number, of f32");
    }
    sandbox_fail(lua);
}

static int answer_body(lua_State *lua) {
    LuaJudge *judge = sandbox_of(lua)->context;
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &FUNCTION);
    lua_call(lua, push_arguments(lua, judge), 1);
    const double value = lua_type(lua, 1) == LUA_TNUMBER ? lua_tonumber(lua, 1) : (double)NAN;
    judge->reward = judge->pair ? judged_pair_verdict(value) : (float)value;
    if (!isfinite(judge->reward)) refuse_reward(lua);
    return 0;
}

bool lua_judge_pairs(LuaJudge *judge, const JudgedPair *pairs, int n, float *out_verdicts,
                     Diag *diag) {
    bool good = true;
    judge->sandbox->diag = diag;
    for (int i = 0; i < n && good; i++) {
        judge->pair = &pairs[i];
        good = sandbox_run(judge->sandbox, answer_body);
        out_verdicts[i] = judge->reward;
    }
    judge->pair = NULL;
    return good;
}

bool lua_judge_answers(LuaJudge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                       Diag *diag) {
    judge->sandbox->diag = diag;
    for (int i = 0; i < n; i++) {
        judge->answer = &answers[i];
        if (!sandbox_run(judge->sandbox, answer_body)) return false;
        out_rewards[i] = judge->reward;
    }
    return true;
}
