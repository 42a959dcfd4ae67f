#include "frontend/lua/lua_graph.h"

#include "frontend/lua/lua_parts.h"
#include "frontend/lua/lua_product.h"
#include "frontend/lua/lua_sandbox.h"
#include "ir/class_names.h"
#include "ir/image_rule.h"
#include "ir/op.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static const char VALUE_NAME[] = "perilune.value";

enum { MAX_NODES = 300000 }; /* ten thousand blocks of thirty; a node takes half a kilobyte */

static const char *const GRADS[N_OPS] = {
#define OP(upper, lower, min, max, outs, attrs, flags, infer, grad, flops, kernel) #grad,
#include "ir/ops.def"
#undef OP
};

bool script_op_is_callable(OpKind op) {
    const int internal = LEAF | TYPED | PERSISTENT | EFFECT | COLLECTIVE;
    bool cast = strcmp(GRADS[op], "cast") == 0; /* precision is the plan's, not the model's */
    return !(OPS[op].flags & internal) && strcmp(GRADS[op], "never") != 0 && !cast;
}

ScriptGraph *script_graph(lua_State *lua) {
    ScriptGraph *script = sandbox_of(lua)->context;
    if (!script->graph) {
        script_error(lua, "ops can be used only while the model's loss function runs");
    }
    return script;
}

_Noreturn void script_error(lua_State *lua, const char *format, ...) {
    Sandbox *sandbox = sandbox_of(lua);
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(sandbox->arena, format, args);
    va_end(args);
    diag_error(sandbox->diag, sandbox_user_line(lua), "%s", text);
    sandbox_fail(lua);
}

/* Nodes */

Node *script_add_node(lua_State *lua, NodeSpec spec) {
    ScriptGraph *script = script_graph(lua);
    spec.phase = PHASE_FORWARD;
    spec.block = script->block;
    spec.loc = sandbox_user_line(lua);
    if (script->graph->n_nodes == MAX_NODES) {
        script_error(lua, "the model has more than %d values and parameters", MAX_NODES);
    }
    Node *node = graph_add(script->graph, &spec, sandbox_of(lua)->diag);
    if (!node) sandbox_fail(lua);
    return node;
}

static Value add_op(lua_State *lua, OpKind op, Value a, Value b, const double *number) {
    Value inputs[2] = {a, b};
    Attr attr = attr_float(ATTR_value, number ? *number : 0);
    Node *node = script_add_node(lua, (NodeSpec){.op = op,
                                                 .inputs = inputs,
                                                 .n_inputs = b.node ? 2 : 1,
                                                 .attrs = &attr,
                                                 .n_attrs = number ? 1 : 0});
    return node_value(node, 0);
}

void script_push_value(lua_State *lua, Value value) {
    Value *held = lua_newuserdatauv(lua, sizeof(*held), 0);
    *held = value;
    luaL_setmetatable(lua, VALUE_NAME);
}

Value script_to_value(lua_State *lua, int index) {
    const Value *held = luaL_testudata(lua, index, VALUE_NAME);
    return held ? *held : NO_VALUE;
}

static Value check_self(lua_State *lua, const char *method) {
    Value value = script_to_value(lua, 1);
    if (!value.node) script_error(lua, "call it as value:%s(...), with a colon", method);
    return value;
}

/* Attributes */

static void check_axis_names(lua_State *lua, const char *name, size_t length, const char *what,
                             int *out_axis) {
    const Graph *graph = script_graph(lua)->graph;
    *out_axis = axis_find(&graph->axes, name, (int)length);
    if (*out_axis >= 0 && length > 0 && strlen(name) == length) return;
    Arena *arena = sandbox_of(lua)->arena;
    const char *known = "";
    for (int i = 0; i < graph->axes.count; i++) {
        known = arena_printf(arena, "%s%s%s", known, i ? ", " : "", graph->axes.names[i]);
    }
    script_error(lua, "%s: the model has no axis '%.64s'; it has: %s", what, name, known);
}

