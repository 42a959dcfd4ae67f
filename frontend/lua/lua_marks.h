/* Marks: which line of a script made a table, so that errors found later can say where a field of
 * it is. A script's `constructor { ... }` returns the table itself and leaves a mark.
 * All of these may raise.
 */
#ifndef FRONTEND_LUA_LUA_MARKS_H
#define FRONTEND_LUA_LUA_MARKS_H

#include "ir/base/diag.h"

#include <lua.h>
#include <stdbool.h>

/* Makes each of the names, which end with NULL, a global function of one table. */
void lua_open_marks(lua_State *lua, const char *const *constructors);

bool lua_is_marked(lua_State *lua, int index);

/* The line of field `path` ("device.memory_bytes") of the table at `index`: searched for in the
 * text, from the innermost marked table on the path. */
SourceLoc lua_mark_line(lua_State *lua, int index, const char *path);

#endif
