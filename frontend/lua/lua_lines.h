/* Lines of keys: where in a Lua text a field of a table is written. Lua itself keeps no lines of
 * fields; reading the text again finds them wherever the table is written out as `name { ... }`.
 * Only for error messages: what cannot be found this way gets the line of what encloses it.
 */
#ifndef FRONTEND_LUA_LUA_LINES_H
#define FRONTEND_LUA_LUA_LINES_H

#include <stddef.h>

/* The line of field `path` ("memory_bytes", "peak_flops.bf16") of the table that `constructor`
 * is called with on `line`. */
int lua_key_line(const char *text, size_t length, int line, const char *constructor,
                 const char *path);

#endif