int script_check_axes(lua_State *lua, int index, const char *what, int out_axes[MAX_RANK]) {
    size_t length;
    index = lua_absindex(lua, index);
    if (lua_type(lua, index) == LUA_TSTRING) {
        const char *name = lua_tolstring(lua, index, &length);
        check_axis_names(lua, name, length, what, &out_axes[0]);
        return 1;
    }
    if (!lua_istable(lua, index)) {
        script_error(lua, "%s must be an axis name or a list of them, not a %s", what,
                     luaL_typename(lua, index));
    }
    lua_Unsigned count = lua_rawlen(lua, index);
    if (count > MAX_RANK) script_error(lua, "%s: at most %d axes are possible", what, MAX_RANK);
    for (int i = 0; i < (int)count; i++) {
        if (lua_rawgeti(lua, index, i + 1) != LUA_TSTRING) {
            script_error(lua, "%s must be a list of axis names; entry %d is a %s", what, i + 1,
                         luaL_typename(lua, -1));
        }
        const char *name = lua_tolstring(lua, -1, &length);
        check_axis_names(lua, name, length, what, &out_axes[i]);
        for (int j = 0; j < i; j++) {
            if (out_axes[j] == out_axes[i]) {
                script_error(lua, "%s: axis '%s' is named twice", what, name);
            }
        }
        lua_pop(lua, 1);
    }
    return (int)count;
}

/* A whole number, or a truth value as 0 or 1. */
static int64_t check_integer(lua_State *lua, int index, const char *what) {
    int whole = 0;
    if (lua_isboolean(lua, index)) return lua_toboolean(lua, index);
    lua_Integer value =
        lua_type(lua, index) == LUA_TNUMBER ? lua_tointegerx(lua, index, &whole) : 0;
    if (!whole) script_error(lua, "%s must be a whole number", what);
    return value;
}

static double check_number(lua_State *lua, int index, const char *what) {
    double value = lua_type(lua, index) == LUA_TNUMBER ? lua_tonumber(lua, index) : NAN;
    if (!isfinite(value)) script_error(lua, "%s must be a finite number", what);
    return value;
}

static Attr check_attr(lua_State *lua, int index, OpKind op, AttrKey key) {
    const char *what =
        arena_printf(sandbox_of(lua)->arena, "%s: '%s'", OPS[op].name, ATTRS[key].name);
    Attr attr = {.key = key};
    int axes[MAX_RANK];
    switch (ATTRS[key].kind) {
    case ATTR_INT: attr.i = check_integer(lua, index, what); break;
    case ATTR_FLOAT: attr.f = check_number(lua, index, what); break;
    case ATTR_STRING:
        if (lua_type(lua, index) != LUA_TSTRING) script_error(lua, "%s must be a text", what);
        attr.s = lua_tostring(lua, index); /* the table that holds it outlives the node's making */
        break;
    case ATTR_AXIS:
        if (script_check_axes(lua, index, what, axes) != 1) {
            script_error(lua, "%s must be one axis", what);
        }
        attr.axis = axes[0];
        break;
    case ATTR_AXES: attr = attr_axes(key, axes, script_check_axes(lua, index, what, axes)); break;
    }
    if (key == ATTR_p && !(attr.f >= 0 && attr.f < 1)) {
        script_error(lua, "%s must be at least 0 and less than 1, not %g", what, attr.f);
    }
    if (key == ATTR_dtype && strcmp(attr.s, "f32") != 0) {
        script_error(lua,
                     "%s can only be f32, which keeps the result in f32 under any --precision; "
                     "'%.64s' is not for models: precision is the plan's",
                     what, attr.s);
    }
    return attr;
}

/* "axis eps" for the op's attributes, as the table's row lists them. */
static _Noreturn void fail_unknown_attr(lua_State *lua, OpKind op, const char *name) {
    const char *attrs = OPS[op].attrs;
    script_error(lua, "%s: has no attribute '%.64s'; it takes: %s", OPS[op].name, name,
                 attrs[0] ? attrs : "none");
}

/* Reads the named fields of the table at 1. What is wrong is told of the first name in alphabetical
 * order: Lua's own order changes from run to run. */
