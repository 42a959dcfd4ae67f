#include "ir/graph.h"

#include "ir/op.h"
#include "ir/teacher.h"

#include <ctype.h>
#include <string.h>

Graph *graph_create(Arena *arena, const char *name) {
    Graph *graph = ARENA_NEW(arena, Graph);
    graph->arena = arena;
    graph->name = arena_strdup(arena, name);
    for (int axis = 0; axis < N_MESH_AXES; axis++) graph->mesh.size[axis] = 1;
    graph->axes = (AxisTable){.count = 1, .names = {[AXIS_VOCAB] = "vocab"}};
    return graph;
}

Graph *graph_create_like(const Graph *graph, Arena *arena) {
    Graph *fresh = graph_create(arena, graph->name);
    fresh->axes = graph->axes;
    for (int i = 0; arena != graph->arena && i < fresh->axes.count; i++) {
        fresh->axes.names[i] = arena_strdup(arena, graph->axes.names[i]);
    }
    fresh->mesh = graph->mesh;
    fresh->shared_heads = graph->shared_heads;
    fresh->state_split = graph->state_split;
    return fresh;
}

/* Names of files, each once: the nodes of a graph come from few. */
typedef struct FileNames {
    int n, capacity;
    const char **items;
} FileNames;

static const char *copy_file_name(FileNames *names, const char *file, Arena *arena) {
    if (!file) return NULL;
    for (int i = names->n - 1; i >= 0; i--) {
        if (strcmp(names->items[i], file) == 0) return names->items[i];
    }
    ARENA_PUSH(arena, names->items, names->n, names->capacity, arena_strdup(arena, file));
    return names->items[names->n - 1];
}

Graph *graph_copy(const Graph *graph, Arena *arena) {
    Graph *copy = graph_create_like(graph, arena);
    FileNames names = {0};
    copy->n_nodes = copy->capacity = graph->n_nodes;
    copy->nodes = ARENA_ARRAY(arena, Node *, graph->n_nodes + 1);
    Node *nodes = ARENA_ARRAY(arena, Node, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *from = graph->nodes[n];
        Node *node = copy->nodes[n] = &nodes[n];
        *node = *from;
        node->inputs = ARENA_ARRAY(arena, Value, from->n_inputs + 1);
        for (int i = 0; i < from->n_inputs; i++) {
            node->inputs[i] = node_value(&nodes[from->inputs[i].node->id], from->inputs[i].output);
        }
        node->attrs = ARENA_ARRAY(arena, Attr, from->n_attrs + 1);
        for (int i = 0; i < from->n_attrs; i++) {
            node->attrs[i] = from->attrs[i];
            if (ATTRS[from->attrs[i].key].kind == ATTR_STRING) {
                node->attrs[i].s = arena_strdup(arena, from->attrs[i].s);
            }
        }
        node->loc.file = copy_file_name(&names, from->loc.file, arena);
    }
    return copy;
}

int graph_axis(Graph *graph, const char *name, int length) {
    int axis = axis_find(&graph->axes, name, length);
    if (axis >= 0) return axis;
    if (length <= 0 || length > 64 || graph->axes.count == MAX_AXES) return -1;
    if (!isalpha((unsigned char)name[0]) && name[0] != '_') return -1;
    for (int i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_') return -1;
    }
    axis = graph->axes.count++;
    graph->axes.names[axis] = arena_strndup(graph->arena, name, (size_t)length);
    return axis;
}

/* The last of that key; NULL: none. */
static const Attr *find_given(const NodeSpec *spec, AttrKey key) {
    for (int i = spec->n_attrs; i-- > 0;) {
        if (spec->attrs[i].key == key) return &spec->attrs[i];
    }
    return NULL;
}

