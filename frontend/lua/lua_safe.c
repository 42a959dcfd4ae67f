#include "frontend/lua/lua_safe.h"

#include "frontend/lua/lua_match.h"
#include "frontend/lua/lua_sandbox.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_LIST = 1 << 18, /* elements that one table function may walk */
    MAX_SORTED_PAIRS = 1 << 16,
    MAX_REPEAT_BYTES = 1 << 24,
    SORT_TURNS = 36, /* how often table.sort compares each of MAX_LIST elements: 2 log2 of them */
};

/* Bytes that a call may compare, many at a time. */
static const double MAX_COMPARED_BYTES = 4e9;

/* Calls upvalue 1, the original function, with all arguments. */
static int call_original(lua_State *lua) {
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
    return lua_gettop(lua);
}

static int repeat_checked(lua_State *lua) {
    size_t length, separator = 0;
    luaL_checklstring(lua, 1, &length);
    lua_Integer n = luaL_checkinteger(lua, 2);
    luaL_optlstring(lua, 3, "", &separator);
    if (n > 0 && ((double)length + (double)separator + 1) * (double)n > MAX_REPEAT_BYTES) {
        return luaL_error(lua, "string.rep: the result would be too long");
    }
    return call_original(lua);
}

/* table.insert, remove: as long as the list is. What a metatable says of its length, it may say
 * otherwise when the original asks. */
static int list_checked(lua_State *lua) {
    luaL_checkany(lua, 1);
    if (luaL_getmetafield(lua, 1, "__len") != LUA_TNIL) {
        return luaL_error(lua, "this list has a metatable that tells its length ('__len')");
    }
    if (lua_istable(lua, 1) && lua_rawlen(lua, 1) > MAX_LIST) {
        return luaL_error(lua, "this list has more than %d elements", MAX_LIST);
    }
    return call_original(lua);
}

/* Its own order reads texts to where they differ; what another does counts as calls. */
static int sort_checked(lua_State *lua) {
    double bytes = 0;
    bool own_order = lua_istable(lua, 1) && lua_isnoneornil(lua, 2);
    lua_Integer n = own_order ? (lua_Integer)lua_rawlen(lua, 1) : 0;
    for (lua_Integer i = 1; i <= n && i <= MAX_LIST; i++) {
        if (lua_geti(lua, 1, i) == LUA_TSTRING) bytes += (double)lua_rawlen(lua, -1);
        lua_pop(lua, 1);
    }
    if (bytes * SORT_TURNS > MAX_COMPARED_BYTES) {
        return luaL_error(lua, "table.sort: texts of %d MB could take too long",
                          (int)(bytes / 1e6));
    }
    return list_checked(lua);
}

/* table.move(list, from, to, ...), table.concat(list, separator, from, to). Upvalue 2: where `from`
 * stands. */
static int range_checked(lua_State *lua) {
    int at = (int)lua_tointeger(lua, lua_upvalueindex(2));
    double from = luaL_optnumber(lua, at, 1);
    double to = lua_isnoneornil(lua, at + 1) ? 0 : luaL_checknumber(lua, at + 1);
    if (to - from > MAX_LIST) {
        return luaL_error(lua, "a range of more than %d elements", MAX_LIST);
    }
    return list_checked(lua);
}

/* Lua runs finalizers with the instruction limit off. */
static int setmetatable_checked(lua_State *lua) {
    if (lua_istable(lua, 2)) {
        lua_pushliteral(lua, "__gc");
        if (lua_rawget(lua, 2) != LUA_TNIL) {
            return luaL_error(lua, "setmetatable: '__gc' is not available to models");
        }
        lua_pop(lua, 1);
    }
    return call_original(lua);
}

static int compare_keys(lua_State *lua) {
    int a = lua_type(lua, 1), b = lua_type(lua, 2);
    bool less = a < b;
    if (a == b && (a == LUA_TNUMBER || a == LUA_TSTRING)) {
        less = lua_compare(lua, 1, 2, LUA_OPLT);
    }
    lua_pushboolean(lua, less);
    return 1;
}

/* Upvalues: table, sorted keys, position. Keys that have gone since are left out. */
static int next_sorted(lua_State *lua) {
    lua_Integer at = lua_tointeger(lua, lua_upvalueindex(3));
    for (;;) {
        at++;
        if (lua_rawgeti(lua, lua_upvalueindex(2), at) == LUA_TNIL) return 1;
        lua_pushvalue(lua, -1);
        if (lua_rawget(lua, lua_upvalueindex(1)) != LUA_TNIL) break;
        lua_pop(lua, 2);
    }
    lua_pushinteger(lua, at);
    lua_replace(lua, lua_upvalueindex(3));
    return 2;
}

