#include "frontend/lua/lua_marks.h"

#include "frontend/lua/lua_lines.h"
#include "frontend/lua/lua_sandbox.h"

#include <lauxlib.h>
#include <string.h>

/* Key of the registry's table from tables to their Mark. */
static char MARKS;

typedef struct Mark {
    SourceLoc loc;
    const char *constructor;
} Mark;

/* Upvalue: the constructor's name. {...} -> the same table, marked. */
static int mark_table(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    const char *constructor = lua_tostring(lua, lua_upvalueindex(1));
    if (!lua_istable(lua, 1)) {
        return luaL_error(lua, "%s: takes a table, as in %s { ... }", constructor, constructor);
    }
    lua_settop(lua, 1);
    Mark *mark = ARENA_NEW(sandbox->arena, Mark);
    *mark = (Mark){sandbox_user_line(lua), arena_strdup(sandbox->arena, constructor)};
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &MARKS);
    lua_pushvalue(lua, 1);
    lua_pushlightuserdata(lua, mark);
    lua_rawset(lua, -3);
    lua_settop(lua, 1);
    return 1;
}

void lua_open_marks(lua_State *lua, const char *const *constructors) {
    lua_newtable(lua);
    lua_rawsetp(lua, LUA_REGISTRYINDEX, &MARKS);
    for (; *constructors; constructors++) {
        lua_pushstring(lua, *constructors);
        lua_pushcclosure(lua, mark_table, 1);
        lua_setglobal(lua, *constructors);
    }
}

/* Of the table on top of the stack; NULL: it has none. */
static const Mark *mark_of_top(lua_State *lua) {
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &MARKS);
    lua_pushvalue(lua, -2);
    lua_rawget(lua, -2);
    const Mark *mark = lua_touserdata(lua, -1);
    lua_pop(lua, 2);
    return mark;
}

bool lua_is_marked(lua_State *lua, int index) {
    lua_pushvalue(lua, index);
    const Mark *mark = mark_of_top(lua);
    lua_pop(lua, 1);
    return mark != NULL;
}

SourceLoc lua_mark_line(lua_State *lua, int index, const char *path) {
    const Sandbox *sandbox = sandbox_of(lua);
    const Mark *mark = NULL;
    const char *rest = path;
    int top = lua_gettop(lua);
    lua_pushvalue(lua, index);
    for (const char *at = path; lua_istable(lua, -1);) {
        const Mark *own = mark_of_top(lua);
        if (own) {
            mark = own;
            rest = at;
        }
        size_t part = strcspn(at, ".");
        if (!at[part]) break;
        lua_pushlstring(lua, at, part);
        lua_rawget(lua, -2);
        at += part + 1;
    }
    lua_settop(lua, top);
    if (!mark) return (SourceLoc){sandbox->path, 0};
    const LuaChunk *chunk = sandbox_find_chunk(sandbox, mark->loc.file);
    if (!chunk) return mark->loc;
    int line = lua_key_line(chunk->text, chunk->length, mark->loc.line, mark->constructor, rest);
    return (SourceLoc){mark->loc.file, line};
}