static int read_attrs(lua_State *lua, OpKind op, Attr *attrs) {
    const char *unknown = NULL;
    bool known[N_ATTRS] = {false};
    lua_pushnil(lua);
    while (lua_next(lua, 1)) {
        bool required;
        lua_pop(lua, 1);
        if (lua_type(lua, -1) == LUA_TNUMBER) continue;
        if (lua_type(lua, -1) != LUA_TSTRING) {
            script_error(lua, "%s: an attribute is named by a text, not a %s", OPS[op].name,
                         luaL_typename(lua, -1));
        }
        size_t length;
        const char *name = lua_tolstring(lua, -1, &length);
        int key = length > 0 && length <= INT_MAX ? attr_find(name, (int)length) : -1;
        if (key >= 0 && op_has_attr(op, key, &required)) {
            known[key] = true;
        } else if (!unknown || strcmp(name, unknown) < 0) {
            unknown = name;
        }
    }
    if (unknown) fail_unknown_attr(lua, op, unknown);
    int n_attrs = 0;
    for (int key = 0; key < N_ATTRS; key++) {
        if (!known[key]) continue;
        lua_pushstring(lua, ATTRS[key].name);
        lua_rawget(lua, 1);
        attrs[n_attrs++] = check_attr(lua, -1, op, key);
        lua_pop(lua, 1);
    }
    return n_attrs;
}

enum { MAX_MODEL_OPERANDS = 8 };

/* Operands beyond the fewest are accumulators, which only backward graphs have, but for concat, the
 * gates of experts' rows, attention's documents and sinks, what linear attention writes and
 * convolutions' documents. */
static void check_operand_count(lua_State *lua, OpKind op, lua_Unsigned count) {
    bool more = op == OP_CONCAT || op == OP_DISPATCH || op == OP_COMBINE || op == OP_ATTENTION ||
                op == OP_LINEAR_ATTENTION || op == OP_CONVOLVE;
    int least = OPS[op].min_inputs, most = more ? OPS[op].max_inputs : least;
    if (count >= (lua_Unsigned)least && count <= (lua_Unsigned)most) return;
    const char *wanted =
        arena_printf(sandbox_of(lua)->arena, most > least ? "%d to %d" : "%d", least, most);
    script_error(lua, "%s: takes %s operand%s, not %d", OPS[op].name, wanted, most == 1 ? "" : "s",
                 count > 1000 ? 1000 : (int)count);
}

static Value constant(lua_State *lua, double number) {
    Attr value = attr_float(ATTR_value, number);
    Node *node = script_add_node(lua, (NodeSpec){.op = OP_CONST, .attrs = &value, .n_attrs = 1});
    return node_value(node, 0);
}

/* As Lua's own operators do, which these are none of. */
static bool takes_numbers(OpKind op) {
    return op == OP_LESS || op == OP_EQUAL || op == OP_MAXIMUM || op == OP_MINIMUM;
}

/* The list part of the table at 1. */
static int read_operands(lua_State *lua, OpKind op, Value *inputs) {
    lua_Unsigned count = lua_rawlen(lua, 1);
    check_operand_count(lua, op, count);
    for (int i = 0; i < (int)count; i++) {
        lua_rawgeti(lua, 1, i + 1);
        inputs[i] = takes_numbers(op) && lua_type(lua, -1) == LUA_TNUMBER
                        ? constant(lua, check_number(lua, -1, OPS[op].name))
                        : script_to_value(lua, -1);
        if (!inputs[i].node) {
            script_error(lua, "%s: operand %d is a %s, not a value of the graph", OPS[op].name,
                         i + 1, luaL_typename(lua, -1));
        }
        lua_pop(lua, 1);
    }
    return (int)count;
}

/* Each dropout of a block (or outside of blocks) draws from a stream of its own. */
static Attr next_dropout_key(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    int *n = script->block == NO_BLOCK ? &script->n_dropouts : &script->n_block_dropouts;
    return attr_int(ATTR_key, (*n)++);
}

/* Attention that drops nothing has no stream. */
static void complete_drop(lua_State *lua, OpKind op, Attr *attrs, int *n_attrs) {
    bool has_key = false, drops = op == OP_DROPOUT;
    for (int i = 0; i < *n_attrs; i++) {
        has_key |= attrs[i].key == ATTR_key;
        drops |= attrs[i].key == ATTR_p;
        if (attrs[i].key == ATTR_first || attrs[i].key == ATTR_count)
            script_error(lua, "%s: 'first' and 'count' are for what the planner makes",
                         OPS[op].name);
    }
    if (!has_key && drops) attrs[(*n_attrs)++] = next_dropout_key(lua);
}

