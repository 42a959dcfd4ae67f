/* What the graph of a whole model must be, beyond what each op asks of its operands.
 *
 * There are logits of the axes that `generate` needs, every parameter can learn, and every block
 * computes something, so that each is a stage's work.
 */
#ifndef FRONTEND_LUA_MODEL_CHECK_H
#define FRONTEND_LUA_MODEL_CHECK_H

#include "frontend/lua/lua_graph.h"

/* `loc` is the line of `model { ... }`. Raises after everything that is wrong has been reported. */
void model_check(lua_State *lua, const ScriptGraph *script, SourceLoc loc);

/* Freezes what ops.stop_gradient alone leads to. */
void model_freeze_held(Graph *graph);

/* An input that the loss does not depend on, told in one line; NULL: none. Such a model trains, on
 * something else than its author may think. */
const char *model_check_inputs(const Graph *graph, SourceLoc loc);

#endif
