#include "frontend/lua/lua_parts.h"

#include "frontend/lua/lua_sandbox.h"
#include "ir/ops/parts.h"

#include <inttypes.h>

static const Attr *find_attr(const Attr *attrs, int n_attrs, AttrKey key) {
    for (int i = 0; i < n_attrs; i++) {
        if (attrs[i].key == key) return &attrs[i];
    }
    return NULL;
}

/* Position in `type` of its one axis of `over`; -1: none, or several. */
static int joined_axis(const Attr *over, const Type *type) {
    Node concat = {.op = OP_CONCAT, .attrs = (Attr *)over, .n_attrs = 1};
    return parts_joined(&concat, type);
}

/* `value`, repeated along the axes that `like` has and it lacks, in like's order; like's axis at
 * `at` stays its own. The value itself where it has those axes, or does not fit. */
static Value repeated(lua_State *lua, Value value, const Attr *over, const Type *like, int at) {
    const Type *from = value_type(value);
    int own = joined_axis(over, from);
    Type type = *like;
    if (own < 0) return value;
    type.dtype = from->dtype;
    type.axes[at] = from->axes[own];
    type.dims[at] = from->dims[own];
    if (type_same_shape(from, &type)) return value;
    for (int i = 0; i < from->rank; i++) {
        int there = type_find_axis(&type, from->axes[i]);
        if (there < 0 || type.dims[there] != from->dims[i]) return value;
    }
    Node *node = script_add_node(
        lua, (NodeSpec){.op = OP_BROADCAST, .inputs = &value, .n_inputs = 1, .type = &type});
    return node_value(node, 0);
}

static void repeat_operands(lua_State *lua, Value *inputs, int n_inputs, const Attr *over) {
    int widest = 0;
    for (int k = 1; k < n_inputs; k++) {
        if (value_type(inputs[k])->rank > value_type(inputs[widest])->rank) widest = k;
    }
    const Type *like = value_type(inputs[widest]);
    int at = over ? joined_axis(over, like) : -1;
    for (int k = 0; k < n_inputs && at >= 0; k++) {
        inputs[k] = repeated(lua, inputs[k], over, like, at);
    }
}

int script_complete_parts(lua_State *lua, OpKind op, Value *inputs, int n_inputs, Attr *attrs,
                          int n_attrs) {
    const Attr *to = find_attr(attrs, n_attrs, ATTR_to);
    bool counted = op == OP_NARROW || op == OP_PAD;
    if (op == OP_CONCAT) {
        repeat_operands(lua, inputs, n_inputs, find_attr(attrs, n_attrs, ATTR_over));
    }
    if (!counted || !to || to->axes.count != 1) return n_attrs;
    int64_t size = script_graph(lua)->axis_sizes[to->axes.items[0]];
    const Attr *count = find_attr(attrs, n_attrs, ATTR_count);
    if (!count) {
        attrs[n_attrs++] = attr_int(ATTR_count, size);
    } else if (count->i != size) {
        script_error(lua, "%s: axis '%s' is %" PRId64 "; 'count' is %" PRId64, OPS[op].name,
                     script_graph(lua)->graph->axes.names[to->axes.items[0]], size, count->i);
    }
    return n_attrs;
}

void script_check_parts(lua_State *lua, const Node *node) {
    if (node->op != OP_CONCAT) return;
    ScriptGraph *script = script_graph(lua);
    int to = parts_to(node);
    int64_t made = node->types[0].dims[type_find_axis(&node->types[0], to)];
    if (made == script->axis_sizes[to]) return;
    script_error(lua, "concat: axis '%s' is %" PRId64 "; the operands make %" PRId64,
                 script->graph->axes.names[to], script->axis_sizes[to], made);
}