/* Where a label_share says that rows are hidden by shares drawn for each. */
static void check_diffusion(lua_State *lua, const Node *node, double label) {
    static const AttrKey OTHERS[] = {ATTR_rate,   ATTR_span,    ATTR_start,     ATTR_eos,
                                     ATTR_pad,    ATTR_first,   ATTR_classes,   ATTR_between,
                                     ATTR_labels, ATTR_weights, ATTR_smoothing, ATTR_groups};
    const int64_t by = node_int(node, ATTR_by, 0), each = node_int(node, ATTR_each, 0);
    bool alone = label == -1 && node_int(node, ATTR_mask, -1) >= 0;
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        alone &= !node_attr(node, OTHERS[i]);
    }
    if (alone && node_attr(node, ATTR_by) && (by == 0 || by == 1) && (each == 0 || each == 1)) {
        return;
    }
    script_error(lua,
                 "label_share: 'by' (0, or 1: a label is the next position's) goes with 'mask' "
                 "(a token) and value = -1, and perhaps 'each' (0, or 1: rows count alike)");
}

/* What a label_share says of the data. */
static void check_hiding(lua_State *lua, const Node *node, double label) {
    if (node_attr(node, ATTR_by) || node_attr(node, ATTR_each)) {
        check_diffusion(lua, node, label);
        return;
    }
    double rate = node_float(node, ATTR_rate, 0.5), span = node_float(node, ATTR_span, 1);
    bool hides = node_attr(node, ATTR_rate) != NULL, reads = node_attr(node, ATTR_start) != NULL;
    bool has_spans = node_attr(node, ATTR_span) != NULL;
    if (hides != (node_attr(node, ATTR_mask) != NULL) || (hides && label != -1) ||
        !(rate > 0 && rate < 1) || node_int(node, ATTR_mask, 0) < 0) {
        script_error(lua, "label_share: 'rate' (a share between 0 and 1) and 'mask' (a token) go "
                          "together, and with value = -1");
    }
    const bool whole = node_attr(node, ATTR_classes) || node_attr(node, ATTR_groups);
    bool ends = node_attr(node, ATTR_eos) != NULL && !whole;
    if (reads != ends || (reads && label != -1) || (reads && hides != has_spans) ||
        (has_spans && !reads) || !(span >= 1 && span <= 1e6) ||
        (node_attr(node, ATTR_pad) && !reads && !whole) || node_int(node, ATTR_start, 0) < 0 ||
        node_int(node, ATTR_eos, 0) < 0 || node_int(node, ATTR_pad, 0) < 0) {
        script_error(lua, "label_share: 'start' and 'eos' (tokens) go together, and with value = "
                          "-1; with 'rate' they have 'span', a mean length from 1 on");
    }
    if (!reads || axis_find(&script_graph(lua)->graph->axes, "source", 6) >= 0) return;
    script_error(lua,
                 "label_share: 'start' and 'eos' are of a model whose axes have 'source', what "
                 "its encoder reads");
}

/* Groups of texts that are compared, nn.embed's. */
static void check_groups(lua_State *lua, const Node *node, double label) {
    const int64_t first = node_int(node, ATTR_first, -1), groups = node_int(node, ATTR_groups, 0);
    const int64_t count = node_int(node, ATTR_count, 0), length = node_int(node, ATTR_length, 0);
    bool others = node_attr(node, ATTR_rate) || node_attr(node, ATTR_start) ||
                  node_attr(node, ATTR_classes) || node_attr(node, ATTR_between);
    if (!others && label == -1 && (first == 0 || first == 1) && node_attr(node, ATTR_pad) &&
        groups >= 1 && count >= 2 && length >= 1 && groups <= INT32_MAX && count <= 64 &&
        length <= INT32_MAX) {
        return;
    }
    script_error(lua,
                 "label_share: 'groups' (at least 1) of 'count' texts (from 2 to 64) of 'length' "
                 "tokens at most go together, with value = -1, 'first' (1: a label is where a "
                 "text begins, or 0) and 'pad' (a token)");
}