/* Attributes in the order of attrs.def, each known to the op and every required one present. */
static bool set_attrs(Graph *graph, Node *node, const NodeSpec *spec, Diag *diag) {
    const OpInfo *op = &OPS[node->op];
    int n_uses;
    const AttrUse *uses = op_attrs(node->op, &n_uses);
    for (int i = 0; i < spec->n_attrs; i++) {
        bool required;
        AttrKey key = spec->attrs[i].key;
        if (op_has_attr(node->op, key, &required)) continue;
        diag_error(diag, spec->loc, "%s: has no attribute '%s'; it takes: %s", op->name,
                   ATTRS[key].name, op->attrs[0] ? op->attrs : "none");
        return false;
    }
    node->attrs = ARENA_ARRAY(graph->arena, Attr, spec->n_attrs ? spec->n_attrs : 1);
    for (int i = 0; i < n_uses; i++) {
        const AttrKey key = uses[i].key;
        const Attr *given = find_given(spec, key);
        if (!given && uses[i].required) {
            diag_error(diag, spec->loc, "%s: attribute '%s' (%s) is missing", op->name,
                       ATTRS[key].name, ATTRS[key].help);
            return false;
        }
        if (!given) continue;
        Attr attr = *given;
        if (ATTRS[key].kind == ATTR_STRING) attr.s = arena_strdup(graph->arena, attr.s);
        node->attrs[node->n_attrs++] = attr;
    }
    return true;
}

static bool check_type(const Type *type, const char *op, SourceLoc loc, Diag *diag) {
    int64_t elements = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] <= 0 || type->dims[i] > (INT64_C(1) << 40) ||
            __builtin_mul_overflow(elements, type->dims[i], &elements) ||
            elements > (INT64_C(1) << 50)) {
            diag_error(diag, loc, "%s: a result of this shape is too large or empty", op);
            return false;
        }
    }
    return true;
}

Node *graph_add(Graph *graph, const NodeSpec *spec, Diag *diag) {
    const OpInfo *op = &OPS[spec->op];
    if (spec->n_inputs < op->min_inputs || spec->n_inputs > op->max_inputs) {
        if (op->min_inputs == op->max_inputs) {
            diag_error(diag, spec->loc, "%s: takes %d operand%s, not %d", op->name, op->min_inputs,
                       op->min_inputs == 1 ? "" : "s", spec->n_inputs);
        } else {
            diag_error(diag, spec->loc, "%s: takes %d to %d operands, not %d", op->name,
                       op->min_inputs, op->max_inputs, spec->n_inputs);
        }
        return NULL;
    }
    Node *node = ARENA_NEW(graph->arena, Node);
    node->op = spec->op;
    node->n_inputs = spec->n_inputs;
    node->n_outputs = op->n_outputs;
    node->phase = spec->phase;
    node->block = spec->block;
    node->chunk = spec->chunk;
    node->loc = spec->loc;
    node->inputs = ARENA_ARRAY(graph->arena, Value, spec->n_inputs ? spec->n_inputs : 1);
    for (int i = 0; i < MAX_OUTPUTS; i++) node->shardings[i] = sharding_none();
    for (int i = 0; i < spec->n_inputs; i++) {
        Value input = spec->inputs[i];
        if (!input.node) BUG("%s: operand %d is no value", op->name, i);
        if (input.output >= input.node->n_outputs) BUG("%s: no such output", op->name);
        node->inputs[i] = input;
    }
    if (!set_attrs(graph, node, spec, diag)) return NULL;
    if (op->flags & TYPED) {
        if (!spec->type) BUG("%s: needs a type", op->name);
        node->types[0] = *spec->type;
    }
    if (op->flags & VARIADIC_OUT) node->n_outputs = spec->n_outputs;
    if (!op->infer(graph, node, diag)) return NULL;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!check_type(&node->types[i], op->name, spec->loc, diag)) return NULL;
    }
    node->id = graph->n_nodes;
    ARENA_PUSH(graph->arena, graph->nodes, graph->n_nodes, graph->capacity, node);
    return node;
}

