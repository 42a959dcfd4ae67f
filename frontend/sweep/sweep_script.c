#include "frontend/sweep/sweep_script.h"

#include "frontend/lua/lua_sandbox.h"
#include "frontend/sweep/vary.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 100 };

struct SweepScript {
    Sandbox *sandbox;
    bool is_function;
    SweepOptions *runs; /* of a list */
    int n_runs, capacity;
    const SweepOptions *varied; /* of a call, */
    SweepOptions *out;          /* and what it says */
    bool left_out;
};

/* Its address is the registry's key of the function. */
static char FUNCTION;

static _Noreturn void fail(lua_State *lua, SourceLoc loc, const char *what) {
    diag_error(sandbox_of(lua)->diag, loc, "%s", what);
    sandbox_fail(lua);
}

/* The value on top of the stack. */
static const char *read_value(lua_State *lua, SourceLoc loc, const char *key) {
    Arena *arena = sandbox_of(lua)->arena;
    switch (lua_type(lua, -1)) {
    case LUA_TBOOLEAN: return lua_toboolean(lua, -1) ? "true" : "false";
    case LUA_TNUMBER:
        if (lua_isinteger(lua, -1)) {
            return arena_printf(arena, "%" PRId64, (int64_t)lua_tointeger(lua, -1));
        }
        if (!isfinite(lua_tonumber(lua, -1))) break;
        return arena_printf(arena, "%.14g", (double)lua_tonumber(lua, -1));
    case LUA_TSTRING: {
        size_t length;
        const char *text = lua_tolstring(lua, -1, &length);
        if (strlen(text) == length && vary_is_plain(text))
            return arena_strndup(arena, text, length);
        break;
    }
    default: break;
    }
    fail(lua, loc,
         arena_printf(arena, "'%s' is %s: options are finite numbers, texts, true or false", key,
                      lua_type(lua, -1) == LUA_TNUMBER   ? "no finite number"
                      : lua_type(lua, -1) == LUA_TSTRING ? "a text with control characters"
                                                         : luaL_typename(lua, -1)));
}

/* All fields of the table on top, behind `prefix`. */
static void read_fields(lua_State *lua, SourceLoc loc, const char *prefix, SweepOptions *out) {
    Arena *arena = sandbox_of(lua)->arena;
    const int table = lua_gettop(lua);
    luaL_checkstack(lua, 4, NULL);
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) {
        if (lua_type(lua, -2) != LUA_TSTRING) {
            fail(lua, loc, "a run's table has a key that is no name of an option");
        }
        const char *key = arena_printf(arena, "%s%s", prefix, lua_tostring(lua, -2));
        const bool has_settings = strcmp(key, "set") == 0 || strcmp(key, "teacher-set") == 0;
        if (!vary_is_plain(key)) fail(lua, loc, "a key has control characters");
        if (lua_istable(lua, -1) && has_settings) {
            read_fields(lua, loc, arena_printf(arena, "%s.", key), out);
            continue;
        }
        if (out->count == MOST_OPTIONS) fail(lua, loc, "a run has more than 100 options");
        SweepOption option = {key, read_value(lua, loc, key)};
        ARENA_PUSH(arena, out->items, out->count, out->capacity, option);
    }
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const SweepOption *)a)->key, ((const SweepOption *)b)->key);
}

/* Of the table on top; Lua's own order is another in each process. */
static void read_run(lua_State *lua, SourceLoc loc, SweepOptions *out) {
    *out = (SweepOptions){0};
    read_fields(lua, loc, "", out);
    if (out->count) qsort(out->items, (size_t)out->count, sizeof(*out->items), compare_keys);
}

static int open_body(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    SweepScript *script = sandbox->context;
    const SourceLoc whole = {sandbox->path, 0};
    int n_results = sandbox_run_script(lua);
    if (n_results != 1 || (!lua_isfunction(lua, 1) && !lua_istable(lua, 1))) {
        fail(lua, whole,
             "the script must end in `return { {lr = 1e-3, ...}, ... }`, a table for each run, or "
             "in `return function(run) ... end`");
    }
    script->is_function = lua_isfunction(lua, 1);
    if (script->is_function) {
        lua_rawsetp(lua, LUA_REGISTRYINDEX, &FUNCTION);
        return 0;
    }
    const lua_Integer n = (lua_Integer)lua_rawlen(lua, 1);
    if (n == 0) fail(lua, whole, "the list has no runs");
    if (n > SWEEP_MOST_RUNS) {
        fail(lua, whole,
             arena_printf(sandbox->arena, "the list has %lld runs: at most %d", (long long)n,
                          SWEEP_MOST_RUNS));
    }
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(lua, 1, i) != LUA_TTABLE) {
            fail(lua, whole,
                 arena_printf(sandbox->arena, "run %lld of the list is a %s, not a table",
                              (long long)i, luaL_typename(lua, -1)));
        }
        SweepOptions run;
        read_run(lua, whole, &run);
        ARENA_PUSH(sandbox->arena, script->runs, script->n_runs, script->capacity, run);
        lua_pop(lua, 1);
    }
    return 0;
}

SweepScript *sweep_script_open(Arena *arena, const char *path, Diag *diag) {
    static const EmbeddedScript NONE[] = {{0}}; /* layers of models are of no use here */
    Sandbox *sandbox = sandbox_create(arena, path, diag);
    if (!sandbox) return NULL;
    SweepScript *script = ARENA_NEW(arena, SweepScript);
    script->sandbox = sandbox;
    sandbox->context = script;
    sandbox->embedded = NONE;
    if (sandbox_run(sandbox, open_body)) return script;
    sandbox_destroy(sandbox);
    return NULL;
}

void sweep_script_close(SweepScript *script) {
    if (script) sandbox_destroy(script->sandbox);
}

bool sweep_script_is_function(const SweepScript *script) {
    return script->is_function;
}

const SweepOptions *sweep_script_runs(const SweepScript *script, int *out_count) {
    *out_count = script->n_runs;
    return script->runs;
}

/* Numbers as numbers, so that scripts can reckon with them, and "false" as what is false. */
static void push_value(lua_State *lua, const char *text) {
    const bool is_true = strcmp(text, "true") == 0;
    if (is_true || strcmp(text, "false") == 0) {
        lua_pushboolean(lua, is_true);
    } else if (lua_stringtonumber(lua, text) == 0) {
        lua_pushstring(lua, text);
    }
}

static int call_body(lua_State *lua) {
    SweepScript *script = sandbox_of(lua)->context;
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &FUNCTION);
    const SourceLoc loc = sandbox_function_line(lua);
    lua_createtable(lua, 0, script->varied->count);
    for (int i = 0; i < script->varied->count; i++) {
        push_value(lua, script->varied->items[i].value);
        lua_setfield(lua, -2, script->varied->items[i].key);
    }
    lua_call(lua, 1, 1);
    script->left_out = lua_isnil(lua, -1);
    if (script->left_out) return 0;
    if (!lua_istable(lua, -1)) fail(lua, loc, "must return a table of options, or nil: no run");
    read_run(lua, loc, script->out);
    return 0;
}

bool sweep_script_call(SweepScript *script, const SweepOptions *varied, SweepOptions *out,
                       bool *out_left_out) {
    *out = (SweepOptions){0};
    script->varied = varied;
    script->out = out;
    bool good = sandbox_run(script->sandbox, call_body);
    *out_left_out = script->left_out;
    return good;
}