/* What classes of which a text has one may have besides. */
static void check_class_weights(lua_State *lua, const Node *node, ClassLabels labels, int n) {
    const double smoothing = node_float(node, ATTR_smoothing, 0);
    const bool weighed = node_attr(node, ATTR_weights) != NULL;
    if (!weighed && !node_attr(node, ATTR_smoothing)) return;
    if (labels != CLASS_ONE) {
        script_error(lua,
                     "label_share: 'weights' and 'smoothing' are of classes of which a text "
                     "has one, not of %s",
                     CLASS_LABELS_NAMES[labels]);
    }
    if (!(smoothing >= 0 && smoothing < 1)) {
        script_error(lua, "label_share: 'smoothing' is %g; it must be from 0 to less than 1",
                     smoothing);
    }
    double weights[CLASS_MOST];
    const char *list = weighed ? node_string(node, ATTR_weights) : "balanced";
    if (strcmp(list, "balanced") == 0 || class_weights_read(list, n, weights)) return;
    script_error(lua,
                 "label_share: 'weights' is '%.200s'; it must be %d numbers more than 0 and at "
                 "most 1e6, one for each class, with commas between, or balanced",
                 list, n);
}

static bool has_same_text(const Node *a, const Node *b, AttrKey key) {
    const bool in_a = node_attr(a, key) != NULL, in_b = node_attr(b, key) != NULL;
    return in_a == in_b && (!in_a || strcmp(node_string(a, key), node_string(b, key)) == 0);
}

static void check_classes(lua_State *lua, const Node *node, double label) {
    bool others = node_attr(node, ATTR_rate) || node_attr(node, ATTR_start);
    bool alone = node_attr(node, ATTR_first) || node_attr(node, ATTR_between) ||
                 node_attr(node, ATTR_labels) || node_attr(node, ATTR_weights) ||
                 node_attr(node, ATTR_smoothing);
    if (node_attr(node, ATTR_groups) || node_attr(node, ATTR_count) ||
        node_attr(node, ATTR_length)) {
        check_groups(lua, node, label);
        return;
    }
    if (!node_attr(node, ATTR_classes)) {
        if (!alone) return;
        script_error(lua, "label_share: 'first', 'between', 'labels', 'weights' and 'smoothing' "
                          "go with 'classes'");
    }
    const char *names = node_string(node, ATTR_classes);
    const char *kind = node_attr(node, ATTR_labels) ? node_string(node, ATTR_labels) : "one";
    const ClassLabels labels = class_labels_find(kind);
    if (labels == N_CLASS_LABELS) {
        script_error(lua, "label_share: 'labels' is '%.40s'; it can be one, sets or numbers", kind);
    }
    const int n = class_names_count_of(names, labels);
    if (n == 0) {
        script_error(lua,
                     "label_share: 'classes' is '%s'; it must be at least %s, all "
                     "different and none of them a number, with commas between them, or how "
                     "many there are",
                     names, labels == CLASS_NUMBERS ? "one name" : "two names");
    }
    check_class_weights(lua, node, labels, n);
    int64_t first = node_int(node, ATTR_first, -1), between = node_int(node, ATTR_between, 1);
    if (!others && label == -1 && (first == 0 || first == 1) && node_attr(node, ATTR_pad) &&
        between >= 0 && between <= CLASS_MOST_BETWEEN) {
        return;
    }
    script_error(lua,
                 "label_share: 'classes' goes with value = -1, 'first' (1: where a text begins, "
                 "or 0) and 'pad' (a token), and perhaps 'between' (from 0 to %d)",
                 CLASS_MOST_BETWEEN);
}

/* Images among the tokens (ir/image_rule.h). */
static void check_images(lua_State *lua, const Node *node, double label) {
    static const AttrKey OTHERS[] = {ATTR_rate, ATTR_start, ATTR_classes, ATTR_groups, ATTR_by};
    const Graph *graph = script_graph(lua)->graph;
    int64_t patches, pixel;
    ImageRule rule;
    if (!image_rule_is_there(node)) return;
    const char *wrong = image_rule_read(node, &rule);
    if (label != -1) wrong = "images go with value = -1";
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]) && !wrong; i++) {
        if (node_attr(node, OTHERS[i])) wrong = "images do not go with other kinds of data";
    }
    if (wrong) script_error(lua, "label_share: %s", wrong);
    if (!graph_image_pixels(graph, &patches, &pixel)) {
        script_error(lua, "label_share: images are of a model whose axes have 'patches' and "
                          "'pixel', what it sees of them");
    }
    if (patches == rule.patches && pixel == rule.pixel) return;
    script_error(lua,
                 "label_share: images=%" PRId64 " of %" PRId64 " x %" PRId64
                 " pixels in patches of "
                 "%" PRId64 " x %" PRId64 " have patches=%" PRId64 " of pixel=%" PRId64
                 " numbers; the model's axes have %" PRId64 " and %" PRId64
                 ": --set patches=%" PRId64 ", --set pixel=%" PRId64,
                 rule.images, rule.side, rule.side, rule.patch, rule.patch, rule.patches,
                 rule.pixel, patches, pixel, rule.patches, rule.pixel);
}

