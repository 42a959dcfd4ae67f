/* Operands of a product as one (batched) matrix product can read them.
 *
 * Models name axes and need not care how they lie in memory; the op `matmul` does (matmul_layout,
 * ir/op.h). Here what does not fit is transposed first: nothing where both operands fit, as in
 * every layer of nn.lua, else as little as will do.
 */
#ifndef FRONTEND_LUA_LUA_PRODUCT_H
#define FRONTEND_LUA_LUA_PRODUCT_H

#include "frontend/lua/lua_graph.h"

/* Replaces operands of ops.matmul by their transposes, and reorders `over`, which says the same in
 * any order. Operands that are wrong otherwise stay: the op reports them. May raise. */
void script_arrange_product(lua_State *lua, Value operands[2], Attr *attrs, int n_attrs);

#endif
