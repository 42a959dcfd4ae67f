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

/* What the model declares of one of the axes, or what is said of it, which must be that. */
static int complete_size(lua_State *lua, OpKind op, AttrKey key, int axis, Attr *attrs,
                         int n_attrs) {
    int64_t size = script_graph(lua)->axis_sizes[axis];
    const Attr *said = find_attr(attrs, n_attrs, key);
    if (!said) {
        attrs[n_attrs++] = attr_int(key, size);
    } else if (said->i != size) {
        script_error(lua, "%s: axis '%s' is %" PRId64 "; '%s' is %" PRId64, OPS[op].name,
                     script_graph(lua)->graph->axes.names[axis], size, ATTRS[key].name, said->i);
    }
    return n_attrs;
}

/* route: both of its axes of experts must be alike. */
static int complete_route(lua_State *lua, const Attr *to, Attr *attrs, int n_attrs) {
    const ScriptGraph *script = script_graph(lua);
    if (!to || to->axes.count != 3) return n_attrs;
    const int axes[3] = {to->axes.items[0], to->axes.items[1], to->axes.items[2]};
    if (script->axis_sizes[axes[0]] != script->axis_sizes[axes[2]]) {
        script_error(lua, "route: axis '%s' is %" PRId64 " and axis '%s' is %" PRId64,
                     script->graph->axes.names[axes[0]], script->axis_sizes[axes[0]],
                     script->graph->axes.names[axes[2]], script->axis_sizes[axes[2]]);
    }
    n_attrs = complete_size(lua, OP_ROUTE, ATTR_experts, axes[0], attrs, n_attrs);
    return complete_size(lua, OP_ROUTE, ATTR_slots, axes[1], attrs, n_attrs);
}

int script_complete_parts(lua_State *lua, OpKind op, Value *inputs, int n_inputs, Attr *attrs,
                          int n_attrs) {
    const Attr *to = find_attr(attrs, n_attrs, ATTR_to);
    const Attr *axis = find_attr(attrs, n_attrs, ATTR_axis);
    if (op == OP_REGROUP && to && to->axes.count == 2) {
        return complete_size(lua, op, ATTR_count, to->axes.items[1], attrs, n_attrs);
    }
    bool counted = op == OP_NARROW || op == OP_PAD || op == OP_TOP;
    if (op == OP_CONCAT) {
        repeat_operands(lua, inputs, n_inputs, find_attr(attrs, n_attrs, ATTR_over));
    }
    if (op == OP_ROUTE) return complete_route(lua, to, attrs, n_attrs);
    if (op == OP_PUT && axis) {
        return complete_size(lua, op, ATTR_count, axis->axis, attrs, n_attrs);
    }
    if (!counted || !to || to->axes.count != 1) return n_attrs;
    return complete_size(lua, op, ATTR_count, to->axes.items[0], attrs, n_attrs);
}

/* Tables of shapes that fit may be anything: rows would go astray. */
static void check_tables(lua_State *lua, const Node *node) {
    Value slots = node->inputs[1], tokens = node->inputs[2];
    bool fits = slots.node->op == OP_ROUTE && slots.output == 0 && tokens.node == slots.node &&
                tokens.output == 1;
    if (fits) return;
    script_error(lua, "%s: operands 2 and 3 must be a route's first and second result",
                 OPS[node->op].name);
}

static bool finds_same(const Node *a, const Node *b) {
    return a->inputs[0].node == b->inputs[0].node && a->inputs[0].output == b->inputs[0].output &&
           node_axis(a, ATTR_axis) == node_axis(b, ATTR_axis) &&
           node_int(a, ATTR_separator, 0) == node_int(b, ATTR_separator, 0) &&
           node_int(a, ATTR_apart, 0) == node_int(b, ATTR_apart, 0);
}

/* Kernels take any numbers, but make sense of these only. */
static void check_documents(lua_State *lua, const Node *node) {
    int at = attention_documents(node), ends = attention_document_ends(node);
    if (at < 0) return;
    Value starts = node->inputs[at];
    if (starts.node->op != OP_DOCUMENTS || starts.output != 0) {
        script_error(lua, "attention: operand %d must be the first result of ops.documents",
                     at + 1);
    }
    if (ends < 0) return;
    const Node *last = node->inputs[ends].node;
    if (last->op == OP_DOCUMENT_ENDS && finds_same(starts.node, last)) return;
    script_error(lua,
                 "attention: operand %d must be the result of ops.document_ends, of what operand "
                 "%d is of",
                 ends + 1, at + 1);
}

/* How many positions there are is the sample's, wherever they are. */
static void check_positions(lua_State *lua, const Node *node) {
    const Graph *graph = script_graph(lua)->graph;
    for (int axis = 0; axis < graph->axes.count; axis++) {
        const char *name = graph->axes.names[axis];
        if (!axis_is_sequence(name) || !parts_has_axis(node, axis)) continue;
        script_error(lua,
                     "%s: axis '%s' stays as long as a sample, and whole or divided as one; shift "
                     "moves along it",
                     OPS[node->op].name, name);
    }
}

void script_check_parts(lua_State *lua, const Node *node) {
    check_documents(lua, node);
    if (node->op == OP_NARROW || node->op == OP_CONCAT) check_positions(lua, node);
    bool routed = node->op == OP_DISPATCH || node->op == OP_COMBINE || node->op == OP_SLOT_DOT;
    if (routed) check_tables(lua, node);
    if (node->op != OP_CONCAT && node->op != OP_RENAME && node->op != OP_REGROUP) return;
    ScriptGraph *script = script_graph(lua);
    int to = node_attr(node, ATTR_to)->axes.items[0];
    int64_t made = node->types[0].dims[type_find_axis(&node->types[0], to)];
    if (made == script->axis_sizes[to]) return;
    script_error(lua, "%s: axis '%s' is %" PRId64 "; the operand%s %" PRId64, OPS[node->op].name,
                 script->graph->axes.names[to], script->axis_sizes[to],
                 node->op == OP_CONCAT ? "s make" : " has", made);
}