/* Lua's own order of string keys changes from run to run; a model must not. Upvalue: table.sort. */
static int pairs_sorted(lua_State *lua) {
    luaL_checktype(lua, 1, LUA_TTABLE);
    lua_settop(lua, 1);
    lua_newtable(lua);
    lua_Integer n = 0;
    lua_pushnil(lua);
    while (lua_next(lua, 1)) {
        lua_pop(lua, 1);
        lua_pushvalue(lua, -1);
        lua_rawseti(lua, 2, ++n);
        if (n > MAX_SORTED_PAIRS) {
            return luaL_error(lua, "pairs: the table has more than %d keys", MAX_SORTED_PAIRS);
        }
    }
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_pushvalue(lua, 2);
    lua_pushcfunction(lua, compare_keys);
    lua_call(lua, 2, 0);
    lua_pushinteger(lua, 0);
    lua_pushcclosure(lua, next_sorted, 3);
    return 1;
}

/* Of lines, which a terminal is shown. */
static void put_printable(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool shown = (c >= ' ' && c != 0x7f) || c == '\n' || c == '\t';
        fputc(shown ? c : '?', stderr);
    }
}

/* To stderr: stdout may carry the plan. */
static int print_line(lua_State *lua) {
    int n = lua_gettop(lua);
    for (int i = 1; i <= n; i++) {
        size_t length;
        const char *text = luaL_tolstring(lua, i, &length);
        if (i > 1) fputc('\t', stderr);
        put_printable(text, length);
        lua_pop(lua, 1);
    }
    fputc('\n', stderr);
    return 0;
}

/* Replaces field `name` of the table on top by `checked` with the original as its upvalue. */
static void wrap_field(lua_State *lua, const char *name, lua_CFunction checked) {
    lua_getfield(lua, -1, name);
    lua_pushcclosure(lua, checked, 1);
    lua_setfield(lua, -2, name);
}

static void remove_fields(lua_State *lua, const char *const *names) {
    for (; *names; names++) {
        lua_pushnil(lua);
        lua_setfield(lua, -2, *names);
    }
}

static void restrict_string(lua_State *lua) {
    lua_getglobal(lua, "string");
    remove_fields(lua, (const char *const[]){"dump", NULL});
    wrap_field(lua, "rep", repeat_checked);
    match_set_functions(lua, sandbox_count_steps);
    lua_pop(lua, 1);
}

static void restrict_table(lua_State *lua) {
    lua_getglobal(lua, "table");
    lua_getfield(lua, -1, "sort"); /* the original, for pairs */
    lua_pushcclosure(lua, pairs_sorted, 1);
    lua_setglobal(lua, "pairs");
    wrap_field(lua, "insert", list_checked);
    wrap_field(lua, "remove", list_checked);
    wrap_field(lua, "sort", sort_checked);
    lua_getfield(lua, -1, "move");
    lua_pushinteger(lua, 2);
    lua_pushcclosure(lua, range_checked, 2);
    lua_setfield(lua, -2, "move");
    lua_getfield(lua, -1, "concat");
    lua_pushinteger(lua, 3);
    lua_pushcclosure(lua, range_checked, 2);
    lua_setfield(lua, -2, "concat");
    lua_pop(lua, 1);
}

void safe_open_libraries(lua_State *lua) {
    static const luaL_Reg LIBRARIES[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_STRLIBNAME, luaopen_string},
                                         {LUA_TABLIBNAME, luaopen_table},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8}};
    for (size_t i = 0; i < sizeof(LIBRARIES) / sizeof(LIBRARIES[0]); i++) {
        luaL_requiref(lua, LIBRARIES[i].name, LIBRARIES[i].func, 1);
        lua_pop(lua, 1);
    }
    lua_pushglobaltable(lua);
    remove_fields(lua, (const char *const[]){"dofile", "loadfile", "load", "collectgarbage",
                                             "xpcall", "warn", NULL});
    wrap_field(lua, "setmetatable", setmetatable_checked);
    lua_pop(lua, 1);
    lua_pushcfunction(lua, print_line);
    lua_setglobal(lua, "print");
    restrict_string(lua);
    restrict_table(lua);
    lua_getglobal(lua, "math");
    lua_getfield(lua, -1, "randomseed");
    lua_pushinteger(lua, 0);
    lua_call(lua, 1, 0);
    lua_pop(lua, 1);
}