static bool has_same_data(const Node *a, const Node *b) {
    static const AttrKey KEYS[] = {
        ATTR_mask,        ATTR_start,       ATTR_eos,        ATTR_pad,   ATTR_first,
        ATTR_by,          ATTR_each,        ATTR_groups,     ATTR_count, ATTR_length,
        ATTR_image_token, ATTR_images,      ATTR_image_side, ATTR_patch, ATTR_image_tokens,
        ATTR_image_edge,  ATTR_least_tiles, ATTR_most_tiles};
    static const AttrKey TEXTS[] = {ATTR_classes,     ATTR_labels,       ATTR_weights,
                                    ATTR_image_fit,   ATTR_image_filter, ATTR_image_before,
                                    ATTR_image_after, ATTR_image_mean,   ATTR_image_split,
                                    ATTR_image_tile,  ATTR_image_line};
    bool same = node_float(a, ATTR_rate, -1) == node_float(b, ATTR_rate, -1) &&
                node_float(a, ATTR_span, -1) == node_float(b, ATTR_span, -1) &&
                node_float(a, ATTR_smoothing, 0) == node_float(b, ATTR_smoothing, 0);
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        same &= has_same_text(a, b, TEXTS[i]);
    }
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        same &= node_int(a, KEYS[i], -1) == node_int(b, KEYS[i], -1);
    }
    return same;
}

/* The engine counts one label. */
static void check_label_share(lua_State *lua, const Node *node) {
    const Graph *graph = script_graph(lua)->graph;
    double label = node_float(node, ATTR_value, 0);
    if (!(label >= -1 && label <= INT32_MAX && label == floor(label))) {
        script_error(lua, "label_share: 'value' must be a label, a whole number from 0 on, or -1");
    }
    check_hiding(lua, node, label);
    check_classes(lua, node, label);
    check_images(lua, node, label);
    for (int n = 0; n < node->id; n++) {
        const Node *other = graph->nodes[n];
        if (other->op != OP_LABEL_SHARE) continue;
        if (node_float(other, ATTR_value, 0) == label) {
            if (has_same_data(node, other)) continue;
            script_error(lua, "label_share: tokens are hidden in one way: 'rate', 'mask' and "
                              "their like are the same wherever they are asked for");
        }
        diag_error(sandbox_of(lua)->diag, node->loc,
                   "label_share: a model can leave out one label, %g or %g",
                   node_float(other, ATTR_value, 0), label);
        diag_note(sandbox_of(lua)->diag, other->loc, "the other one left out here");
        sandbox_fail(lua);
    }
}

/* ops.NAME{operands..., attribute = ...} -> its first result. Upvalue: the op. */
static int call_op(lua_State *lua) {
    OpKind op = (OpKind)lua_tointeger(lua, lua_upvalueindex(1));
    Attr attrs[N_ATTRS + 1];
    Value inputs[MAX_MODEL_OPERANDS];
    if (!lua_istable(lua, 1)) {
        script_error(lua, "%s: call it with a table, as in ops.%s{x}", OPS[op].name, OPS[op].name);
    }
    lua_settop(lua, 1);
    int n_inputs = read_operands(lua, op, inputs);
    int n_attrs = read_attrs(lua, op, attrs);
    if (op == OP_DROPOUT || op == OP_ATTENTION) complete_drop(lua, op, attrs, &n_attrs);
    if (op == OP_MATMUL) script_arrange_product(lua, inputs, attrs, n_attrs);
    n_attrs = script_complete_parts(lua, op, inputs, n_inputs, attrs, n_attrs);
    Node *node = script_add_node(
        lua,
        (NodeSpec){
            .op = op, .inputs = inputs, .n_inputs = n_inputs, .attrs = attrs, .n_attrs = n_attrs});
    script_check_parts(lua, node);
    if (op == OP_LABEL_SHARE) check_label_share(lua, node);
    script_push_value(lua, node_value(node, 0));
    return 1;
}

