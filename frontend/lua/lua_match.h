/* string.find, match, gmatch and gsub for scripts that are not trusted: what they return and the
 * errors they raise are those of Lua 5.4, but a call whose pattern takes too long raises an error
 * (lua_pattern.h), and what calls take is reported.
 */
#ifndef FRONTEND_LUA_LUA_MATCH_H
#define FRONTEND_LUA_LUA_MATCH_H

#include "frontend/lua/lua_pattern.h"

/* Sets the four fields of the table on top of the stack. */
void match_set_functions(lua_State *lua, PatternMeter *meter);

#endif