Node *graph_copy_node(Graph *graph, const Node *node, const Value *inputs, Diag *diag) {
    Node *copy = graph_add(graph,
                           &(NodeSpec){.op = node->op,
                                       .inputs = inputs,
                                       .n_inputs = node->n_inputs,
                                       .attrs = node->attrs,
                                       .n_attrs = node->n_attrs,
                                       .type = &node->types[0],
                                       .n_outputs = node->n_outputs,
                                       .phase = node->phase,
                                       .block = node->block,
                                       .chunk = node->chunk,
                                       .loc = node->loc},
                           diag);
    if (copy) memcpy(copy->shardings, node->shardings, sizeof(copy->shardings));
    return copy;
}

const Attr *node_attr(const Node *node, AttrKey key) {
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].key == key) return &node->attrs[i];
    }
    return NULL;
}

int64_t node_int(const Node *node, AttrKey key, int64_t absent) {
    const Attr *attr = node_attr(node, key);
    return attr ? attr->i : absent;
}

double node_float(const Node *node, AttrKey key, double absent) {
    const Attr *attr = node_attr(node, key);
    return attr ? attr->f : absent;
}

const char *node_string(const Node *node, AttrKey key) {
    const Attr *attr = node_attr(node, key);
    return attr ? attr->s : "";
}

int node_axis(const Node *node, AttrKey key) {
    const Attr *attr = node_attr(node, key);
    return attr ? attr->axis : -1;
}

bool node_over(const Node *node, AttrKey key, int axis) {
    const Attr *attr = node_attr(node, key);
    for (int i = 0; attr && i < attr->axes.count; i++) {
        if (attr->axes.items[i] == axis) return true;
    }
    return false;
}

bool attr_equal(const Attr *a, const Attr *b) {
    if (a->key != b->key) return false;
    switch (ATTRS[a->key].kind) {
    case ATTR_INT: return a->i == b->i;
    case ATTR_FLOAT: return a->f == b->f;
    case ATTR_STRING: return strcmp(a->s, b->s) == 0;
    case ATTR_AXIS: return a->axis == b->axis;
    case ATTR_AXES:
        return a->axes.count == b->axes.count &&
               memcmp(a->axes.items, b->axes.items, sizeof(int) * (size_t)a->axes.count) == 0;
    }
    return false;
}

Attr attr_int(AttrKey key, int64_t value) {
    return (Attr){.key = key, .i = value};
}

Attr attr_float(AttrKey key, double value) {
    return (Attr){.key = key, .f = value};
}

Attr attr_string(AttrKey key, const char *value) {
    return (Attr){.key = key, .s = value};
}

Attr attr_axis(AttrKey key, int axis) {
    return (Attr){.key = key, .axis = axis};
}

Attr attr_axes(AttrKey key, const int *axes, int count) {
    Attr attr = {.key = key};
    attr.axes.count = count;
    for (int i = 0; i < count; i++) attr.axes.items[i] = axes[i];
    return attr;
}

const char *node_logical_name(const Node *node, int first_block, Arena *arena) {
    return name_of_block(node_string(node, ATTR_name), first_block + node->block, arena);
}

int *graph_count_uses(const Graph *graph, Arena *arena) {
    int *counts = ARENA_ARRAY(arena, int, graph->n_nodes *MAX_OUTPUTS + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            counts[node->inputs[i].node->id * MAX_OUTPUTS + node->inputs[i].output]++;
        }
    }
    return counts;
}

int64_t graph_source(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const Type *type = &node->types[0];
        if (node->op != OP_INPUT || type->rank < 2) continue;
        if (strcmp(node_string(node, ATTR_name), "source") == 0) return type->dims[type->rank - 1];
    }
    return 0;
}

static int find_lane(const Graph *graph) {
    return axis_find(&graph->axes, AXIS_LANE, (int)strlen(AXIS_LANE));
}

bool graph_has_lanes(const Graph *graph) {
    return find_lane(graph) >= 0;
}

int64_t graph_lanes(const Graph *graph) {
    int lane = find_lane(graph);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int at = lane >= 0 && node->op == OP_INPUT ? type_find_axis(&node->types[0], lane) : -1;
        if (at >= 0) return node->types[0].dims[at];
    }
    return 1;
}