static int fail_unknown_op(lua_State *lua) {
    const char *name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?";
    if (op_find(name, (int)strnlen(name, 64)) >= 0) {
        script_error(lua, "ops.%s is not for models: the planner makes it%s", name,
                     strcmp(name, OPS[OP_SLICE].name) == 0 ? "; ops.narrow takes a part of an axis"
                                                           : "");
    }
    const char *known = "";
    for (int op = 0; op < N_OPS; op++) {
        if (!script_op_is_callable(op)) continue;
        known = arena_printf(sandbox_of(lua)->arena, "%s%s%s", known, known[0] ? ", " : "",
                             OPS[op].name);
    }
    script_error(lua, "there is no op '%.64s'; there are: %s", name, known);
}

/* Operators */

typedef enum Operator { OPERATOR_ADD, OPERATOR_SUB, OPERATOR_MUL, OPERATOR_DIV } Operator;

static Value apply_right_number(lua_State *lua, Operator operator, Value x, double number) {
    switch (operator) {
    case OPERATOR_ADD: return add_op(lua, OP_OFFSET, x, NO_VALUE, &number);
    case OPERATOR_SUB: number = -number; return add_op(lua, OP_OFFSET, x, NO_VALUE, &number);
    case OPERATOR_MUL: return add_op(lua, OP_SCALE, x, NO_VALUE, &number);
    case OPERATOR_DIV:
        if (number == 0 || !isfinite(1 / number)) {
            script_error(lua, "division by %g", number);
        }
        number = 1 / number;
        return add_op(lua, OP_SCALE, x, NO_VALUE, &number);
    }
    return NO_VALUE;
}

static Value apply_left_number(lua_State *lua, Operator operator, double number, Value x) {
    if (operator== OPERATOR_SUB) x = add_op(lua, OP_NEG, x, NO_VALUE, NULL);
    if (operator== OPERATOR_DIV) x = add_op(lua, OP_RECIPROCAL, x, NO_VALUE, NULL);
    bool sum = operator== OPERATOR_ADD || operator== OPERATOR_SUB;
    return add_op(lua, sum ? OP_OFFSET : OP_SCALE, x, NO_VALUE, &number);
}

/* Upvalue: the operator. */
static int apply_operator(lua_State *lua) {
    static const OpKind KINDS[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV};
    static const char SIGNS[] = "+-*/";
    Operator operator=(Operator) lua_tointeger(lua, lua_upvalueindex(1));
    Value a = script_to_value(lua, 1), b = script_to_value(lua, 2), result;
    char what[] = "operator ' '";
    what[10] = SIGNS[operator];
    int other = a.node ? 2 : 1;
    if (a.node && b.node) {
        result = add_op(lua, KINDS[operator], a, b, NULL);
    } else if (lua_type(lua, other) != LUA_TNUMBER) {
        script_error(lua, "%s: one side is a %s; a value or a number is needed", what,
                     luaL_typename(lua, other));
    } else {
        double number = check_number(lua, other, what);
        result = a.node ? apply_right_number(lua, operator, a, number)
                        : apply_left_number(lua, operator, number, b);
    }
    script_push_value(lua, result);
    return 1;
}

static int negate_value(lua_State *lua) {
    script_push_value(lua, add_op(lua, OP_NEG, script_to_value(lua, 1), NO_VALUE, NULL));
    return 1;
}

/* What a value tells */

static int value_equals(lua_State *lua) {
    lua_pushboolean(lua, value_equal(script_to_value(lua, 1), script_to_value(lua, 2)));
    return 1;
}

static int value_to_text(lua_State *lua) {
    Value value = check_self(lua, "tostring");
    StrBuf text = strbuf_create();
    type_print(&text, &script_graph(lua)->graph->axes, value_type(value), NULL);
    strbuf_printf(&text, " made at %s:%d", value.node->loc.file, value.node->loc.line);
    char kept[512];
    snprintf(kept, sizeof(kept), "%s", text.text);
    strbuf_destroy(&text); /* before anything can raise */
    lua_pushstring(lua, kept);
    return 1;
}

