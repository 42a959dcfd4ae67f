/* Parts of axes as a model writes them: an axis' size is the model's to say, and operands that are
 * joined need not all have the axes that one of them has. */
#ifndef FRONTEND_LUA_LUA_PARTS_H
#define FRONTEND_LUA_LUA_PARTS_H

#include "frontend/lua/lua_graph.h"

/* Before narrow, pad or concat is made: adds attribute 'count', the size of axis 'to', and repeats
 * operands of concat along axes that they lack. `attrs` has room for one more; returns how many
 * there are. Leaves ill-formed ones as they are, for inference to report. */
int script_complete_parts(lua_State *lua, OpKind op, Value *inputs, int n_inputs, Attr *attrs,
                          int n_attrs);

/* After: raises where the result's axis has another size than the model says. */
void script_check_parts(lua_State *lua, const Node *node);

#endif
