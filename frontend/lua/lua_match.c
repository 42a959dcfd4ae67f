#include "frontend/lua/lua_match.h"

#include <lauxlib.h>
#include <string.h>

/* Comparisons that looking for a plain text may take: many bytes at a time. */
static const double MAX_PLAIN_STEPS = 4e9;

/* Every function has the meter as its first upvalue. */
static PatternMeter *meter_of(lua_State *lua) {
    return *(PatternMeter **)lua_touserdata(lua, lua_upvalueindex(1));
}

/* Argument 3 or 4, the place to begin: from 0; more than `length`: after the end. */
static size_t read_init(lua_State *lua, int index, size_t length) {
    lua_Integer init = luaL_optinteger(lua, index, 1);
    if (init > 0) return (size_t)init - 1;
    return init == 0 || init < -(lua_Integer)length ? 0 : length - (size_t)-init;
}

/* --- find, match --- */

static bool is_plain(const char *pattern, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (pattern[i] && strchr("^$*+?.([%-", pattern[i])) return false;
    }
    return true;
}

/* Where `wanted` begins, or NULL. */
static const char *find_plain(lua_State *lua, const char *text, size_t length, const char *wanted,
                              size_t wanted_length) {
    if (wanted_length == 0) return text;
    const char *at = text, *found = NULL;
    int64_t n_candidates = 0;
    while (!found && (size_t)(text + length - at) >= wanted_length) {
        size_t n_places = (size_t)(text + length - at) - wanted_length + 1;
        const char *candidate = memchr(at, *wanted, n_places);
        if (!candidate) break;
        if (memcmp(candidate, wanted, wanted_length) == 0) found = candidate;
        at = candidate + 1;
        n_candidates++;
    }
    meter_of(lua)(lua, n_candidates + (int64_t)(length / PATTERN_BYTES_PER_STEP));
    return found;
}

static int push_plain(lua_State *lua, size_t init) {
    size_t length, wanted_length;
    const char *text = lua_tolstring(lua, 1, &length);
    const char *wanted = lua_tolstring(lua, 2, &wanted_length);
    if ((double)wanted_length * (double)length > MAX_PLAIN_STEPS) {
        return luaL_error(lua,
                          "string.find: this pattern could take too long on a text of %d "
                          "bytes",
                          (int)length);
    }
    const char *found = find_plain(lua, text + init, length - init, wanted, wanted_length);
    if (!found) {
        luaL_pushfail(lua);
        return 1;
    }
    lua_pushinteger(lua, found - text + 1);
    lua_pushinteger(lua, found - text + (lua_Integer)wanted_length);
    return 2;
}

static int find_or_match(lua_State *lua, bool is_find) {
    size_t length, pattern_length;
    luaL_checklstring(lua, 1, &length);
    const char *begin = luaL_checklstring(lua, 2, &pattern_length);
    size_t init = read_init(lua, 3, length);
    if (init > length) {
        luaL_pushfail(lua);
        return 1;
    }
    if (is_find && (lua_toboolean(lua, 4) || is_plain(begin, pattern_length))) {
        return push_plain(lua, init);
    }
    Pattern pattern = pattern_create(lua, meter_of(lua), is_find ? "find" : "match", 1, 2, true);
    const char *at = pattern.text + init, *end;
    while (!(end = pattern_match(&pattern, at)) && at < pattern.text_end && !pattern.is_anchored) {
        at++;
    }
    int n_results = 1;
    if (!end) {
        luaL_pushfail(lua);
    } else if (is_find) {
        lua_pushinteger(lua, at - pattern.text + 1);
        lua_pushinteger(lua, end - pattern.text);
        n_results = 2 + (pattern.n_captures > 0 ? pattern_push_captures(&pattern, at, end) : 0);
    } else {
        n_results = pattern_push_captures(&pattern, at, end);
    }
    pattern_report(&pattern);
    return n_results;
}

static int string_find(lua_State *lua) {
    return find_or_match(lua, true);
}

static int string_match(lua_State *lua) {
    return find_or_match(lua, false);
}

/* --- gmatch --- */

/* Upvalues: meter, text, pattern, where to go on, where the last match ended (from 0; -1: there was
 * none): an empty match just there is left out. */
static int next_match(lua_State *lua) {
    Pattern pattern = pattern_create(lua, meter_of(lua), "gmatch", lua_upvalueindex(2),
                                     lua_upvalueindex(3), false);
    lua_Integer begin = lua_tointeger(lua, lua_upvalueindex(4));
    lua_Integer last_end = lua_tointeger(lua, lua_upvalueindex(5));
    lua_Integer length = pattern.text_end - pattern.text;
    for (lua_Integer i = begin; i <= length; i++) {
        const char *at = pattern.text + i, *end = pattern_match(&pattern, at);
        if (!end || end - pattern.text == last_end) continue;
        lua_pushinteger(lua, end - pattern.text);
        lua_copy(lua, -1, lua_upvalueindex(4));
        lua_replace(lua, lua_upvalueindex(5));
        int n = pattern_push_captures(&pattern, at, end);
        pattern_report(&pattern);
        return n;
    }
    pattern_report(&pattern);
    return 0;
}

