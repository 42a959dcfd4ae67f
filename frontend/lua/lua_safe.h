/* The part of Lua's standard libraries that a model script may use.
 *
 * No files, no processes, no code from text or bytes. Functions whose work in C can grow without
 * bound (where the instruction limit does not count) are replaced: string.rep and
 * table.insert/remove/move/sort/concat by ones that check first, the pattern functions by ones that
 * count their steps (lua_match.h). Finalizers are refused and xpcall is absent: both run code while
 * Lua counts no instructions. `pairs` goes in sorted order and math.random starts from a fixed
 * seed, so that a script gives the same model each time.
 */
#ifndef FRONTEND_LUA_LUA_SAFE_H
#define FRONTEND_LUA_LUA_SAFE_H

#include <lua.h>

/* Sets the globals, in a sandbox's state. Raises only when memory runs out. */
void safe_open_libraries(lua_State *lua);

#endif
