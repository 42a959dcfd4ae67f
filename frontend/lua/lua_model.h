/* The object `m` that a model's loss function builds with: its settings as fields, and the methods
 * param, block and output.
 */
#ifndef FRONTEND_LUA_LUA_MODEL_H
#define FRONTEND_LUA_LUA_MODEL_H

#include "frontend/lua/lua_graph.h"
#include "frontend/lua/model_settings.h"

/* Pushes `m`. The graph must have its axes. May raise. */
void script_push_model(lua_State *lua, SettingTable *settings);

/* May a setting not have this name, because `m` already has a field called so? */
bool script_name_is_taken(const char *name);

#endif