static int string_gmatch(lua_State *lua) {
    size_t length;
    luaL_checklstring(lua, 1, &length);
    luaL_checkstring(lua, 2);
    size_t init = read_init(lua, 3, length);
    lua_settop(lua, 2);
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_pushinteger(lua, (lua_Integer)(init > length ? length + 1 : init));
    lua_pushinteger(lua, -1);
    lua_pushcclosure(lua, next_match, 5);
    return 1;
}

/* --- gsub --- */

/* Argument 3 is a text: %0 to %9 are captures, %% is a %. */
static void add_text(Pattern *pattern, luaL_Buffer *buffer, const char *at, const char *end) {
    size_t length;
    const char *p = lua_tolstring(pattern->lua, 3, &length), *last = p + length, *percent;
    pattern_count_bytes(pattern, length);
    while ((percent = memchr(p, '%', (size_t)(last - p)))) {
        luaL_addlstring(buffer, p, (size_t)(percent - p));
        char c = percent + 1 < last ? percent[1] : '\0';
        if (c == '%') {
            luaL_addchar(buffer, c);
        } else if (c == '0') {
            pattern_count_bytes(pattern, (size_t)(end - at));
            luaL_addlstring(buffer, at, (size_t)(end - at));
        } else if (c >= '1' && c <= '9') {
            pattern_push_capture(pattern, c - '1', at, end);
            luaL_addvalue(buffer);
        } else {
            pattern_report(pattern);
            luaL_error(pattern->lua, "invalid use of '%%' in replacement string");
        }
        p = percent + 2;
    }
    luaL_addlstring(buffer, p, (size_t)(last - p));
}

/* What argument 3 makes of a match; false: the match stays as it is. */
static bool add_replacement(Pattern *pattern, luaL_Buffer *buffer, const char *at,
                            const char *end) {
    lua_State *lua = pattern->lua;
    if (lua_isfunction(lua, 3)) {
        pattern_report(pattern); /* it may raise, and so may __index */
        lua_pushvalue(lua, 3);
        lua_call(lua, pattern_push_captures(pattern, at, end), 1);
    } else if (lua_istable(lua, 3)) {
        pattern_report(pattern);
        pattern_push_capture(pattern, 0, at, end);
        lua_gettable(lua, 3);
    } else {
        add_text(pattern, buffer, at, end);
        return true;
    }
    if (!lua_toboolean(lua, -1)) {
        lua_pop(lua, 1);
        luaL_addlstring(buffer, at, (size_t)(end - at));
        return false;
    }
    if (!lua_isstring(lua, -1)) {
        luaL_error(lua, "invalid replacement value (a %s)", luaL_typename(lua, -1));
    }
    luaL_addvalue(buffer);
    return true;
}

/* Returns how many matches there were, of at most `limit`; *out_changed: whether one of them was
 * replaced. */
static lua_Integer replace_matches(Pattern *pattern, luaL_Buffer *buffer, lua_Integer limit,
                                   bool *out_changed) {
    const char *at = pattern->text, *last_end = NULL;
    lua_Integer n = 0;
    *out_changed = false;
    while (n < limit) {
        const char *end = pattern_match(pattern, at);
        if (end && end != last_end) { /* an empty match just there is none */
            n++;
            if (add_replacement(pattern, buffer, at, end)) *out_changed = true;
            at = last_end = end;
        } else if (at < pattern->text_end) {
            luaL_addchar(buffer, *at++);
        } else {
            break;
        }
        if (pattern->is_anchored) break;
    }
    luaL_addlstring(buffer, at, (size_t)(pattern->text_end - at));
    return n;
}

static int string_gsub(lua_State *lua) {
    size_t length;
    luaL_checklstring(lua, 1, &length);
    luaL_checkstring(lua, 2);
    int type = lua_type(lua, 3);
    lua_Integer limit = luaL_optinteger(lua, 4, (lua_Integer)length + 1);
    luaL_argexpected(lua,
                     type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION ||
                         type == LUA_TTABLE,
                     3, "string/function/table");
    Pattern pattern = pattern_create(lua, meter_of(lua), "gsub", 1, 2, true);
    luaL_Buffer buffer;
    luaL_buffinit(lua, &buffer);
    bool is_changed;
    lua_Integer n = replace_matches(&pattern, &buffer, limit, &is_changed);
    luaL_pushresult(&buffer);
    if (!is_changed) lua_pushvalue(lua, 1);
    lua_pushinteger(lua, n);
    pattern_report(&pattern);
    return 2;
}

void match_set_functions(lua_State *lua, PatternMeter *meter) {
    static const luaL_Reg FUNCTIONS[] = {{"find", string_find},
                                         {"match", string_match},
                                         {"gmatch", string_gmatch},
                                         {"gsub", string_gsub},
                                         {NULL, NULL}};
    *(PatternMeter **)lua_newuserdatauv(lua, sizeof(PatternMeter *), 0) = meter;
    luaL_setfuncs(lua, FUNCTIONS, 1);
}
