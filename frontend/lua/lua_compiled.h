/* Libraries in Lua that are part of the program, compiled once a process: a search of sizes loads
 * dozens of models, each of which would read the same 120 KB of text. Nothing from outside is ever
 * loaded as compiled Lua.
 */
#ifndef FRONTEND_LUA_LUA_COMPILED_H
#define FRONTEND_LUA_LUA_COMPILED_H

#include <lua.h>
#include <stddef.h>

/* Pushes the function of an embedded text, known by its address, or an error's value; returns
 * LUA_OK or what lua_load does. `source` is the same for the same text. Any thread may call it. */
int lua_compiled_load(lua_State *lua, const char *text, size_t length, const char *source);

#endif