/* value:dim("seq") */
static int value_dim(lua_State *lua) {
    Value value = check_self(lua, "dim");
    int axes[MAX_RANK];
    if (lua_type(lua, 2) != LUA_TSTRING) script_error(lua, "dim: takes an axis name");
    script_check_axes(lua, 2, "dim", axes);
    int at = type_find_axis(value_type(value), axes[0]);
    if (at >= 0) {
        lua_pushinteger(lua, value_type(value)->dims[at]);
        return 1;
    }
    diag_error(sandbox_of(lua)->diag, sandbox_user_line(lua), "dim: the value has no axis '%s'",
               lua_tostring(lua, 2));
    diag_note(sandbox_of(lua)->diag, value.node->loc, "made here");
    sandbox_fail(lua);
}

/* value:result(2): another result of the op that made it. */
static int value_result(lua_State *lua) {
    Value value = check_self(lua, "result");
    int64_t k = check_integer(lua, 2, "result");
    if (k < 1 || k > value.node->n_outputs) {
        script_error(lua, "result: '%s' has %d", OPS[value.node->op].name, value.node->n_outputs);
    }
    script_push_value(lua, node_value(value.node, (int)k - 1));
    return 1;
}

static int value_field(lua_State *lua) {
    Value value = script_to_value(lua, 1);
    const char *name = luaL_tolstring(lua, 2, NULL);
    const Type *type = value_type(value);
    if (strcmp(name, "axes") == 0) {
        lua_createtable(lua, type->rank, 0);
        for (int i = 0; i < type->rank; i++) {
            lua_pushstring(lua, script_graph(lua)->graph->axes.names[type->axes[i]]);
            lua_rawseti(lua, -2, i + 1);
        }
    } else if (strcmp(name, "dtype") == 0) {
        lua_pushstring(lua, dtype_name(type->dtype));
    } else if (strcmp(name, "dim") == 0) {
        lua_pushcfunction(lua, value_dim);
    } else if (strcmp(name, "input") == 0) {
        bool is_input = value.node->op == OP_INPUT;
        lua_pushstring(lua, is_input ? node_string(value.node, ATTR_name) : NULL); /* or nil */
    } else if (strcmp(name, "result") == 0) {
        lua_pushcfunction(lua, value_result);
    } else {
        script_error(lua, "a value has no field '%.64s'; it has: axes, dim, dtype, input, result",
                     name);
    }
    return 1;
}

static int fail_operator(lua_State *lua) {
    script_error(lua, "values have the operators + - * / only; for all else there are ops, as in "
                      "ops.square{x}");
}

static void open_values(lua_State *lua) {
    static const char *const OPERATORS[] = {"__add", "__sub", "__mul", "__div"};
    static const luaL_Reg METHODS[] = {{"__unm", negate_value},       {"__eq", value_equals},
                                       {"__tostring", value_to_text}, {"__index", value_field},
                                       {"__pow", fail_operator},      {"__mod", fail_operator},
                                       {"__idiv", fail_operator},     {"__lt", fail_operator},
                                       {"__le", fail_operator},       {NULL, NULL}};
    luaL_newmetatable(lua, VALUE_NAME);
    luaL_setfuncs(lua, METHODS, 0);
    for (int i = 0; i < 4; i++) {
        lua_pushinteger(lua, i);
        lua_pushcclosure(lua, apply_operator, 1);
        lua_setfield(lua, -2, OPERATORS[i]);
    }
    lua_pushliteral(lua, "value");
    lua_setfield(lua, -2, "__name");
    lua_pushboolean(lua, false);
    lua_setfield(lua, -2, "__metatable"); /* hides it from getmetatable */
    lua_pop(lua, 1);
}

void script_open_ops(lua_State *lua) {
    open_values(lua);
    lua_newtable(lua);
    for (int op = 0; op < N_OPS; op++) {
        if (!script_op_is_callable(op)) continue;
        lua_pushinteger(lua, op);
        lua_pushcclosure(lua, call_op, 1);
        lua_setfield(lua, -2, OPS[op].name);
    }
    lua_newtable(lua);
    lua_pushcfunction(lua, fail_unknown_op);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
    lua_setglobal(lua, "ops");
}
