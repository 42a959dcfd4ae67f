/* Values and ops as a model script sees them.
 *
 * A value is a userdata with operators; `ops.NAME{operands..., attribute = ...}` adds a node. The
 * constructors come from the op table: an op added there can be called here. Each node records the
 * line of the script that asked for it. All functions taking a lua_State may raise; a mistake is
 * reported in the Diag first.
 */
#ifndef FRONTEND_LUA_LUA_GRAPH_H
#define FRONTEND_LUA_LUA_GRAPH_H

#include "frontend/lua/freeze.h"
#include "ir/graph.h"

#include <lua.h>

/* A parameter made so far; `node` outlives the block it was made in. */
typedef struct ScriptParam {
    const char *name;
    uint32_t hash; /* of the name */
    Node *node;
} ScriptParam;

/* Those of a block that is made, for blocks that have its weights. */
typedef struct BlockParams {
    int count;
    ScriptParam *params;
} BlockParams;

/* The graph being built; Sandbox.context points to it. */
typedef struct ScriptGraph {
    Graph *graph;                 /* NULL until the loss function runs */
    int64_t axis_sizes[MAX_AXES]; /* of the axes that the model declares, by index */
    int block, n_blocks;          /* NO_BLOCK outside of blocks */
    int block_locs_capacity;
    SourceLoc *block_locs;            /* of each m:block */
    int n_block_dropouts, n_dropouts; /* random streams taken in this block, outside of blocks */
    int n_params, params_capacity;    /* outside of blocks */
    ScriptParam *params;
    int n_block_params, block_params_capacity; /* in the current block */
    ScriptParam *block_params;
    int made_capacity, weights_of; /* the block whose weights the current one has, or NO_BLOCK */
    BlockParams *made;             /* of each block that is made */
    int n_outputs, outputs_capacity;
    const char **outputs;
    int n_freezes, freezes_capacity;
    FreezeRule *freezes; /* of m:freeze, in order */
} ScriptGraph;

ScriptGraph *script_graph(lua_State *lua);

/* May a model call it? Not leaves, collectives, and what only backward or update graphs hold. */
bool script_op_is_callable(OpKind op);

/* Sets global `ops` and the values' metatable. */
void script_open_ops(lua_State *lua);

/* Adds a node in the current block, at the user's line; raises when it is ill-formed. */
Node *script_add_node(lua_State *lua, NodeSpec spec);

void script_push_value(lua_State *lua, Value value);
/* NO_VALUE: the stack slot holds something else. */
Value script_to_value(lua_State *lua, int index);

/* Axes from a text or a list of texts, each declared by the model and named once. `what` begins
 * the error: "matmul: 'over'". Returns how many. */
int script_check_axes(lua_State *lua, int index, const char *what, int out_axes[MAX_RANK]);

/* Reports at the user's line and raises. */
_Noreturn void script_error(lua_State *lua, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
